"""Adversaries, who see a release and know all records but one: how they guess that one.

Each turns one run into one number, large where the first neighbour is more likely. By Neyman and
Pearson no test tells two neighbours apart better than the likelihood ratio, and an adversary who
knows both tables can compute it:

- of **releases**, noisy sums one after another: Σ over the rounds of the log-likelihood ratio of
  the noise, given the point at which the round was asked. The exact sums of both tables at that
  point come from the same engine. It sees every release: what a ledger stores and what a party is
  asked next. That is the adversary of composition theorems.
- of a **perturbed objective**: a minimiser tells b, up to the solver's tolerance, since the
  gradient vanishes there. The Jacobian is left out: its part is at most ln(1 + β/(nΛ)).
- of the **model** alone: its inner product with the direction in which the canary moves it, which
  is found by pairs of runs with equal noise, apart from those that count. It sees
  what a user of model.npz sees, and is all there is for strategies of which no more is known here.
"""

from __future__ import annotations

from dataclasses import replace
from math import log1p
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fedpriv.federation.queries.bounds import finest_grid
from fedpriv.federation.queries.kinds import (
    ErmQuery,
    GradientQuery,
    LocalTrainingQuery,
    MomentsQuery,
    RiskGradientQuery,
)
from fedpriv.federation.strategy.joint import JointStrategy
from fedpriv.privacy.mechanisms import L2LaplaceMechanism
from fedpriv.privacy.planning.objective.objective import ObjectiveMechanism
from fedpriv.simulations.audit.noise import (
    INDEPENDENT_LAPLACE,
    NoiseSeen,
    noise_found,
    noise_of,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedpriv.federation.queries.kinds import Query
    from fedpriv.federation.task import Task
    from fedpriv.privacy.mechanisms import Mechanism
    from fedpriv.simulations.audit.repetition import Seen, Side

    Vector = NDArray[np.float64]

_SUMS = (GradientQuery, LocalTrainingQuery, MomentsQuery)
_PILOTS = 16


class Adversary(Protocol):
    """Tells two neighbours apart."""

    @property
    def sees(self) -> str:
        """What it sees, in words."""

    def statistic(self, side: Side, repetition: int) -> float:
        """One run on one of the sides, as a number that is larger on the first."""

    def noise_found(self) -> tuple[int | None, str]:
        """How many noise values it checked in these runs, and what is wrong with them."""


def adversary(first: Side, second: Side, *, model_only: bool = False) -> Adversary:
    """The strongest adversary known for a strategy; or the one who sees only the model."""
    if model_only:
        return OfModel(first, second)
    if perturbs_the_objective(first):
        return OfObjective(first, second)
    return OfReleases(first, second) if sums_are_released(first) else OfModel(first, second)


def sums_are_released(side: Side) -> bool:
    """Whether every release is a noisy sum, with noise that is fixed beforehand."""
    query, plan = side.first_query(), side.plan
    additive = isinstance(query, _SUMS) or (isinstance(query, ErmQuery) and query.objective is None)
    # The exchanges of a tuning are those of its trials, none of which is released.
    shown = not side.pristine.concealed
    return additive and shown and 0 < len(plan.mechanisms) == plan.rounds


def perturbs_the_objective(side: Side) -> bool:
    """Whether one minimiser of all records is released, of an objective with a random term."""
    mechanisms = side.plan.mechanisms
    return isinstance(side.pristine, JointStrategy) and isinstance(
        mechanisms[0], ObjectiveMechanism
    )


class OfReleases:
    """The likelihood ratio of noisy sums, round by round."""

    sees = "every release"

    def __init__(self, first: Side, second: Side) -> None:
        self._first, self._second = first, second
        self._noise = {side: NoiseSeen(side) for side in (first, second)}

    def statistic(self, side: Side, repetition: int) -> float:
        """Σ of the log-likelihood ratios of the releases of one run."""
        total = 0.0

        def watch(seen: Seen) -> None:
            nonlocal total
            if seen.release is not None:
                total += self._ratio(seen, side)

        side.run(repetition, watch)
        self._noise[side].end_run()
        return total

    def noise_found(self) -> tuple[int | None, str]:
        """Of both sides."""
        return noise_found(self._noise.values())

    def _ratio(self, seen: Seen, side: Side) -> float:
        query, task = seen.query, side.prepared.task
        noisy = noisy_sum(seen, task)
        there, whole = self._second.exact(query), unsampled(query)
        here = self._first.exact(query) if whole is query or side is self._first else there
        self._noise[side].see(seen, noisy, there if side is self._second else here)
        shift = (
            here - there if whole is query else self._first.exact(whole) - self._second.exact(whole)
        )
        mechanism = self._first.plan.mechanisms[query.round]
        scale = noise_of(mechanism, parties=task.parties)
        ratio = log_ratio(mechanism, noisy - there[: noisy.size], shift[: noisy.size], scale)
        rate = query.sampling_rate
        if rate == 1:
            return ratio
        # The canary's coin is hidden; all other coins are known.
        return log1p(rate * np.expm1(min(ratio, 500.0)))


class OfObjective:
    """b, as the minimiser of a perturbed objective reveals it."""

    sees = "the released minimiser"

    def __init__(self, first: Side, second: Side) -> None:
        self._first, self._second = first, second
        self._noise = {side: NoiseSeen(side) for side in (first, second)}

    def statistic(self, side: Side, repetition: int) -> float:
        """The log-likelihood ratio of b under the two tables, without the Jacobian."""
        strategy = side.pristine
        theta = side.run(repetition, lambda _seen: None)
        mechanism = side.plan.mechanisms[0]
        if not isinstance(mechanism, ObjectiveMechanism):
            raise TypeError(f"the plan must perturb the objective, got {mechanism.name!r}.")
        pull = strategy.task.records * (strategy.task.regulariser + mechanism.extra_regulariser)
        query = risk_gradients(theta, strategy.task, side)
        here, there = (each.exact(query) for each in (self._first, self._second))
        term = -((here if side is self._first else there) + pull * theta)
        self._noise[side].see_linear_term(mechanism.linear, term)
        self._noise[side].end_run()
        b = -(there + pull * theta)  # if it was the second
        return log_ratio(mechanism.linear, b, here - there, mechanism.noise_stddev)

    def noise_found(self) -> tuple[int | None, str]:
        """Of the random terms; noise on the minimiser itself is small beside them."""
        return noise_found(self._noise.values())


class OfModel:
    """The last model along the direction in which the canary changes it."""

    sees = "the last model"

    def __init__(self, first: Side, second: Side) -> None:
        moved = [
            first.run(number, _blind, stage="pilot") - second.run(number, _blind, stage="pilot")
            for number in range(_PILOTS)
        ]
        self._direction = np.mean(moved, axis=0)

    def statistic(self, side: Side, repetition: int) -> float:
        """⟨θ, direction⟩."""
        return float(side.run(repetition, _blind) @ self._direction)

    def noise_found(self) -> tuple[int | None, str]:
        """It sees none."""
        return None, ""


def _blind(_seen: Seen) -> None:
    """Who sees only the model."""


def noisy_sum(seen: Seen, task: Task) -> Vector:
    """The noisy sum that a release was made of: strategies divide it by public numbers."""
    query, release = seen.query, seen.release
    if release is None:
        raise ValueError("nothing was released in this exchange.")
    match query:
        case LocalTrainingQuery():
            each = query.total_weight(task) / (query.clip_norm or 1.0)
            return release[: task.dimension] * each
        case GradientQuery():
            return release * (query.sampling_rate * task.gradient_count(query.weights, seen.sizes))
        case MomentsQuery():
            return release * (query.sampling_rate * sum(seen.sizes))
        case ErmQuery() if sorted(seen.sizes) != sorted(task.sizes):
            return release * sum(task.model_weight(query.weights, size) for size in seen.sizes)
    return release


def unsampled(query: Query) -> Query:
    """The same question to everybody; itself, if it is to everybody."""
    if query.sampling_rate == 1:
        return query
    key = "party_rate" if isinstance(query, LocalTrainingQuery) else "sampling_rate"
    changed: dict[str, Any] = {key: 1.0, "event": None}
    return replace(query, **changed)


def log_ratio(mechanism: Mechanism, noise: Vector, shift: Vector, scale: float) -> float:
    """ln p(noise - shift) - ln p(noise), for noise of a law with this standard deviation."""
    moved = noise - shift
    match mechanism:
        case L2LaplaceMechanism():
            lengths = np.linalg.norm(noise), np.linalg.norm(moved)
            return float((lengths[0] - lengths[1]) * np.sqrt(noise.size + 1) / scale)
        case _ if isinstance(mechanism, INDEPENDENT_LAPLACE):
            sums = np.abs(noise).sum(), np.abs(moved).sum()
            return float((sums[0] - sums[1]) * np.sqrt(2) / scale)
    return float((noise @ noise - moved @ moved) / (2 * scale**2))


def risk_gradients(theta: Vector, task: Task, side: Side) -> RiskGradientQuery:
    """Exact sums of gradients at a point, as a joint fit asks for them."""
    room = 4.0
    bound = room * task.records * task.gradient_bound(theta)
    return RiskGradientQuery(
        run=side.prepared.run,
        round=0,
        grid=finest_grid(bound=bound),
        event=None,
        theta=theta,
        exchange=0,
        headroom=room,
    )
