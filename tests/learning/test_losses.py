"""Losses: closed forms against autograd and mpmath, and the constants that privacy needs."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

import mpmath
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.learning.losses import (
    HuberHinge,
    HuberRegression,
    Logistic,
    Loss,
    Softmax,
    Squared,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

U = 2.0**-53
SCALAR = [
    Logistic(),
    HuberHinge(smoothing=0.5),
    HuberHinge(smoothing=0.01),
    HuberRegression(threshold=1.0),
    HuberRegression(threshold=0.1),
    Squared(radius=5.0, label_bound=2.0),
]
BOUNDED = SCALAR[:-1]
losses = pytest.mark.parametrize("loss", SCALAR, ids=repr)
bounded = pytest.mark.parametrize("loss", BOUNDED, ids=repr)
scores = st.floats(-50, 50) | st.floats(-1e6, 1e6) | st.floats(-2, 2)
signs = st.sampled_from([-1.0, 1.0])


def exact(loss: Loss, score: float, y: float) -> tuple[mpmath.mpf, mpmath.mpf]:
    """Value and slope by their definitions, in 60 digits."""
    s, y = mpmath.mpf(score), mpmath.mpf(y)
    match loss:
        case Logistic():
            return mpmath.log1p(mpmath.exp(-y * s)), -y / (1 + mpmath.exp(y * s))
        case HuberHinge():
            h, z = mpmath.mpf(loss.smoothing), y * s
            if z > 1 + h:
                return mpmath.mpf(0), mpmath.mpf(0)
            if z < 1 - h:
                return 1 - z, -y
            return (1 + h - z) ** 2 / (4 * h), -y * (1 + h - z) / (2 * h)
        case HuberRegression():
            tau, r = mpmath.mpf(loss.threshold), s - y
            if abs(r) <= tau:
                return r**2 / 2, r
            return tau * (abs(r) - tau / 2), tau * mpmath.sign(r)
        case _:
            return (s - y) ** 2 / 2, s - y


@pytest.fixture(autouse=True)
def _sixty_digits() -> Iterator[None]:
    with mpmath.workdps(60):
        yield


@losses
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_values_and_slopes_are_accurate_from_tiny_to_huge_scores(
    loss: Loss, dtype: torch.dtype
) -> None:
    eps = torch.finfo(dtype).eps
    for size in (0.0, 1e-12, 1e-3, 0.5, 0.99, 1.0, 1.01, 17.0, 40.0, 100.0, 745.0, 1e4, 1e8):
        for y in (-1.0, 1.0):
            for sign in (-1, 1):
                score = torch.tensor(sign * size, dtype=dtype)
                value, slope = exact(loss, score.item(), y)
                got = loss.value(score, torch.tensor(y)), loss.slope(score, torch.tensor(y))
                assert got[0].dtype == got[1].dtype == dtype
                # Cancellation in 1 - z and score - y is at the scale of the numbers subtracted.
                scale = 1 / getattr(loss, "smoothing", 1.0)
                slack = 8 * eps * (abs(value) + (0 if isinstance(loss, Logistic) else scale))
                tiny = torch.finfo(dtype).tiny
                assert abs(mpmath.mpf(got[0].item()) - value) <= slack + tiny
                slack = 8 * eps * (abs(slope) + (0 if isinstance(loss, Logistic) else scale))
                assert abs(mpmath.mpf(got[1].item()) - slope) <= slack + tiny


@losses
@given(score=scores, y=signs)
def test_a_slope_is_as_accurate_as_the_certificate_assumes(
    loss: Loss, score: float, y: float
) -> None:
    _, slope = exact(loss, score, y)
    got = loss.slope(torch.tensor(score, dtype=torch.float64), torch.tensor(y)).item()
    assert abs(mpmath.mpf(got) - slope) <= loss.slope_rounding + 8 * U * abs(slope) + 1e-300


def _near_a_kink(loss: Loss, score: float, y: float) -> bool:
    match loss:
        case HuberHinge():
            return abs(abs(1 - score * y) - loss.smoothing) < 1e-9
        case HuberRegression():
            return abs(abs(score - y) - loss.threshold) < 1e-9
        case _:
            return False


@losses
@given(score=scores, y=signs)
def test_slope_and_curvature_are_the_derivatives_that_autograd_finds(
    loss: Loss, score: float, y: float
) -> None:
    s = torch.tensor(score, dtype=torch.float64, requires_grad=True)
    target = torch.tensor(y, dtype=torch.float64)
    (first,) = torch.autograd.grad(loss.value(s, target), s)
    torch.testing.assert_close(loss.slope(s, target).detach(), first, rtol=1e-9, atol=1e-12)
    s2 = s.detach().requires_grad_()
    if _near_a_kink(loss, score, y):
        return  # either one-sided curvature is right there
    (second,) = torch.autograd.grad(loss.slope(s2, target), s2)
    torch.testing.assert_close(loss.curvature(s2, target).detach(), second, rtol=1e-9, atol=1e-15)


@losses
@given(first=scores, second=scores, y=signs)
def test_losses_are_convex_and_their_slopes_lipschitz(
    loss: Loss, first: float, second: float, y: float
) -> None:
    s = torch.tensor([first, second], dtype=torch.float64)
    target = torch.tensor([y, y], dtype=torch.float64)
    value, slope = loss.value(s, target), loss.slope(s, target)
    gap = first - second
    noise = 1e-12 * (1 + value.max().item() + s.abs().max().item() ** 2)
    assert value[0] >= value[1] + slope[1] * gap - noise
    assert (slope[0] - slope[1]) * gap >= -1e-9
    assert abs(slope[0] - slope[1]) <= loss.smoothness * abs(gap) * (1 + 1e-9) + 1e-9


@bounded
@given(score=scores, y=signs)
def test_no_slope_exceeds_g_and_no_curvature_c(loss: Loss, score: float, y: float) -> None:
    s, target = torch.tensor(score, dtype=torch.float64), torch.tensor(y)
    assert abs(loss.slope(s, target)) <= loss.lipschitz
    assert 0 <= loss.curvature(s, target) <= loss.smoothness


@bounded
def test_g_and_c_are_attained(loss: Loss) -> None:
    s = torch.linspace(-50, 50, 100_001, dtype=torch.float64)
    y = torch.ones_like(s)
    assert loss.slope(s, y).abs().max() >= 0.999 * loss.lipschitz
    assert loss.curvature(s, y).max() >= 0.999 * loss.smoothness


@losses
@given(st.data())
def test_constants_for_other_feature_bounds_hold_for_the_gradient_and_hessian(
    loss: Loss, data: st.DataObject
) -> None:
    bound = data.draw(st.floats(0.1, 10))
    angle, radius = data.draw(st.floats(0, 6.3)), data.draw(st.floats(0, 1))
    theta = torch.tensor([angle, 1.0], dtype=torch.float64).cos()
    theta *= data.draw(st.floats(0, 5)) / theta.norm()
    x = bound * radius * torch.tensor([angle, angle - 1.5], dtype=torch.float64).cos()
    x *= min(1.0, bound / x.norm().item()) if x.norm() > 0 else 1.0
    y = torch.tensor(data.draw(signs))
    slope = loss.slope(theta @ x, y)
    assert (slope * x).norm() <= loss.lipschitz_for(bound) * (1 + 1e-12)
    assert loss.curvature(theta @ x, y) * x.dot(x) <= loss.smoothness_for(bound) * (1 + 1e-12)


def test_the_squared_loss_reaches_its_g_on_the_edge_of_its_domain() -> None:
    loss = Squared(radius=5.0, label_bound=2.0)
    assert loss.slope(torch.tensor(5.0), torch.tensor(-2.0)) == loss.lipschitz == 7.0


@given(st.data())
def test_softmax_derivatives_are_those_that_autograd_finds(data: st.DataObject) -> None:
    k = data.draw(st.integers(2, 5))
    raw = data.draw(st.lists(st.floats(-30, 30), min_size=2 * k, max_size=2 * k))
    s = torch.tensor(raw, dtype=torch.float64).view(2, k)
    y = torch.tensor(data.draw(st.lists(st.integers(0, k - 1), min_size=2, max_size=2)))
    loss = Softmax(classes=k)
    s.requires_grad_()
    (slope,) = torch.autograd.grad(loss.value(s, y).sum(), s)
    torch.testing.assert_close(loss.slope(s, y).detach(), slope, rtol=1e-10, atol=1e-14)
    hessian = torch.func.jacrev(lambda z: loss.slope(z, y[0]))(s[0].detach())
    curvature = loss.curvature(s.detach(), y)
    torch.testing.assert_close(curvature[0], hessian, rtol=1e-9, atol=1e-14)
    v = torch.linspace(-1, 2, 2 * k, dtype=torch.float64).view(2, k)
    product = torch.einsum("nij,nj->ni", curvature, v)
    torch.testing.assert_close(loss.curvature_product(s.detach(), y, v), product)
    assert loss.slope(s, y).norm(dim=1).max() <= loss.lipschitz * (1 + 1e-15)
    assert torch.linalg.eigvalsh(curvature).max() <= loss.smoothness + 1e-14


def test_softmax_constants_are_attained() -> None:
    loss = Softmax(classes=3)
    far = torch.tensor([[0.0, 40.0, 0.0]], dtype=torch.float64)
    assert loss.slope(far, torch.tensor([0])).norm() >= 0.999 * sqrt(2)
    even = torch.tensor([[0.0, 0.0, -800.0]], dtype=torch.float64)
    assert torch.linalg.eigvalsh(loss.curvature(even, torch.tensor([0]))).max() >= 0.499


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_softmax_stays_finite_and_right_at_huge_scores(dtype: torch.dtype) -> None:
    loss = Softmax(classes=3)
    s = torch.tensor([[1e4, -1e4, 0.0], [-3e4, 3e4, 3e4]], dtype=dtype)
    y = torch.tensor([1, 2])
    expected = torch.tensor([2e4, 0.6931471805599453], dtype=dtype)
    torch.testing.assert_close(loss.value(s, y), expected)
    wanted = torch.tensor([[1.0, -1.0, 0.0], [0.0, 0.5, -0.5]], dtype=dtype)
    torch.testing.assert_close(loss.slope(s, y), wanted)


@given(score=st.floats(-600, 600), positive=st.booleans())
def test_softmax_of_two_classes_is_the_logistic_loss_of_their_difference(
    score: float, positive: bool
) -> None:
    pair = torch.tensor([[0.0, score]], dtype=torch.float64)
    two = Softmax(classes=2).value(pair, torch.tensor([int(positive)]))
    one = Logistic().value(pair[:, 1], torch.tensor([2.0 * positive - 1]))
    torch.testing.assert_close(two, one, rtol=1e-12, atol=1e-15)


@given(st.lists(st.floats(-40, 40), min_size=4, max_size=4), st.integers(0, 3))
def test_a_softmax_slope_is_as_accurate_as_the_certificate_assumes(
    raw: list[float], y: int
) -> None:
    loss = Softmax(classes=4)
    got = loss.slope(torch.tensor([raw], dtype=torch.float64), torch.tensor([y]))[0].tolist()
    weights = [mpmath.exp(mpmath.mpf(s)) for s in raw]
    exact_slope = [w / sum(weights) - (i == y) for i, w in enumerate(weights)]
    off = mpmath.sqrt(sum((a - b) ** 2 for a, b in zip(got, exact_slope, strict=True)))
    size = mpmath.sqrt(sum(s**2 for s in exact_slope))
    assert off <= loss.slope_rounding + 8 * U * size


@pytest.mark.parametrize("loss", [Logistic(), HuberHinge(smoothing=0.1)], ids=repr)
@pytest.mark.parametrize("labels", [[0.0, 1.0], [1.0, 2.0], [float("nan")]], ids=str)
def test_margin_losses_refuse_labels_other_than_plus_and_minus_one(
    loss: Loss, labels: list[float]
) -> None:
    loss.check_labels(torch.tensor([-1, 1, 1]))
    with pytest.raises(ValueError, match=r"-1 or \+1"):
        loss.check_labels(torch.tensor(labels))


def test_other_losses_refuse_labels_outside_their_domain() -> None:
    with pytest.raises(ValueError, match="finite"):
        HuberRegression(threshold=1.0).check_labels(torch.tensor([0.5, float("inf")]))
    with pytest.raises(ValueError, match="label_bound"):
        Squared(radius=1.0, label_bound=1.0).check_labels(torch.tensor([1.5]))
    for labels in (torch.tensor([0, 3]), torch.tensor([-1]), torch.tensor([1.0])):
        with pytest.raises(ValueError, match="classes - 1 = 2"):
            Softmax(classes=3).check_labels(labels)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: HuberHinge(smoothing=0.0), "smoothing"),
        (lambda: HuberHinge(smoothing=float("nan")), "smoothing"),
        (lambda: HuberRegression(threshold=-1.0), "threshold"),
        (lambda: Squared(radius=float("inf"), label_bound=1.0), "radius"),
        (lambda: Squared(radius=1.0, label_bound=-1.0), "label_bound"),
        (lambda: Softmax(classes=1), "classes"),
        (lambda: Logistic().lipschitz_for(0.0), "feature_bound"),
        (lambda: Logistic().smoothness_for(-1.0), "feature_bound"),
    ],
)
def test_meaningless_parameters_are_refused_by_name(make: Callable[[], object], name: str) -> None:
    with pytest.raises(ValueError, match=name):
        make()
