"""The first multi-party scheme: average the parties' minimisers, noise for the smallest party.

    θ ← (1/m)Σ θ_j + b,    b for a sensitivity of 2G/(n₍₁₎·λ)

Pathak, Rane and Raj 2010. Its analysis overlooks that averaging divides the sensitivity by m, so it
adds m times the noise that output perturbation with equal weights needs. A baseline.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal

from fedpriv.federation.queries.local_noise import rescaled, sensitivity_of
from fedpriv.privacy.unit import Unit
from fedpriv.strategies import non_private
from fedpriv.strategies.common.averaging import FitOptions, ModelOptions, RuledOptions
from fedpriv.strategies.common.building import Setup, StrategyInfo
from fedpriv.strategies.common.plans.minimiser_plans import (
    plan_output,
    regularised,
    with_ruled_regulariser,
)
from fedpriv.strategies.output_perturbation import OutputPerturbation

if TYPE_CHECKING:
    from fedpriv.federation.federation import Sum
    from fedpriv.federation.strategy.base import SumStrategy
    from fedpriv.privacy.planning.fixed_plan import FixedPlan


class PathakOptions(FitOptions, RuledOptions):
    """Options of the scheme of Pathak et al.

    Attributes:
        law: Distribution of the noise; "auto" is Gaussian if δ > 0, else l2-laplace.
    """

    law: Literal["auto", "gaussian", "l2-laplace", "l1-laplace", "unsound-laplace"] = "auto"


class Pathak(OutputPerturbation):
    """Output perturbation with equal weights and m times its noise."""

    name: ClassVar[str] = "pathak"

    def _sensitivity(self, answer: Sum) -> float:
        return len(answer.sizes) * super()._sensitivity(answer)


INFO = StrategyInfo(
    name=Pathak.name,
    summary="baseline: average of minimisers, with noise for the smallest party alone",
    noise_by="server",
    asks=("erm",),
    convex_only=True,
    options=PathakOptions,
    units=(Unit.RECORD, Unit.PERSON),
    follows_budget=lambda options: options.regulariser != "model",
)


def build(setup: Setup, options: PathakOptions) -> SumStrategy:
    """The strategy, planned within its budget; without noise it is `non_private`, weights equal."""

    def planned(setup: Setup) -> FixedPlan:
        tolerance = options.gradient_norm(setup.task)
        return plan_output(setup, law=options.law, weights="equal", tolerance=tolerance)

    def ruled(setup: Setup) -> Setup:
        return with_ruled_regulariser(setup, plan=planned, draws=setup.task.parties**2)

    setup = regularised(setup, options.regulariser, rule=ruled)
    if setup.noise_free:
        equal = ModelOptions(tolerance=options.tolerance, weights="equal")
        return non_private.build(setup, equal)
    task, plan = setup.task, planned(setup)
    (mechanism,) = plan.mechanisms
    claimed = rescaled(mechanism, sensitivity=task.parties * sensitivity_of(mechanism))
    return Pathak(
        task=task,
        plan=replace(plan, strategy=Pathak.name, mechanisms=(claimed,)),
        weights="equal",
        tolerance=options.gradient_norm(task),
        run=setup.run,
    )
