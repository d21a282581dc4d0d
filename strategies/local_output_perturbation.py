"""Local output perturbation: every party adds noise to its own minimiser.

    every party:  θ_j ← argmin J_j + b_j,    b_j for 2G/(n_j·λ)
    server:       θ   ← Σ w_jθ_j

Shows what output perturbation costs without a secure sum: for m parties of equal size, √m times the
noise. A baseline (Jayaraman et al. 2018).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal

from fedpriv.federation.queries.local_noise import LocalNoise
from fedpriv.privacy.unit import Unit
from fedpriv.secagg import FixedPoint
from fedpriv.strategies import non_private
from fedpriv.strategies.common.averaging import ModelOptions, RuledOptions, mean_model
from fedpriv.strategies.common.building import LOCAL_NOISE, Setup, StrategyInfo
from fedpriv.strategies.common.plans.minimiser_plans import (
    plan_output,
    regularised,
    with_ruled_regulariser,
)
from fedpriv.strategies.common.plans.plans import UNCERTIFIED, require_replace_one
from fedpriv.strategies.output_perturbation import OutputPerturbation

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fedpriv.federation.federation import Sum
    from fedpriv.federation.queries.kinds import ErmQuery
    from fedpriv.federation.strategy.base import SumStrategy
    from fedpriv.privacy.planning.fixed_plan import FixedPlan


class LocalOutputOptions(ModelOptions, RuledOptions):
    """Options of local output perturbation.

    Attributes:
        law: Distribution of the noise; "auto" is Gaussian if δ > 0, else l2-laplace.
    """

    law: Literal["auto", "gaussian", "l2-laplace", "l1-laplace", "unsound-laplace"] = "auto"


class LocalOutputPerturbation(OutputPerturbation):
    """The models arrive noisy; the server adds nothing."""

    name: ClassVar[str] = "local-output-perturbation"

    def _query(self) -> ErmQuery:
        return replace(
            super()._query(),
            grid=FixedPoint(step=self._plan.step, bits=64),  # room for heavy tails
            local=LocalNoise.like(self._plan.mechanisms[0]),
        )

    def _release(self, answer: Sum) -> NDArray[np.float64]:
        return mean_model(answer.value, self.task, self._weights, answer.sizes)


INFO = StrategyInfo(
    name=LocalOutputPerturbation.name,
    summary="baseline: every party adds noise to its own minimiser",
    noise_by="parties",
    asks=("erm",),
    convex_only=True,
    options=LocalOutputOptions,
    follows_budget=lambda options: options.regulariser != "model",
    because={Unit.PERSON: LOCAL_NOISE},
)


def build(setup: Setup, options: LocalOutputOptions) -> SumStrategy:
    """The strategy, planned within its budget; without noise it is `non_private`."""

    def planned(setup: Setup) -> FixedPlan:
        tolerance = options.gradient_norm(setup.task)
        return plan_output(setup, law=options.law, weights=options.weights, tolerance=tolerance)

    def ruled(setup: Setup) -> Setup:
        return with_ruled_regulariser(setup, plan=planned, draws=setup.task.parties)

    setup = regularised(setup, options.regulariser, rule=ruled)
    if setup.noise_free:
        return non_private.build(setup, options)
    task, plan = setup.task, planned(setup)
    require_replace_one(setup, LocalOutputPerturbation.name, because=UNCERTIFIED)
    return LocalOutputPerturbation(
        task=task,
        plan=replace(
            plan,
            strategy=LocalOutputPerturbation.name,
            query="the minimiser of its own regularised risk, with noise of its own",
            released="the average of the parties' noisy minimisers",
            noise_at="parties",
        ),
        weights=options.weights,
        tolerance=options.gradient_norm(task),
        run=setup.run,
    )
