"""A bound is printed only where it holds: against exact expectations, and where theorems end.

On a quadratic, noisy descent with or without momentum is linear: mean and covariance follow from
a recursion, and so does the expected excess risk, exactly. Beyond quadratics the step condition is
tried without noise on risks that are not even convex.
"""

from __future__ import annotations

from math import exp, log, log1p, sin
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpriv.privacy.schedules import Descent, momentum_step_limit
from fedpriv.privacy.schedules.momentum import momentum_noise, step_excess

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

BETA = st.one_of(st.just(0.0), st.floats(0.001, 0.99))
CONDITION = st.floats(0.05, 9).map(exp)
NOISE = st.lists(st.floats(-3, 3).map(exp), min_size=1, max_size=120)


def descent(*, beta: float, condition: float, dimension: int, gap: float) -> Descent:
    return Descent(
        smoothness=2.0,
        strong_convexity=2.0 / condition,
        records=10,
        dimension=dimension,
        gap=gap,
        momentum=beta,
    )


def exact_excess(
    curvatures: NDArray[np.float64],
    starts: NDArray[np.float64],
    problem: Descent,
    noise: list[float],
) -> float:
    """E[Σ h·θ²/2] after all steps on Σ h·θ²/2: the recursion of (θ, v) in each direction."""
    beta, total = problem.momentum, 0.0
    for h, start in zip(curvatures, starts, strict=True):
        mean, covariance = np.array([start, 0.0]), np.zeros((2, 2))
        for t, sigma in enumerate(noise, start=1):
            rate = problem.step / (1 - beta**t)
            pulled, shaken = (1 - beta) * h, 1 - beta
            move = np.array([[1 - rate * pulled, -rate * beta], [pulled, beta]])
            kick = np.array([-rate * shaken, shaken])
            mean = move @ mean
            covariance = move @ covariance @ move.T
            covariance += np.outer(kick, kick) * (problem.clip_norm * sigma / problem.records) ** 2
        total += h / 2 * (mean[0] ** 2 + covariance[0, 0])
    return float(total)


@given(
    beta=BETA,
    condition=CONDITION,
    noise=NOISE,
    loudness=st.sampled_from([1e-6, 1e-2, 1.0, 100.0]),
    places=st.lists(st.floats(0, 1), min_size=1, max_size=3),
)
@settings(max_examples=150, deadline=None)
def test_no_quadratic_exceeds_the_bound(
    beta: float, condition: float, noise: list[float], loudness: float, places: list[float]
) -> None:
    curvatures = np.array([2.0 / condition ** (1 - place) for place in places])
    starts = np.ones(len(places))
    gap = float(np.sum(curvatures) / 2)
    problem = descent(beta=beta, condition=condition, dimension=len(places), gap=gap)
    sigmas = [loudness * sigma for sigma in noise]
    truth = exact_excess(curvatures, starts, problem, sigmas)
    assert truth <= problem.bound(np.array(sigmas)) * (1 + 1e-9)


@pytest.mark.parametrize("beta", [0.0, 0.3, 0.9])
def test_a_bound_one_percent_smaller_is_exceeded(beta: float) -> None:
    """The twin of the test above: it would have caught that."""
    problem = descent(beta=beta, condition=1000, dimension=1, gap=0.001)
    truth = exact_excess(np.array([0.002]), np.ones(1), problem, [1e-9])
    assert truth > problem.bound(np.array([1e-9])) * 0.99
    if beta == 0:  # and so is the noise term, in a round without a past
        loud = exact_excess(np.array([2.0]), np.zeros(1), problem, [1e6])
        assert loud > problem.bound(np.array([1e6])) * 0.99


def wavy(theta: float) -> float:
    """The slope of θ² + 3·sin²θ: 8-smooth, not convex, PL with constant 1/32 (Karimi et al.)."""
    return 2 * theta + 3 * sin(2 * theta)


def wavy_risk(theta: float) -> float:
    return theta**2 + 3 * sin(theta) ** 2


def bent(theta: float) -> float:
    """Curvature M = 8 on one side and μ = 1/32 on the other."""
    return 8 * theta if theta > 0 else theta / 32


def bent_risk(theta: float) -> float:
    return (8 if theta > 0 else 1 / 32) * theta**2 / 2


@pytest.mark.parametrize(("slope", "risk"), [(wavy, wavy_risk), (bent, bent_risk)])
@pytest.mark.parametrize("beta", [0.05, 0.3, 0.5, 0.7, 0.9, 0.97])
def test_the_step_is_right_beyond_quadratics(
    slope: Callable[[float], float], risk: Callable[[float], float], beta: float
) -> None:
    """After every round the excess risk is below γ^T times that of the start."""
    step = momentum_step_limit(smoothness=8.0, strong_convexity=1 / 32, beta=beta)
    gamma = 1 - step / 32
    for start in np.linspace(-6, 6, 25):
        theta, velocity, allowed = float(start), 0.0, risk(float(start))
        for t in range(1, 400):
            velocity = beta * velocity + (1 - beta) * slope(theta)
            theta -= step * velocity / (1 - beta**t)
            allowed *= gamma
            assert risk(theta) <= allowed * (1 + 1e-9)


@given(beta=st.floats(0.001, 0.995), condition=CONDITION)
def test_the_step_is_the_largest_that_the_theorem_allows(beta: float, condition: float) -> None:
    problem = {"smoothness": 3.0, "strong_convexity": 3.0 / condition, "beta": beta}
    limit = momentum_step_limit(**problem)
    assert 0 < limit < 1 / 3.0
    assert step_excess(step=limit, **problem) <= 0 < step_excess(step=limit * 1.0001, **problem)


@pytest.mark.parametrize("beta", [0.3, 0.8])
def test_the_constant_of_the_step_is_the_sum_of_the_proof(beta: float) -> None:
    """Z bounds Σ_k γ^−k·Σ_{i≤j} w_{j+k,i}(j+k−i) for every j, and is its limit."""
    gamma, step = 0.99, 0.01
    sums = []
    for j in (1, 2, 5, 300):
        total = 0.0
        for t in range(j + 1, j + 400):
            weights = (1 - beta) * beta ** (t - np.arange(1.0, t + 1)) / (1 - beta**t)
            total += gamma ** (j - t) * float(np.sum(weights[:j] * (t - np.arange(1.0, j + 1))))
        sums.append(total)
    # With M = 1/η the rest of ζ vanishes: ζ = 2Z.
    constant = step_excess(step=step, smoothness=1 / step, strong_convexity=1.0, beta=beta) / 2
    assert sums == sorted(sums)
    assert sums[-1] <= constant * (1 + 1e-12)
    assert sums[-1] == pytest.approx(constant, rel=1e-9)


@given(beta=st.floats(0.01, 0.99), noise=NOISE)
def test_the_noise_left_in_the_momentum_is_that_of_its_weights(
    beta: float, noise: list[float]
) -> None:
    squares = np.square(noise)
    for t, left in enumerate(momentum_noise(squares, beta=beta), start=1):
        weights = (1 - beta) * beta ** (t - np.arange(1.0, t + 1)) / (1 - beta**t)
        assert sum(weights) == pytest.approx(1)
        assert left == pytest.approx(float(np.sum(weights**2 * squares[:t])), rel=1e-9)


def test_the_bound_of_plain_descent_is_the_recursion_that_proves_it() -> None:
    """e ← γ·e + (M·d/2)·(η·C·σ_t/N)², η = 1/M, from e = f₁ − f*."""
    problem = Descent(smoothness=0.35, strong_convexity=0.1, records=5000, dimension=20)
    noise, expected, excess = np.array([9.0, 4.0, 7.0]), [], log(2)
    for sigma in noise:
        excess = (1 - 0.1 / 0.35) * excess + 0.35 * 20 / 2 * (sigma / (0.35 * 5000)) ** 2
        expected.append(excess)
    assert problem.bounds(noise) == pytest.approx(expected, rel=1e-12)
    assert problem.bound(noise) == pytest.approx(expected[-1], rel=1e-12)


@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_clipped_descent_has_no_bound(beta: float) -> None:
    """Nine records say +1 and one says −1: clipped at 0.1, all speak equally loud.

    Noiseless descent ends where 0.08 = λθ, far from the minimum; the formula without its condition
    would promise an excess risk of nearly nothing.
    """
    convexity, clip = 0.01, 0.1

    def risk(theta: float) -> float:
        losses = 0.9 * log1p(exp(-theta)) + 0.1 * log1p(exp(theta))
        return losses + convexity * theta**2 / 2

    def slope(theta: float, most: float) -> float:
        one, other = -1 / (1 + exp(theta)), 1 / (1 + exp(-theta))
        pulled = 0.9 * max(one, -most) + 0.1 * min(other, most)
        return pulled + convexity * theta

    risks = {}
    for most in (clip, 1.0):
        theta = 0.0
        for _ in range(5000):
            theta -= slope(theta, most) / 0.26
        risks[most] = risk(theta)
    left = risks[clip] - risks[1.0]
    assert left > 0.01
    facts: dict[str, Any] = {
        "smoothness": 0.26,
        "strong_convexity": convexity,
        "records": 10,
        "dimension": 1,
    }
    quiet = np.full(5000, 1e-9)
    assert Descent(**facts, clip_norm=1.0, momentum=beta).bound(quiet) < left
    clipped = Descent(**facts, clip_norm=clip, momentum=beta)
    assert clipped.no_bound is not None
    for refused in (clipped.bound, clipped.bounds):
        with pytest.raises(ValueError, match=r"no bound is known: clip = 0\.1 is below"):
            refused(quiet)
    assert Descent(**facts, clip_norm=clip, lipschitz=0.1).no_bound is None
