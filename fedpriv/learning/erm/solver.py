"""Certified minimisers of the local problems of many parties: the ERM solver.

Parties are solved together, in groups that fit the memory limit and the cache, each group in the
coordinates that pay for its n, d and k. Guarantees:

- *Certified*: every θ_j returned comes with a bound ‖∇J_j‖₂ ≤ tolerance that counts its own
  rounding errors; if one party cannot get there, nothing is returned.
- *Deterministic*: no randomness; the same input on the same machine, build and number of threads
  gives the same bits. In every other setting, other groups or threads included, two certified
  answers to one problem lie within 2·tolerance/Λ of one another, by strong convexity.
- *Isolated*: the grouping of parties and the method depend only on their numbers of records. If
  these are unchanged, no record changes a bit of another party's answer. If they change, that
  answer moves by at most 2·tolerance/Λ.
"""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from fedpriv._validate import require_count, require_positive
from fedpriv.learning.erm.batch import ErmBatch
from fedpriv.learning.erm.certificate import (
    Certificate,
    ToleranceNotReachedError,
    gradient_norm_bound,
    project,
)
from fedpriv.learning.erm.newton import newton
from fedpriv.learning.erm.spaces import DualSpace, KrylovSpace, PrimalSpace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fedpriv.learning.erm.problem import ErmProblem

Form = type[PrimalSpace] | type[KrylovSpace] | type[DualSpace]

# Beyond this many coordinates, factors cost more than conjugate gradients.
_LARGEST_FACTOR = 512
# Parties of one dual group differ in size by no more than this factor: bounds the filling.
_SIZE_SPREAD = 1.25


class Solution(NamedTuple):
    """Minimisers (m, d), or (m, k, d) for k classes, projected to ‖θ_j‖ ≤ G/Λ_j; and the proof."""

    theta: Tensor
    certificate: Certificate


def solve(
    problem: ErmProblem,
    *,
    tolerance: float = 1e-8,
    max_iterations: int = 1000,
    memory_limit: int = 32 * 2**20,
) -> Solution:
    """Minimise every J_j to a certified gradient norm, then project to ‖θ_j‖₂ ≤ G/Λ_j.

    With more than n_j records a minimiser can be longer than that; the projection keeps the answer
    within bounds that are public, and as it is 1-Lipschitz, no record moves it by more.

    Args:
        problem: The parties' problems.
        tolerance: The bound on ‖∇J_j‖₂ to certify.
        max_iterations: Newton steps before a party gives up.
        memory_limit: Bytes of working memory, about. Parties are grouped to stay below it; a party
            that is larger alone is solved alone. Small is fast: it keeps a group in the cache.

    Raises:
        ToleranceNotReachedError: A party has no certified minimiser; nothing is returned.
    """
    require_positive(tolerance=tolerance)
    require_count(max_iterations=max_iterations, memory_limit=memory_limit)
    shape = (problem.parties, problem.loss.outputs, problem.features.shape[1])
    theta = torch.empty(shape, dtype=torch.float64)
    norm = torch.empty(problem.parties, dtype=torch.float64)
    iterations = torch.empty(problem.parties, dtype=torch.int64)
    # Half of the tolerance is left to rounding errors; a target below an ulp of G gains nothing.
    target = max(tolerance / 2, 2.0**-52 * problem.lipschitz)
    for parties, form in _groups(problem, tolerance, memory_limit):
        batch = ErmBatch.of(problem, parties, whole=form is DualSpace)
        space = form.of(batch)
        coordinates, iterations[parties] = newton(
            space, target=target, max_iterations=max_iterations
        )
        theta[parties] = space.theta(coordinates)
        norm[parties] = gradient_norm_bound(batch, theta[parties])
    failed = (~(norm <= tolerance)).nonzero().squeeze(1)  # NaN fails as well
    if len(failed):
        raise ToleranceNotReachedError(tolerance, tuple(failed.tolist()))
    projected = project(theta, problem.radius)
    certificate = Certificate(
        gradient_norm=norm,
        tolerance=tolerance,
        iterations=iterations,
        sensitivity=problem.sensitivity(tolerance),
        radius=problem.radius,
    )
    return Solution(projected if problem.loss.outputs > 1 else projected.squeeze(1), certificate)


def _groups(
    problem: ErmProblem, tolerance: float, memory_limit: int
) -> Iterator[tuple[Tensor, Form]]:
    """Parties to solve together, and in which coordinates."""
    sizes, d = problem.sizes, problem.features.shape[1]
    one_score = problem.loss.outputs == 1
    dual = (sizes < min(d, _LARGEST_FACTOR + 1)) & one_score & _dual_is_accurate(problem, tolerance)
    form = PrimalSpace if one_score and d <= _LARGEST_FACTOR else KrylovSpace
    chosen = (~dual).nonzero().squeeze(1)
    need = 16 * sizes[chosen] * d + (32 * d**2 if form is PrimalSpace else 0)
    for group in _runs(need, memory_limit):
        yield chosen[group], form
    chosen = dual.nonzero().squeeze(1)
    chosen = chosen[sizes[chosen].argsort(stable=True)]  # similar sizes together: little padding
    need = 16 * sizes[chosen] * d + 32 * sizes[chosen] ** 2
    size_class = (sizes[chosen].clamp(min=1).log() / log(_SIZE_SPREAD)).floor()
    for group in _runs(need, memory_limit, size_class):
        yield chosen[group], DualSpace


def _dual_is_accurate(problem: ErmProblem, tolerance: float) -> Tensor:
    """Where rounding in dual coordinates stays well below the tolerance.

    Opposing records have large α of opposite signs, Σ|α| ≤ rG/(ΛB), with r the true number of
    records, or of groups, over n: scores Kα are off by up to γ·B·rG/Λ, and slopes by c times that.
    The scores of -b/(nΛ) are off by γ_d·B·‖b‖/(nΛ) more. In the mean over n all of it counts r
    times.
    """
    excess = problem.members.to(torch.float64) / problem.divisors
    worst = problem.sizes * problem.radius * excess
    if problem.linear is not None:
        length = torch.linalg.vector_norm(problem.linear.flatten(1), dim=1, dtype=torch.float64)
        shift = length / (problem.divisors * problem.strong_convexity)
        worst = worst + problem.features.shape[1] * shift
    curvature = problem.loss.smoothness_for(problem.feature_bound)
    return 2.0**-53 * curvature * worst * excess.clamp(min=1) <= tolerance / 4


def _runs(need: Tensor, limit: int, kind: Tensor | None = None) -> Iterator[slice]:
    """Cut 0 … len-1 into runs of one kind whose needs add up to the limit, or of one member."""
    total = need.cumsum(0)
    start = 0
    while start < len(need):
        spent = int(total[start] - need[start])
        end = int(torch.searchsorted(total, spent + limit, right=True))
        if kind is not None:
            end = min(end, int(torch.searchsorted(kind, kind[start], right=True)))
        end = max(end, start + 1)
        yield slice(start, end)
        start = end
