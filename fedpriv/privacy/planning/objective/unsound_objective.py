"""Unsound objective perturbation: the textbook form, which omits the Jacobian; for study.

    b ~ N(0, σ²I), or density ∝ exp(-ε‖b‖/2G), for all of ε, as if the map from b to the minimiser
    were a shift; no part of ε pays for its Jacobian, and no Λ is added

The change of variables multiplies densities by up to 1 + c/(nΛ) (squared in the pure rule's proof):
what is claimed as ε costs about ε + ln(1 + c/(nΛ)), or ε + 2·ln(1 + c/(nΛ)). With many records or a
large Λ the difference is small, and with few it is most of the cost. The mechanism states the real
cost, by the theorems of `fedpriv.privacy.objective_profile` and of Chaudhuri et al. 2011.
"""

from __future__ import annotations

from dataclasses import replace
from math import log1p
from typing import TYPE_CHECKING

from fedpriv.privacy.mechanisms import GaussianMechanism
from fedpriv.privacy.objective_profile import ObjectiveProfile
from fedpriv.privacy.planning.objective.objective import UnsoundObjectiveMechanism
from fedpriv.privacy.planning.objective.objective_rules import solver_mu
from fedpriv.privacy.unit import Unit

if TYPE_CHECKING:
    from fedpriv.privacy.planning.objective.objective import ObjectiveMechanism, ObjectiveNoise
    from fedpriv.privacy.planning.objective.objective_rules import ObjectiveProblem

_NO_CURVATURE = 1e-300  # the curvature that the form assumes of a record


def unsound_mechanism(
    noise: ObjectiveNoise, problem: ObjectiveProblem, *, step: float
) -> UnsoundObjectiveMechanism:
    """The noise that the form needs for the ε of ``noise``, with the ε that it really costs."""
    if problem.person_records * problem.person_parties > 1 or noise.unit is not Unit.RECORD:
        raise ValueError(
            f"unit must be 'record' for law = 'unsound-objective', got {noise.unit.value!r}: its "
            "real cost is known for one record."
        )
    flat = replace(problem, curvature=_NO_CURVATURE)
    claimed = noise.mechanism(flat, step=step)
    return UnsoundObjectiveMechanism(
        adjacency=claimed.adjacency,
        unit=claimed.unit,
        epsilon=_cost(noise, problem, claimed),
        delta=claimed.delta,
        linear=claimed.linear,
        extra_regulariser=claimed.extra_regulariser,
        output=claimed.output,
    )


def _cost(noise: ObjectiveNoise, problem: ObjectiveProblem, claimed: ObjectiveMechanism) -> float:
    """ε of the release at its δ."""
    jacobian = log1p(problem.curvature / (problem.records * problem.regulariser))
    linear = claimed.linear
    if not isinstance(linear, GaussianMechanism):
        return noise.epsilon + 2 * jacobian
    profile = ObjectiveProfile(
        mu=problem.lipschitz / linear.stddev,
        jacobian=jacobian,
        one_sided=problem.one_sided,
        adjacency=noise.adjacency,
    )
    mu = solver_mu(linear.sensitivity / linear.stddev, share=noise.solver_share)
    epsilon = noise.epsilon + jacobian
    while profile.delta_beside(epsilon, mu=mu) > noise.delta:  # the solver's noise is beside it
        epsilon *= 1 + 1e-6
    return epsilon
