"""Local gradient perturbation: every party adds noise to its own gradients.

    for t = 1 … T:
        every party:  S_j ← Σ clip_C(∇f(θ; x, y)) + N(0, σ_t²)
        server:       θ   ← step(θ, ΣS_j / N + λθ)

With ``sampling_rate`` q every party draws a Poisson sample of its records, which nobody else sees,
and q·N replaces N: its answer is one sampled Gaussian release.

Shows what gradient perturbation costs without a secure sum: the same noise m times, hence √m times
the standard deviation. A baseline.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal

from fedpriv.federation.queries.bounds import grid_of
from fedpriv.federation.queries.local_noise import LocalNoise, sensitivity_of
from fedpriv.privacy.planning.noise_free import NoiseFree
from fedpriv.privacy.unit import Unit
from fedpriv.secagg.numbers.fixed_point import NOISE_DEVIATIONS
from fedpriv.strategies import gradient_perturbation
from fedpriv.strategies.common.building import (
    LOCAL_NOISE,
    Rate,
    Rounds,
    Setup,
    StrategyInfo,
    light_l2,
)
from fedpriv.strategies.common.optimiser import make_optimiser
from fedpriv.strategies.common.plans.plans import Calibration, plan_gradients
from fedpriv.strategies.common.settling import ClippedOptions, clip_of, follows_budget
from fedpriv.strategies.gradient_perturbation import (
    GradientOptions,
    GradientPerturbation,
    settled_gradients,
    shrink_of,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fedpriv.federation.federation import Sum
    from fedpriv.federation.queries.kinds import GradientQuery


class LocalGradientOptions(ClippedOptions):
    """Options of local gradient perturbation, as for gradient perturbation.

    Attributes:
        rounds: T, the number of rounds.
        clip: C, the bound on one record's gradient; "auto" as for gradient perturbation.
        weights: Every record counts equally ("proportional"), or every party ("equal").
        calibration: How the noise is calibrated to the budget.
        sampling_rate: Poisson rate of the records of a round; 1 is full batch.
        shrink: "auto" multiplies the published model by a factor that the noise in its scores
            determines, as for gradient perturbation; "none" leaves it alone.
        seed: Seed of the initial weights of a model that is not linear.
    """

    rounds: Rounds = 100
    weights: Literal["equal", "proportional"] = "proportional"
    calibration: Calibration = "exact"
    sampling_rate: Rate = 1.0
    shrink: Literal["auto", "none"] = "auto"
    seed: int = 0


class LocalGradientPerturbation(GradientPerturbation):
    """The sums arrive noisy; the server adds nothing."""

    name: ClassVar[str] = "local-gradient-perturbation"

    def _query(self) -> GradientQuery:
        mechanism, task = self._require_plan().mechanisms[self._round], self.task
        reach = NOISE_DEVIATIONS * task.parties**0.5 * mechanism.noise_stddev
        bound = task.records * self._clip + reach
        return replace(
            super()._query(),
            grid=grid_of(step=self._plan.step, bound=bound, parties=task.parties),
            local=LocalNoise(
                law="gaussian",
                relative_noise=mechanism.noise_stddev / sensitivity_of(mechanism),
                adjacency=mechanism.adjacency,
                unit=mechanism.unit,
            ),
        )

    def _release(self, answer: Sum) -> NDArray[np.float64]:
        count = self.task.gradient_count(self._weights, answer.sizes)
        return answer.value / (self._plan.rate(self._round) * count)


INFO = StrategyInfo(
    name=LocalGradientPerturbation.name,
    summary="baseline: every party adds noise to its own gradients",
    noise_by="parties",
    asks=("gradient",),
    convex_only=False,
    options=LocalGradientOptions,
    auto_l2=light_l2,
    follows_budget=follows_budget,
    because={Unit.PERSON: LOCAL_NOISE},
)


def build(setup: Setup, options: LocalGradientOptions) -> GradientPerturbation:
    """The strategy, planned within its budget; without noise equal to gradient perturbation."""
    task = setup.task
    # Each sum carries the noise of every party.
    alike = settled_gradients(
        setup.private, GradientOptions(**options.model_dump()), draws=task.parties
    )
    if setup.noise_free:
        return gradient_perturbation.build(setup, alike)
    plan = plan_gradients(
        setup,
        rounds=alike.rounds,
        clip_norm=clip_of(alike),
        weights=alike.weights,
        sampling_rate=options.sampling_rate,
        calibration=alike.calibration,
    )
    if isinstance(plan, NoiseFree):
        raise TypeError("a plan must have noise where there is a budget.")
    return LocalGradientPerturbation(
        task=task,
        plan=replace(
            plan,
            strategy=LocalGradientPerturbation.name,
            query="the sum of its records' clipped gradients, with noise of its own",
            noise_at="parties",
        ),
        optimiser=make_optimiser(alike, task, rounds=alike.rounds),
        weights=options.weights,
        run=setup.run,
        start=task.initial(options.seed),
        shrink=shrink_of(alike, plan, task, draws=task.parties),
    )
