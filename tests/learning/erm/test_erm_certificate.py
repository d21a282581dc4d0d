"""Certificates of the ERM solver, recomputed in exact arithmetic."""

from __future__ import annotations

from dataclasses import replace

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpriv.learning.erm.batch import ErmBatch
from fedpriv.learning.erm.certificate import (
    ToleranceNotReachedError,
    certain_tolerance,
    gradient_norm_bound,
    project,
)
from fedpriv.learning.erm.problem import ErmProblem
from fedpriv.learning.erm.solver import solve
from fedpriv.learning.losses import HuberHinge, HuberRegression, Logistic, Loss, Softmax, Squared
from tests.learning.erm.erm_problems import (
    TOLERANCE,
    every_loss,
    exact_gradient_norm,
    forms_of,
    make_problem,
    solve_in,
    with_and_without_noise,
)

# ---------------------------------------------------------------------------- certificates


@every_loss
@pytest.mark.parametrize("regulariser", [1e-6, 1e-2, 10.0])
@pytest.mark.parametrize(
    "kind",
    ["random", "ill-conditioned", "duplicates", "separable", "constant", "zero", "tiny"],
)
def test_the_certificate_holds_in_exact_arithmetic(
    loss: Loss, kind: str, regulariser: float
) -> None:
    sizes = [1, 2, 5, 9, 30, 3]  # n = 1, n < d, n > d
    problem = make_problem(loss, sizes, 6, kind=kind, regulariser=regulariser)
    theta, certificate = solve(problem, tolerance=TOLERANCE)
    assert torch.isfinite(theta).all()
    assert (certificate.gradient_norm <= TOLERANCE).all()
    assert (certificate.iterations <= 1000).all()
    for j in range(len(sizes)):
        if theta[j].norm() < 0.99 * certificate.radius[j]:  # else the projection may have acted
            assert exact_gradient_norm(problem, theta[j], j) <= certificate.gradient_norm[j].item()


@with_and_without_noise
def test_the_certificate_holds_in_all_coordinates(loss: Loss, perturbed: bool) -> None:
    problem = make_problem(loss, [1, 4, 25, 8], 6, regulariser=0.05, perturbed=perturbed)
    batch = ErmBatch.of(problem)
    for form in forms_of(loss):
        theta = solve_in(form, problem)
        bound = gradient_norm_bound(batch, theta)
        assert (bound <= TOLERANCE).all()
        for j in range(4):
            assert exact_gradient_norm(problem, theta[j], j) <= bound[j].item()


@every_loss
@given(seed=st.integers(0, 2**32 - 1), scale=st.sampled_from([0.0, 1.0, 1e3, 1e6]))
@settings(max_examples=15)
def test_the_bound_on_the_gradient_norm_holds_at_any_point(
    loss: Loss, seed: int, scale: float
) -> None:
    """Not only near a minimiser, and the rounding margin is not absurdly large."""
    problem = make_problem(loss, [3, 7], 4, seed=seed)
    rng = np.random.default_rng(seed)
    theta = torch.from_numpy(scale * rng.normal(size=(2, loss.outputs, 4)))
    bound = gradient_norm_bound(ErmBatch.of(problem), theta)
    for j in range(2):
        exact = exact_gradient_norm(problem, theta[j], j)
        assert exact <= bound[j].item() <= exact * (1 + 1e-12) + 1e-11 * (1 + scale)


def test_the_certificate_counts_rounding_errors() -> None:
    """A norm of zero in float64 is not certified as zero: the margin is there."""
    problem = make_problem(Squared(radius=10.0, label_bound=1.0), [50], 3, kind="zero")
    at_zero = torch.zeros((1, 1, 3), dtype=torch.float64)
    batch = ErmBatch.of(problem)
    assert torch.linalg.vector_norm(batch.gradient(at_zero)) == 0
    assert 0 < gradient_norm_bound(batch, at_zero) < 1e-13


def test_a_point_off_the_minimiser_is_not_certified() -> None:
    """The certificate has teeth: moving θ by 10·tolerance/Λ breaks it."""
    problem = make_problem(Logistic(), [40], 5, regulariser=0.1)
    theta, _ = solve(problem, tolerance=TOLERANCE)
    moved = theta.unsqueeze(1).clone()
    moved[0, 0, 0] += 10 * TOLERANCE / 0.1
    assert gradient_norm_bound(ErmBatch.of(problem), moved) > TOLERANCE


def test_float32_records_are_solved_as_the_exact_numbers_they_are() -> None:
    problem = make_problem(Logistic(), [20, 3], 5)
    X = (problem.features * 0.999).to(torch.float32)
    single = ErmProblem(
        features=X,
        labels=problem.labels.to(torch.int8),
        offsets=problem.offsets,
        loss=Logistic(),
        regulariser=1e-3,
    )
    theta, certificate = solve(single)
    assert theta.dtype == torch.float64
    for j in range(2):
        assert exact_gradient_norm(single, theta[j], j) <= certificate.gradient_norm[j].item()


# ---------------------------------------------------------------------------- projection


@given(st.lists(st.floats(-1e3, 1e3), min_size=6, max_size=6), st.floats(1e-3, 1e3))
def test_a_projected_vector_is_never_longer_than_the_radius(
    raw: list[float], radius: float
) -> None:
    theta = torch.tensor(raw, dtype=torch.float64).view(2, 1, 3)
    shorter = project(theta, torch.full((2,), radius, dtype=torch.float64))
    assert (shorter.norm(dim=(1, 2)) <= radius).all()
    for row, original in zip(shorter[:, 0].tolist(), theta[:, 0], strict=True):
        with mpmath.workdps(40):
            length = mpmath.sqrt(sum(mpmath.mpf(v) ** 2 for v in row))
        assert length <= radius
        if original.norm() <= radius * (1 - 1e-14):
            assert row == original.tolist()
        else:
            assert length >= radius * (1 - 1e-13)


@given(st.lists(st.floats(-10, 10), min_size=6, max_size=6))
def test_projection_brings_no_two_points_further_apart(raw: list[float]) -> None:
    theta = torch.tensor(raw, dtype=torch.float64).view(2, 1, 3)
    near = project(theta, torch.ones(2, dtype=torch.float64))
    assert (near[0] - near[1]).norm() <= (theta[0] - theta[1]).norm() + 1e-14


def test_answers_lie_within_the_radius_even_when_noise_pushes_them_out() -> None:
    problem = make_problem(Logistic(), [4, 4], 3, perturbed=True, regulariser=1e-3)
    loud = ErmProblem(
        features=problem.features,
        labels=problem.labels,
        offsets=problem.offsets,
        loss=Logistic(),
        regulariser=1e-3,
        linear=torch.full((2, 3), 100.0),
    )
    theta, certificate = solve(loud)
    assert (theta.norm(dim=1) <= certificate.radius).all()
    assert (theta.norm(dim=1) > 0.999 * certificate.radius).all()
    torch.testing.assert_close(certificate.radius, torch.full((2,), 1e3, dtype=torch.float64))


PERTURBED = [Logistic(), HuberHinge(smoothing=0.001), HuberRegression(threshold=0.3)]

# ---------------------------------------------------------------------------- what is certain


@every_loss
@pytest.mark.parametrize("kind", ["random", "ill-conditioned", "separable", "constant", "zero"])
@pytest.mark.parametrize("regulariser", [1e-6, 1e-3, 1.0])
def test_some_tolerance_is_reached_whatever_the_records_are(
    loss: Loss, kind: str, regulariser: float
) -> None:
    """So that who asks for no less learns nothing from whether there is an answer."""
    for size, d in ((1, 3), (7, 40), (60, 5)):
        problem = make_problem(loss, [size], d, kind=kind, regulariser=regulariser, seed=size)
        tolerance = certain_tolerance(
            loss, feature_bound=1.0, strong_convexity=regulariser, records=size, features=d
        )
        assert solve(problem, tolerance=tolerance).certificate.gradient_norm.max() <= tolerance


def test_below_it_the_records_decide() -> None:
    """The twin: two data sets that differ in one record part ways over one tolerance."""

    def reached(seed: int, tolerance: float) -> bool:
        problem = make_problem(Logistic(), [40], 3, regulariser=1e-3)
        problem.features[0] = make_problem(Logistic(), [1], 3, seed=seed).features[0]
        try:
            solve(problem, tolerance=tolerance)
        except ToleranceNotReachedError:
            return False
        return True

    tolerances = np.geomspace(5e-16, 5e-15, 100)
    counts = {sum(reached(seed, tolerance) for tolerance in tolerances) for seed in range(8)}
    assert len(counts) > 1


@pytest.mark.parametrize("loss", PERTURBED, ids=repr)
@pytest.mark.parametrize("length", [0.5, 1e3, 1e9])
def test_a_linear_term_of_any_length_is_certified_at_the_tolerance_that_counts_it(
    loss: Loss, length: float
) -> None:
    """‖b‖ in units of n·G: else a solver that fails where b is long would tell that b is short."""
    for size, d, kind in ((7, 40, "random"), (60, 5, "separable"), (40, 3, "ill-conditioned")):
        problem = _with_linear(loss, size, d, kind, length)
        tolerance = certain_tolerance(
            loss,
            feature_bound=1.0,
            strong_convexity=1e-3,
            records=size,
            features=d,
            linear=length * problem.lipschitz,
        )
        assert solve(problem, tolerance=tolerance).certificate.gradient_norm.max() <= tolerance


def test_a_tolerance_that_does_not_count_a_long_linear_term_is_not_reached() -> None:
    """The twin: what is certain for short terms is out of reach for long ones."""
    problem = _with_linear(Logistic(), 40, 3, "random", 1e3)
    tolerance = certain_tolerance(
        Logistic(), feature_bound=1.0, strong_convexity=1e-3, records=40, features=3
    )
    with pytest.raises(ToleranceNotReachedError):
        solve(problem, tolerance=tolerance, max_iterations=50)


def _with_linear(loss: Loss, size: int, d: int, kind: str, length: float) -> ErmProblem:
    problem = make_problem(loss, [size], d, kind=kind, regulariser=1e-3, seed=size)
    direction = torch.from_numpy(np.random.default_rng(d).normal(size=(1, d)))
    linear = direction / direction.norm() * length * problem.lipschitz * size
    return replace(problem, linear=linear)


def test_a_party_with_one_record_is_certified_beside_a_large_one() -> None:
    """Blocks are filled up to one length; the filling is no reason to doubt an answer."""
    for loss, d in ((Logistic(), 1), (Softmax(classes=3), 3)):
        problem = make_problem(loss, [1, 65], d, regulariser=1.0)
        tolerance = certain_tolerance(
            loss, feature_bound=1.0, strong_convexity=1.0, records=65, features=d
        )
        assert solve(problem, tolerance=tolerance).certificate.gradient_norm.max() <= tolerance


@pytest.mark.parametrize(
    ("loss", "regulariser"),
    [(HuberHinge(smoothing=5e-5), 5e-8), (HuberRegression(threshold=2e-5), 1e-11)],
    ids=repr,
)
def test_records_that_bend_a_loss_sharply_are_solved_well_within_the_limit(
    loss: Loss, regulariser: float
) -> None:
    """Whoever asks chooses the bend: it must not make the records decide about an answer."""
    problem = make_problem(loss, [150], 100, regulariser=regulariser, seed=3)
    tolerance = certain_tolerance(
        loss, feature_bound=1.0, strong_convexity=regulariser, records=150, features=100
    )
    assert solve(problem, tolerance=tolerance).certificate.iterations.max() <= 500
