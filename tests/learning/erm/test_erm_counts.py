"""Minimisers of sums that are divided by a declared number of records, not by the true one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import mpmath
import numpy as np
import pytest
import torch

from fedpriv.learning.erm.batch import ErmBatch
from fedpriv.learning.erm.certificate import gradient_norm_bound
from fedpriv.learning.erm.problem import ErmProblem
from fedpriv.learning.erm.sensitivity import minimiser_sensitivity
from fedpriv.learning.erm.solver import solve
from fedpriv.learning.losses import HuberHinge, HuberRegression, Logistic, Softmax
from tests.learning.erm.erm_problems import (
    LOSSES,
    SQUARED,
    exact_slope,
    forms_of,
    make_problem,
    solve_in,
)

if TYPE_CHECKING:
    from torch import Tensor

    from fedpriv.learning.losses import Loss

LIPSCHITZ = [loss for loss in LOSSES if loss != SQUARED]
# True numbers of records, and declared ones: as many, more, fewer, none, and none of all.
TRUE = [7, 3, 40, 0, 1]
DECLARED = [7, 5, 21, 4, 9]
TOLERANCE = 1e-8


def declared_problem(
    loss: Loss, *, d: int = 3, perturbed: bool = False, seed: int = 0
) -> ErmProblem:
    """`make_problem` of all records, given to parties of whom one has none."""
    rng = np.random.default_rng(seed)
    records = make_problem(loss, [sum(TRUE)], d, seed=seed, regulariser=0.05)
    shape = (len(TRUE), loss.outputs, d) if loss.outputs > 1 else (len(TRUE), d)
    return replace(
        records,
        offsets=torch.tensor([0, *np.cumsum(TRUE)]),
        counts=torch.tensor(DECLARED),
        linear=torch.from_numpy(3 * rng.normal(size=shape)) if perturbed else None,
        extra_regulariser=torch.from_numpy(rng.random(len(TRUE))) if perturbed else None,
    )


def exact_norm(problem: ErmProblem, theta: Tensor, j: int) -> float:
    """‖(1/n_j)Σ∇f + Λθ + b/n_j‖ from the definition, in 40 digits, n_j as declared."""
    assert problem.counts is not None
    with mpmath.workdps(40):
        count, k = int(problem.counts[j]), problem.loss.outputs
        weights = [[mpmath.mpf(v) for v in row] for row in theta.reshape(k, -1).tolist()]
        lam = mpmath.mpf(problem.strong_convexity[j].item())
        total = [[lam * v for v in row] for row in weights]
        if problem.linear is not None:
            for row, more in zip(total, problem.linear[j].reshape(k, -1).tolist(), strict=True):
                for c, b in enumerate(more):
                    row[c] += mpmath.mpf(b) / count
        for i in range(int(problem.offsets[j]), int(problem.offsets[j + 1])):
            x = [mpmath.mpf(v) for v in problem.features[i].tolist()]
            scores = [mpmath.fdot(row, x) for row in weights]
            slopes = exact_slope(problem.loss, scores, problem.labels[i].item())
            for row, slope in zip(total, slopes, strict=True):
                for c, value in enumerate(x):
                    row[c] += slope * value / count
        return float(mpmath.sqrt(sum(v**2 for row in total for v in row)))


@pytest.mark.parametrize("perturbed", [False, True])
@pytest.mark.parametrize("loss", LIPSCHITZ, ids=repr)
def test_every_form_minimises_the_sum_over_the_declared_number(loss: Loss, perturbed: bool) -> None:
    problem = declared_problem(loss, perturbed=perturbed)
    for form in forms_of(loss):
        theta = solve_in(form, problem)
        for j in range(len(TRUE)):
            assert exact_norm(problem, theta[j], j) <= TOLERANCE


@pytest.mark.parametrize("d", [2, 60])
@pytest.mark.parametrize("loss", LIPSCHITZ, ids=repr)
def test_a_certificate_counts_the_true_records_and_divides_by_the_declared(
    loss: Loss, d: int
) -> None:
    problem = declared_problem(loss, d=d, perturbed=True)
    solution = solve(problem, tolerance=TOLERANCE)
    bounds = solution.certificate.gradient_norm
    inside = torch.linalg.vector_norm(solution.theta.flatten(1), dim=1) < 0.999 * problem.radius
    assert bool((bounds <= TOLERANCE).all())
    for j in inside.nonzero().squeeze(1).tolist():  # others were projected
        assert exact_norm(problem, solution.theta[j], j) <= bounds[j]


@pytest.mark.parametrize("loss", LIPSCHITZ, ids=repr)
def test_a_certificate_scales_with_the_objective(loss: Loss) -> None:
    """A quarter of n and four times Λ are four times J, rounding errors and all: to the bit."""
    problem = make_problem(loss, [64], 3, regulariser=0.25, kind="separable")
    steep = replace(problem, counts=torch.tensor([16]), regulariser=1.0)
    theta = torch.ones((1, loss.outputs, 3), dtype=torch.float64) / 3
    once, again = (gradient_norm_bound(ErmBatch.of(each), theta) for each in (problem, steep))
    assert (again == 4 * once).all()


def test_a_party_without_records_answers_with_what_its_noise_says() -> None:
    problem = declared_problem(Logistic(), perturbed=True)
    assert problem.linear is not None
    quiet = replace(problem, linear=problem.linear / 100)
    expected = -problem.linear[3] / 100 / (DECLARED[3] * problem.strong_convexity[3])
    torch.testing.assert_close(solve(quiet).theta[3], expected)
    assert (solve(declared_problem(Logistic())).theta[3] == 0).all()
    nobody = ErmProblem(
        features=torch.zeros((0, 3)),
        labels=torch.zeros(0),
        offsets=torch.tensor([0, 0, 0]),
        loss=HuberHinge(smoothing=0.5),
        regulariser=0.1,
        counts=torch.tensor([5, 6]),
    )
    assert (solve(nobody).theta == 0).all()


@pytest.mark.parametrize("perturbed", [False, True])
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_declaring_the_true_numbers_changes_no_bit(loss: Loss, perturbed: bool) -> None:
    if perturbed and loss == SQUARED:
        return
    for d in (3, 60):
        problem = make_problem(loss, [9, 30, 4, 30], d, perturbed=perturbed)
        same = replace(problem, counts=problem.sizes)
        assert (solve(problem).theta == solve(same).theta).all()


def test_many_more_records_than_declared_are_solved_and_stay_within_the_public_radius() -> None:
    """A hundred times as many: the objective is as much steeper, and the minimiser longer."""
    for loss in (Logistic(), HuberHinge(smoothing=0.01), HuberRegression(threshold=0.3)):
        problem = make_problem(loss, [500], 3, kind="separable", regulariser=0.05)
        crowded = replace(problem, counts=torch.tensor([5]))
        solution = solve(crowded, tolerance=1e-6)
        assert float(solution.theta.norm()) <= float(crowded.radius)


@pytest.mark.parametrize("loss", [Logistic(), HuberHinge(smoothing=0.2), Softmax(classes=3)])
def test_a_record_that_joins_moves_a_minimiser_by_half_of_what_replacing_one_may(
    loss: Loss,
) -> None:
    """‖θ - θ′‖ ≤ G/(nλ) + 2·tolerance/λ for any two that differ in one record, n declared."""
    lam, n, tolerance = 0.5, 4, 1e-9
    replaced = minimiser_sensitivity(
        loss, feature_bound=1.0, records=float(n), strong_convexity=lam, tolerance=0.0
    )
    farthest = 0.0
    for seed in range(20):
        records = make_problem(loss, [2 * n], 2, kind="separable", regulariser=lam, seed=seed)
        # One party of none, one of the first record, one of the first two, and so on.
        rows = [i for true in range(2 * n + 1) for i in range(true)]
        stairs = replace(
            records,
            features=records.features[rows],
            labels=records.labels[rows],
            offsets=torch.tensor([0, *np.cumsum(range(2 * n + 1))]),
            counts=torch.full((2 * n + 1,), n),
        )
        theta = solve(stairs, tolerance=tolerance).theta.flatten(1)
        farthest = max(farthest, float(torch.linalg.vector_norm(theta.diff(dim=0), dim=1).max()))
    assert farthest <= replaced / 2 + 2 * tolerance / lam
    assert farthest > 0.3 * replaced / 2
