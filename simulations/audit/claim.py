"""What a plan claims, as an audit measures it: how well any test may tell two neighbours apart.

A plan of Gaussian releases claims μ-GDP, and with it a whole trade-off curve. Other plans claim
points (ε, δ) of one: what their accountant proves at several δ, or the profile of a perturbed
objective. Between these points a test may legitimately show a larger μ than that of the budget's
point. So measurements are compared with the curve, not with that μ.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import hypot
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtri

from fedpriv.federation.queries.bounds import objective_problem
from fedpriv.privacy.accountants import UnsupportedEvent, account
from fedpriv.privacy.gaussian import gdp_mu
from fedpriv.privacy.mechanisms import (
    DiscreteGaussianMechanism,
    GaussianMechanism,
    SkellamMechanism,
)
from fedpriv.privacy.mechanisms.shares import SharedNoise
from fedpriv.privacy.objective_profile import ObjectiveProfile, jacobian_cost
from fedpriv.privacy.planning.objective.objective import ObjectiveMechanism
from fedpriv.privacy.planning.objective.objective_fit import ObjectiveFitMechanism
from fedpriv.privacy.tradeoff import tradeoff_curve

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from fedpriv.federation.task import Task
    from fedpriv.privacy.planning.plan import Plan

_BULK = np.linspace(0.02, 0.98, 97)  # false-alarm rates where enough runs lie to test a law
_DELTAS = (1e-8, 1e-6, 1e-4, 1e-3, 1e-2, 0.05, 0.1, 0.2)
_NORMAL = (GaussianMechanism, DiscreteGaussianMechanism, SkellamMechanism, SharedNoise)
_EPSILONS = np.linspace(0, 1, 24)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A claim.

    Attributes:
        epsilon: Of the plan.
        delta: The same.
        mu: Of Gaussian differential privacy, as stated, or as (ε, δ) would have it; None for δ = 0.
        limit: The largest shift of normal statistics that is within the claim: the stated μ, or the
            least that contradicts some point between false-alarm rates of 2 % and 98 %. Farther
            out no number of runs here would show whether statistics are normal.
        gaussian: Whether every release is of everybody, with noise that is Gaussian or, being a sum
            of integers, hardly differs: statistics are then normal.
        exact: Whether ``mu`` is stated.
        points: The (ε, δ) that are claimed.
    """

    epsilon: float
    delta: float
    mu: float | None
    limit: float
    gaussian: bool
    exact: bool
    points: tuple[tuple[float, float], ...]

    def allows(self, *, true_positives: float, false_positives: float) -> bool:
        """Whether the claim allows a test with these rates."""
        if self.exact and self.mu is not None:
            return bool(ndtri(true_positives) - ndtri(false_positives) <= self.mu)
        return bool(1 - true_positives >= _missed(np.array([false_positives]), self.points)[0])


def claim_of(plan: Plan, task: Task) -> Claim:
    """What a plan claims of a problem."""
    epsilon, delta = plan.epsilon, plan.budget.delta
    stated = plan.gdp_mu
    mu = stated if stated is not None else gdp_mu(epsilon=epsilon, delta=delta) if delta else None
    points = ((epsilon, delta), *_more(plan, task))
    laws = [m.linear if isinstance(m, ObjectiveMechanism) else m for m in plan.mechanisms]
    normal = bool(laws) and all(isinstance(law, _NORMAL) for law in laws)
    shown = ndtri(1 - _missed(_BULK, points)) - ndtri(_BULK)
    return Claim(
        epsilon=epsilon,
        delta=delta,
        mu=mu,
        limit=float(np.min(shown)) if stated is None else stated,
        gaussian=normal and plan.least_rate == 1,
        exact=stated is not None,
        points=points,
    )


def _missed(
    alarms: NDArray[np.float64], points: Sequence[tuple[float, float]]
) -> NDArray[np.float64]:
    """The least miss rate at each false-alarm rate, that all points together promise."""
    curves = [tradeoff_curve(alarms, epsilon=epsilon, delta=delta) for epsilon, delta in points]
    return np.asarray(np.max(curves, axis=0))


def _more(plan: Plan, task: Task) -> Iterator[tuple[float, float]]:
    """Other points that the same plan is proved to have."""
    if plan.gdp_mu is not None or not plan.budget.delta:
        return
    mechanism = plan.mechanisms[0] if plan.mechanisms else None
    if isinstance(mechanism, ObjectiveMechanism):
        profile = _profile(mechanism, task, plan)
        if profile is not None:
            beside = _beside(mechanism)
            for share in _EPSILONS:
                epsilon = float(share) * plan.epsilon
                if (delta := profile.delta_beside(epsilon, mu=beside)) < 1:
                    yield epsilon, delta
        return
    for delta in _DELTAS:
        try:
            proved = account(plan.releases, delta=delta, accountant=plan.accountant).epsilon
        except (UnsupportedEvent, ValueError):
            continue
        if proved is not None:
            yield proved, delta


def _beside(mechanism: ObjectiveMechanism) -> float:
    """μ of the Gaussian noise on whatever is released with a minimiser, and on itself."""
    hessian = mechanism.hessian if isinstance(mechanism, ObjectiveFitMechanism) else None
    parts = (mechanism.output, hessian)
    return hypot(*(p.sensitivity / p.stddev for p in parts if isinstance(p, GaussianMechanism)))


def _profile(mechanism: ObjectiveMechanism, task: Task, plan: Plan) -> ObjectiveProfile | None:
    if not isinstance(mechanism.linear, GaussianMechanism) or plan.noise_at != "server":
        return None
    problem = objective_problem(task, task.records, regulariser=task.regulariser, tolerance=1.0)
    steep = problem.curvature / (problem.records * (task.regulariser + mechanism.extra_regulariser))
    k, p = problem.person_records, problem.person_parties
    return ObjectiveProfile(
        mu=problem.lipschitz / mechanism.linear.stddev,
        jacobian=jacobian_cost(steep, records=k, parties=p),
        one_sided=problem.one_sided,
        adjacency=mechanism.adjacency,
        records=k,
        parties=p,
    )
