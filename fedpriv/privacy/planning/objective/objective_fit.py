"""Objective perturbation with a noisy Hessian beside it: for intervals of a logistic fit.

One release of three parts: the minimiser of the perturbed objective; the noise on it, which hides
the solver; and the Hessian at the released point, with Gaussian noise. The second and the third are
Gaussian, the third depending on the first two, so that together they are μ-GDP with
μ² = μ_o² + μ_H². By `ObjectiveProfile.delta_beside` the whole is (ε, δ)-DP if

    E_Z h̄(ε - μ²/2 - μZ) ≤ δ,   Z ~ N(0, 1),

h̄ being the profile of the perturbed objective: the least σ of b for which that holds is what
`objective_rules.gaussian_rule` finds, for μ² a fixed share of the sum of squares.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt
from typing import TYPE_CHECKING, ClassVar

from fedpriv._validate import require_open_unit, require_positive
from fedpriv.privacy.mechanisms import GaussianMechanism
from fedpriv.privacy.planning.objective.objective import ObjectiveMechanism
from fedpriv.privacy.planning.objective.objective_rules import solver_mu

if TYPE_CHECKING:
    from fedpriv.privacy.planning.objective.objective import ObjectiveNoise
    from fedpriv.privacy.planning.objective.objective_rules import ObjectiveProblem

HESSIAN_SHARE = 0.15
"""Share of the squared μ: the standard errors suffer little from a noisy Hessian."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveFitMechanism(ObjectiveMechanism):
    """What a fit with intervals adds: b, Δ, noise on the solution, and noise on its Hessian.

    Guarantee. The solution with ``output`` noise, together with the Hessian at that very point with
    ``hessian`` noise, is (``epsilon``, ``delta``)-DP.

    Attributes:
        hessian: The noise on the scaled upper triangle of the Hessian.
    """

    name: ClassVar[str] = "objective-fit"
    hessian: GaussianMechanism


def with_hessian(noise: ObjectiveNoise, *, share: float = HESSIAN_SHARE) -> ObjectiveNoise:
    """The same budget, with ``share`` of the squared μ set apart in addition to the solver's."""
    require_open_unit(share=share, together=share + noise.solver_share)
    if noise.law != "gaussian":
        raise ValueError(
            f"law must be 'gaussian' for a fit with intervals, got {noise.law!r}: they follow from "
            "normal noise. Give privacy.delta a positive number."
        )
    return replace(noise, solver_share=noise.solver_share + share)


def objective_fit(
    noise: ObjectiveNoise,
    problem: ObjectiveProblem,
    *,
    step: float,
    sensitivity: float,
    share: float = HESSIAN_SHARE,
) -> ObjectiveFitMechanism:
    """The noise of the whole release within the budget of ``noise``.

    Args:
        noise: The budget; its ``solver_share`` is the solver's alone.
        problem: The facts of the objective.
        step: The grid step of the solution.
        sensitivity: How far one record moves the scaled triangle of the Hessian in L2, its grid
            included.
        share: The Hessian's share of the squared μ.
    """
    require_positive(sensitivity=sensitivity)
    beside = with_hessian(noise, share=share)
    whole = beside.mechanism(problem, step=step)
    linear, output = whole.linear, whole.output
    if not isinstance(linear, GaussianMechanism) or not isinstance(output, GaussianMechanism):
        raise TypeError("the Gaussian law has Gaussian noise.")
    mu = solver_mu(linear.sensitivity / linear.stddev, share=beside.solver_share)
    parts = {
        name: mu * sqrt(part / beside.solver_share)
        for name, part in (("output", noise.solver_share), ("hessian", share))
    }
    return ObjectiveFitMechanism(
        adjacency=whole.adjacency,
        unit=whole.unit,
        epsilon=whole.epsilon,
        delta=whole.delta,
        linear=linear,
        extra_regulariser=whole.extra_regulariser,
        output=replace(output, stddev=output.sensitivity / parts["output"]),
        hessian=GaussianMechanism(
            sensitivity=sensitivity,
            stddev=sensitivity / parts["hessian"],
            adjacency=whole.adjacency,
            unit=whole.unit,
        ),
    )
