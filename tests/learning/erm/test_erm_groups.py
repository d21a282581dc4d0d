"""Minimisers of sums over groups of records, each counted as its mean: those of a person.

Against the definition in 40 digits: the objective, the certificate, and how far a group moves it.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import mpmath
import numpy as np
import pytest
import torch

from fedpriv.learning.erm.batch import ErmBatch
from fedpriv.learning.erm.certificate import certain_tolerance, gradient_norm_bound
from fedpriv.learning.erm.sensitivity import minimiser_sensitivity
from fedpriv.learning.erm.solver import solve
from fedpriv.learning.losses import HuberHinge, Logistic, Softmax
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

    from fedpriv.learning.erm.problem import ErmProblem
    from fedpriv.learning.losses import Loss

LIPSCHITZ = [loss for loss in LOSSES if loss != SQUARED]
TOLERANCE = 1e-8
# The records of every group: three parties, one of them with none.
GROUPS = [[1, 7, 3], [], [2, 40, 1, 1]]
DECLARED = [3, 2, 7]


def grouped_problem(loss: Loss, *, d: int = 3, perturbed: bool = False) -> ErmProblem:
    sizes = [size for party in GROUPS for size in party]
    rng = np.random.default_rng(0)
    records = make_problem(loss, [sum(sizes)], d, regulariser=0.05)
    shape = (len(GROUPS), loss.outputs, d) if loss.outputs > 1 else (len(GROUPS), d)
    return replace(
        records,
        offsets=torch.tensor([0, *np.cumsum([sum(party) for party in GROUPS])]),
        groups=torch.tensor([0, *np.cumsum(sizes)]),
        counts=torch.tensor(DECLARED),
        linear=torch.from_numpy(3 * rng.normal(size=shape)) if perturbed else None,
    )


def exact_norm(problem: ErmProblem, theta: Tensor, j: int) -> float:
    """‖(1/n_j)Σ_groups mean ∇f + Λθ + b/n_j‖ from the definition, in 40 digits."""
    assert problem.groups is not None
    with mpmath.workdps(40):
        count, k = int(problem.divisors[j]), problem.loss.outputs
        point = [[mpmath.mpf(v) for v in row] for row in theta.reshape(k, -1).tolist()]
        total = [[mpmath.mpf(problem.strong_convexity[j].item()) * v for v in row] for row in point]
        if problem.linear is not None:
            for row, more in zip(total, problem.linear[j].reshape(k, -1).tolist(), strict=True):
                for c, b in enumerate(more):
                    row[c] += mpmath.mpf(b) / count
        first, last = int(problem.offsets[j]), int(problem.offsets[j + 1])
        bounds = [place for place in problem.groups.tolist() if first <= place <= last]
        for start, stop in pairwise(bounds):
            for i in range(start, stop):
                x = [mpmath.mpf(v) for v in problem.features[i].tolist()]
                scores = [mpmath.fdot(row, x) for row in point]
                slopes = exact_slope(problem.loss, scores, problem.labels[i].item())
                for row, slope in zip(total, slopes, strict=True):
                    for c, value in enumerate(x):
                        row[c] += slope * value / (stop - start) / count
        return float(mpmath.sqrt(sum(v**2 for row in total for v in row)))


@pytest.mark.parametrize("perturbed", [False, True])
@pytest.mark.parametrize("loss", LIPSCHITZ, ids=repr)
def test_every_form_minimises_the_mean_over_groups_of_means(loss: Loss, perturbed: bool) -> None:
    problem = grouped_problem(loss, perturbed=perturbed)
    for form in forms_of(loss):
        theta = solve_in(form, problem)
        for j in range(len(GROUPS)):
            assert exact_norm(problem, theta[j], j) <= TOLERANCE


@pytest.mark.parametrize("d", [2, 60])
@pytest.mark.parametrize("loss", LIPSCHITZ, ids=repr)
def test_a_certificate_of_groups_holds_in_exact_arithmetic(loss: Loss, d: int) -> None:
    problem = grouped_problem(loss, d=d)
    solution = solve(problem, tolerance=TOLERANCE)
    bounds = solution.certificate.gradient_norm
    assert bool((bounds <= TOLERANCE).all())
    inside = torch.linalg.vector_norm(solution.theta.flatten(1), dim=1) < 0.999 * problem.radius
    for j in inside.nonzero().squeeze(1).tolist():  # others were projected
        assert exact_norm(problem, solution.theta[j], j) <= bounds[j]


@pytest.mark.parametrize("loss", LIPSCHITZ, ids=repr)
def test_the_bound_on_the_gradient_norm_holds_at_any_point_and_is_tight(loss: Loss) -> None:
    problem = grouped_problem(loss, d=5, perturbed=True)
    theta = torch.from_numpy(np.random.default_rng(1).normal(size=(3, loss.outputs, 5)))
    bounds = gradient_norm_bound(ErmBatch.of(problem), theta)
    for j in range(3):
        exact = exact_norm(problem, theta[j], j)
        assert exact <= bounds[j] <= exact * (1 + 1e-9)


@pytest.mark.parametrize("loss", LIPSCHITZ, ids=repr)
def test_groups_of_one_and_copies_within_a_group_change_nothing(loss: Loss) -> None:
    """A person with four copies of one record is one with a single record: nobody counts more."""
    problem = make_problem(loss, [9, 30], 4)
    alone = replace(problem, groups=torch.arange(40))
    copies = torch.arange(39).repeat_interleave(4)
    copied = replace(
        problem,
        features=problem.features[copies],
        labels=problem.labels[copies],
        offsets=4 * problem.offsets,
        groups=4 * torch.arange(40),
    )
    expected = solve(problem).theta
    torch.testing.assert_close(solve(alone).theta, expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(solve(copied).theta, expected, atol=1e-6, rtol=0)
    assert copied.divisors.tolist() == [9, 30]


def test_the_certain_tolerance_of_persons_is_reached_with_the_most_records() -> None:
    """Twice the declared number of groups, each of k records, all alike and as steep as can be."""
    for loss in (Logistic(), HuberHinge(smoothing=0.5)):
        n, k, d = 20, 8, 4
        tolerance = certain_tolerance(
            loss, feature_bound=1.0, strong_convexity=1e-3, records=n * k, features=d, headroom=2.0
        )
        records = make_problem(loss, [2 * n * k], d, kind="separable", regulariser=1e-3)
        crowded = replace(
            records, groups=torch.arange(0, 2 * n * k + 1, k), counts=torch.tensor([n])
        )
        assert solve(crowded, tolerance=tolerance).certificate.tolerance == tolerance


@pytest.mark.parametrize("loss", [Logistic(), HuberHinge(smoothing=0.2), Softmax(classes=3)])
def test_a_group_moves_a_minimiser_no_further_than_one_record(loss: Loss) -> None:
    """All of k records join at once: G/(nλ), where one by one they would move it k times as far."""
    lam, n, k, tolerance = 0.5, 4, 5, 1e-9
    facts = {"feature_bound": 1.0, "records": float(n), "strong_convexity": lam}
    joined = minimiser_sensitivity(loss, **facts, tolerance=0.0, changes=1)
    farthest = summed = 0.0
    for seed in range(20):
        records = make_problem(loss, [k * n], 2, kind="separable", regulariser=lam, seed=seed)
        rows = [i for true in range(n + 1) for i in range(k * true)]
        stairs = replace(
            records,
            features=records.features[rows],
            labels=records.labels[rows],
            offsets=torch.tensor([0, *np.cumsum([k * true for true in range(n + 1)])]),
            groups=torch.arange(0, len(rows) + 1, k),
            counts=torch.full((n + 1,), n),
        )
        one_by_one = replace(stairs, groups=None)
        for problem in (stairs, one_by_one):
            theta = solve(problem, tolerance=tolerance).theta.flatten(1)
            moved = float(torch.linalg.vector_norm(theta.diff(dim=0), dim=1).max())
            if problem is stairs:
                farthest = max(farthest, moved)
            else:
                summed = max(summed, moved)
    assert 0.3 * joined < farthest <= joined + 2 * tolerance / lam
    assert summed > joined  # records that count one by one are found out


@pytest.mark.parametrize(
    ("groups", "rule"),
    [
        ([0, 2, 2, 6], "increase from 0"),
        ([0, 2, 5], "increase from 0"),
        ([1, 6], "increase from 0"),
        ([0, 2, 6], "begin and end with parties"),
        ([[0, 6]], "vector of integers"),
        ([0.0, 6.0], "vector of integers"),
    ],
)
def test_groups_that_are_none_are_refused(groups: list[float], rule: str) -> None:
    problem = make_problem(Logistic(), [3, 3], 2)
    with pytest.raises(ValueError, match=rule):
        replace(problem, groups=torch.tensor(groups))
