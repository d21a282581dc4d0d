"""Server optimisers, step by step against torch.optim and against closed forms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.learning.optimisers import (
    AdaGrad,
    Adam,
    Averaged,
    DebiasedMomentum,
    Momentum,
    Nesterov,
    Optimiser,
    Projected,
    Sgd,
    WarmUp,
    Yogi,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Vector = NDArray[np.float64]

START = np.array([1.0, -2.0, 0.5, 0.0])
PEERS: list[tuple[Optimiser, Callable[[Any], torch.optim.Optimizer]]] = [
    (Sgd(learning_rate=0.1), lambda p: torch.optim.SGD(p, lr=0.1)),
    (
        Momentum(learning_rate=0.05, decay=0.9),
        lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    ),
    (
        Nesterov(learning_rate=0.05, decay=0.9),
        lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    ),
    (AdaGrad(learning_rate=0.3), lambda p: torch.optim.Adagrad(p, lr=0.3)),
    (Adam(learning_rate=0.02), lambda p: torch.optim.Adam(p, lr=0.02)),
    (
        Adam(learning_rate=0.02, mean_decay=0.5, squares_decay=0.7, stability=1e-3),
        lambda p: torch.optim.Adam(p, lr=0.02, betas=(0.5, 0.7), eps=1e-3),
    ),
    (
        Adam(learning_rate=0.02, weight_decay=0.3),
        lambda p: torch.optim.AdamW(p, lr=0.02, weight_decay=0.3),
    ),
]
ALL: list[Optimiser] = [
    *(ours for ours, _ in PEERS),
    DebiasedMomentum(learning_rate=0.1, decay=0.8),
    Yogi(learning_rate=0.1),
    WarmUp(optimiser=Adam(learning_rate=0.1), steps=3),
    Projected(optimiser=Adam(learning_rate=0.1), radius=9.0),
    Averaged(optimiser=Momentum(learning_rate=0.05, decay=0.9), skip=2, power=3.0),
]


def _gradients(steps: int = 50) -> Vector:
    """Scales from 1e-6 to 1e3, and a coordinate whose gradient is often exactly zero."""
    rng = np.random.default_rng(0)
    gradients: Vector = rng.normal(size=(steps, 4)) * np.array([1.0, 1e-6, 1e3, 1.0])
    gradients[::2, 3] = 0.0
    return gradients


def _iterates(optimiser: Optimiser, gradients: Vector, start: Vector = START) -> list[Vector]:
    theta, state = start, optimiser.start(start)
    iterates = []
    for gradient in gradients:
        theta, state = optimiser.step(theta, gradient, state)
        iterates.append(theta)
    return iterates


@pytest.mark.parametrize(("ours", "peer"), PEERS, ids=lambda x: repr(x) if x in ALL else "")
def test_every_step_is_that_of_torch(
    ours: Optimiser, peer: Callable[[Any], torch.optim.Optimizer]
) -> None:
    parameter = torch.nn.Parameter(torch.from_numpy(START.copy()))
    theirs = peer([parameter])
    gradients = _gradients()
    for theta, gradient in zip(_iterates(ours, gradients), gradients, strict=True):
        parameter.grad = torch.from_numpy(gradient.copy())
        theirs.step()
        np.testing.assert_allclose(theta, parameter.detach().numpy(), rtol=1e-12, atol=1e-14)


def test_debiased_momentum_steps_along_the_weighted_mean_of_all_gradients() -> None:
    """v̂_t = Σ βᵗ⁻ⁱ gᵢ / Σ βᵗ⁻ⁱ, by hand."""
    gradients = _gradients(20)
    theta = START
    for t, got in enumerate(
        _iterates(DebiasedMomentum(learning_rate=0.1, decay=0.8), gradients), start=1
    ):
        weights = 0.8 ** np.arange(t - 1, -1, -1)
        theta = theta - 0.1 * weights @ gradients[:t] / weights.sum()
        np.testing.assert_allclose(got, theta, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("make", [Momentum, Nesterov, DebiasedMomentum])
def test_momentum_without_memory_is_gradient_descent(
    make: type[Momentum | Nesterov | DebiasedMomentum],
) -> None:
    gradients = _gradients(5)
    plain = _iterates(Sgd(learning_rate=0.1), gradients)
    np.testing.assert_array_equal(_iterates(make(learning_rate=0.1, decay=0.0), gradients), plain)


def test_a_constant_gradient_moves_debiased_momentum_as_gradient_descent() -> None:
    gradients = np.tile([1.0, -2.0, 3.0, 0.0], (30, 1))
    plain = _iterates(Sgd(learning_rate=0.1), gradients)
    debiased = _iterates(DebiasedMomentum(learning_rate=0.1, decay=0.9), gradients)
    np.testing.assert_allclose(debiased, plain, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("optimiser", ALL, ids=repr)
def test_a_step_leaves_its_arguments_as_they_are(optimiser: Optimiser) -> None:
    theta, gradient = START.copy(), np.ones(4)
    state = optimiser.start(theta)
    kept = [np.array(part) for part in state if isinstance(part, np.ndarray)]
    first, _ = optimiser.step(theta, gradient, state)
    again, _ = optimiser.step(theta, gradient, state)
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(theta, START)
    np.testing.assert_array_equal(gradient, np.ones(4))
    for before, after in zip(
        kept, (part for part in state if isinstance(part, np.ndarray)), strict=True
    ):
        np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("optimiser", ALL, ids=repr)
def test_a_zero_gradient_from_rest_stays_put_but_for_weight_decay(optimiser: Optimiser) -> None:
    (theta,) = _iterates(optimiser, np.zeros((1, 4)))
    shrink = 1 - 0.02 * getattr(optimiser, "weight_decay", 0.0)
    np.testing.assert_array_equal(theta, START * shrink)


def test_nesterov_reaches_the_published_rate_where_plain_descent_cannot() -> None:
    """On a quadratic of condition number 10⁴ with β = (√κ - 1)/(√κ + 1): 1 - 1/√κ a step."""
    curvature = np.array([1e-4, 1.0])
    last = {}
    pair: list[Optimiser] = [Nesterov(learning_rate=1.0, decay=99 / 101), Sgd(learning_rate=1.0)]
    for optimiser in pair:
        theta, state = np.ones(2), optimiser.start(np.ones(2))
        for _ in range(2000):
            theta, state = optimiser.step(theta, curvature * theta, state)
        last[type(optimiser)] = float(curvature @ theta**2)
    assert last[Nesterov] <= 2 * (1 - 1e-2) ** 2000 < 1e-8
    assert last[Sgd] > 6e-5


def test_warm_up_shortens_the_first_steps_and_no_others() -> None:
    gradients = np.ones((6, 4))
    warm = WarmUp(optimiser=Sgd(learning_rate=0.5), steps=4)
    steps = -np.diff([START, *_iterates(warm, gradients)], axis=0)[:, 0]
    np.testing.assert_allclose(steps, 0.5 * np.array([0.25, 0.5, 0.75, 1, 1, 1]))


@pytest.mark.parametrize("inner", ALL[:-3], ids=repr)
def test_one_step_of_warm_up_is_none(inner: Optimiser) -> None:
    gradients = _gradients(5)
    warm = WarmUp(optimiser=inner, steps=1)
    np.testing.assert_array_equal(_iterates(warm, gradients), _iterates(inner, gradients))


def test_projected_descent_ends_at_the_constrained_minimum() -> None:
    """min ½‖θ - a‖² over ‖θ‖ ≤ R is R·a/‖a‖; a ball that holds a changes no step."""
    target = np.array([3.0, -4.0])
    for radius, expected in ((2.0, target * 0.4), (9.0, target)):
        plain: Optimiser = Momentum(learning_rate=0.2, decay=0.5)
        rule = Averaged(optimiser=Projected(optimiser=plain, radius=radius), skip=150)
        theta, state = np.zeros(2), rule.start(np.zeros(2))
        for _ in range(300):
            theta, state = rule.step(theta, theta - target, state)
            assert np.linalg.norm(theta) <= radius * (1 + 1e-12)
        np.testing.assert_allclose(theta, expected, rtol=1e-9)
        np.testing.assert_allclose(state.average, expected, rtol=1e-6)


def _average(skip: int, power: float, gradients: Vector) -> list[Vector]:
    optimiser = Averaged(optimiser=Sgd(learning_rate=0.1), skip=skip, power=power)
    theta, state = START, optimiser.start(START)
    averages = []
    for gradient in gradients:
        theta, state = optimiser.step(theta, gradient, state)
        averages.append(state.average)
    return averages


@given(skip=st.integers(0, 12), steps=st.integers(1, 12))
def test_uniform_and_tail_averages_are_means_of_the_counted_iterates(skip: int, steps: int) -> None:
    gradients = _gradients(steps)
    iterates = _iterates(Sgd(learning_rate=0.1), gradients)
    for t, average in enumerate(_average(skip, 0.0, gradients), start=1):
        counted = iterates[skip:t] if t > skip else iterates[t - 1 : t]
        np.testing.assert_allclose(average, np.mean(counted, axis=0), rtol=1e-10, atol=1e-10)


@given(power=st.integers(0, 5), steps=st.integers(1, 12))
def test_polynomial_averages_weigh_iterate_t_by_a_polynomial_in_t(power: int, steps: int) -> None:
    """The recursion's weights are ∝ t(t+1)…(t+p-1), so they sum to 1 and fade with age."""
    gradients = _gradients(steps)
    iterates = np.array(_iterates(Sgd(learning_rate=0.1), gradients))
    t = np.arange(1, steps + 1)
    weights = np.prod([t + i for i in range(power)], axis=0) * np.ones(steps)
    expected = weights @ iterates / weights.sum()
    np.testing.assert_allclose(_average(0, power, gradients)[-1], expected, rtol=1e-9, atol=1e-9)


def test_averaging_leaves_the_iterates_alone() -> None:
    inner = Adam(learning_rate=0.1)
    gradients = _gradients(10)
    outer = Averaged(optimiser=inner, skip=3)
    np.testing.assert_array_equal(_iterates(outer, gradients), _iterates(inner, gradients))


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: Sgd(learning_rate=0.0), "learning_rate"),
        (lambda: Sgd(learning_rate=float("nan")), "learning_rate"),
        (lambda: Momentum(learning_rate=0.1, decay=1.0), "decay"),
        (lambda: DebiasedMomentum(learning_rate=0.1, decay=-0.1), "decay"),
        (lambda: DebiasedMomentum(learning_rate=0.1, decay=float("nan")), "decay"),
        (lambda: Nesterov(learning_rate=0.1, decay=1.0), "decay"),
        (lambda: WarmUp(optimiser=Sgd(learning_rate=0.1), steps=0), "steps"),
        (lambda: Projected(optimiser=Sgd(learning_rate=0.1), radius=0.0), "radius"),
        (lambda: AdaGrad(learning_rate=0.1, stability=0.0), "stability"),
        (lambda: Adam(learning_rate=0.1, mean_decay=1.0), "mean_decay"),
        (lambda: Adam(learning_rate=0.1, squares_decay=2.0), "squares_decay"),
        (lambda: Adam(learning_rate=0.1, weight_decay=-1.0), "weight_decay"),
        (lambda: Averaged(optimiser=Sgd(learning_rate=0.1), skip=-1), "skip"),
        (lambda: Averaged(optimiser=Sgd(learning_rate=0.1), power=-1.0), "power"),
    ],
)
def test_meaningless_settings_are_refused_by_name(make: Callable[[], object], name: str) -> None:
    with pytest.raises(ValueError, match=name):
        make()


def test_yogi_moves_its_squares_by_no_more_than_their_own_size() -> None:
    """Zaheer et al. 2018, Algorithm 2, one coordinate, step by step; Adam has another rule."""
    gradients = [3.0, 0.1, -0.2, 5.0]
    theta, mean, squares = 1.0, 0.0, 0.0
    for steps, gradient in enumerate(gradients, start=1):
        mean = 0.9 * mean + 0.1 * gradient
        squares -= 0.01 * np.sign(squares - gradient**2) * gradient**2
        scale = np.sqrt(squares / (1 - 0.99**steps)) + 1e-3
        theta -= 0.05 * mean / (1 - 0.9**steps) / scale
    optimiser = Yogi(learning_rate=0.05)
    found, state = np.array([1.0]), optimiser.start(np.array([1.0]))
    for gradient in gradients:
        found, state = optimiser.step(found, np.array([gradient]), state)
    assert found[0] == pytest.approx(theta, rel=1e-12)
    adam = Adam(learning_rate=0.05, squares_decay=0.99, stability=1e-3)
    other = _iterates(adam, np.array(gradients)[:, np.newaxis], np.array([1.0]))[-1]
    assert abs(other[0] - theta) > 1e-4
