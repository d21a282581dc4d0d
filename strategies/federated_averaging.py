"""Federated averaging: parties train locally, and the mean of their updates is released.

    for t = 1 … T:
        party j:  w ← θ; some epochs of SGD on its own records; u_j ← w - θ
        S ← Σ over the parties of w_j·clip_C(u_j)                      (a secure sum)
        u ← (S + N(0, σ²)) / (q·Σ w_j)
        θ ← step(θ, -u)

McMahan et al. 2017 (arXiv:1602.05629): with steps of rate 1 the model is the mean of the parties'
models. The server uses -u as a gradient: "momentum" is FedAvgM; "adagrad", "adam" and "yogi" are
FedAdagrad, FedAdam and FedYogi (Reddi et al. 2021, arXiv:2003.00295; moments are debiased here).
``proximal`` > 0 is FedProx (Li et al. 2020, arXiv:1812.06127).

With privacy (McMahan et al. 2018, arXiv:1710.06963) the unit is the *party*: all its records at
once, whatever it does with them. Parties may be sampled, and the bound C may follow a quantile of
the updates' lengths (``clip_quantile``; Andrew et al. 2021, arXiv:1905.03871), whose cost is split
exactly (`fedpriv.privacy.planning.party`). Without privacy, updates are not clipped.
"""

from __future__ import annotations

from math import exp, log
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from fedpriv.privacy.unit import Unit
from fedpriv.strategies.common.building import Positive, Setup, StrategyInfo
from fedpriv.strategies.common.local_training import (
    LocalOptions,
    plan_updates,
    training_parties,
)
from fedpriv.strategies.common.updates import UpdateStrategy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedpriv.federation.federation import Sum
    from fedpriv.federation.strategy.base import Run
    from fedpriv.federation.task import Task
    from fedpriv.privacy.planning.fixed_plan import FixedPlan

    Vector = NDArray[np.float64]

_WIDEST = 2.0**10  # how far C may follow a quantile from where it starts, as a factor either way


class AveragingOptions(LocalOptions):
    """Options of federated averaging.

    Attributes:
        local_momentum: β of the parties' steps, reset between two exchanges.
        proximal: μ of FedProx, which keeps a party's model near the common one.
        clip_quantile: γ, the share of updates that should not be clipped: C follows it; 0 keeps C
            fixed.
        clip_rate: η_C, the rate at which C follows.
        count_noise: σ_b of the count of updates that were not clipped; by default, a twentieth of
            the number of parties that train.
    """

    local_momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    proximal: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    clip_quantile: Annotated[float, Field(ge=0, lt=1)] = 0.0
    clip_rate: Positive = 0.2
    count_noise: Positive | None = None


class FederatedAveraging(UpdateStrategy):
    """T exchanges of updates, each one release."""

    name: ClassVar[str] = "federated-averaging"

    def __init__(
        self,
        *,
        task: Task,
        plan: FixedPlan | None,
        run: Run,
        options: AveragingOptions,
        clip_norm: float | None,
        counting: float | None = None,
    ) -> None:
        super().__init__(
            task=task,
            plan=plan,
            run=run,
            options=options,
            training=options.local_training(
                task, momentum=options.local_momentum, proximal=options.proximal
            ),
            clip_norm=clip_norm,
            counting=counting,
            width=task.dimension + (counting is not None),
        )
        self._options = options
        self._first_clip = clip_norm or 1.0

    def _release(self, answer: Sum) -> Vector:
        """The noisy mean update, and the noisy share of parties that were not clipped."""
        noisy, d = self._noisy_sum(answer), self.task.dimension
        mean = self._mean(noisy[:d])
        if self._counting is None:
            return mean
        trained = training_parties(self.task, self._options)
        return np.append(mean, noisy[d:] / (self._counting * trained) + 0.5)

    def _update(self, release: Vector) -> None:
        self._move(release[: self.task.dimension])
        if self._counting is not None and self._clip is not None:
            self._clip = self._followed(self._clip, float(release[-1]))

    def _followed(self, clip: float, below: float) -> float:
        """C after a noisy share of updates was not clipped; within limits, whatever the noise."""
        options, first = self._options, self._first_clip
        excess = min(1.0, max(0.0, below)) - options.clip_quantile
        power = min(log(_WIDEST), max(-log(_WIDEST), -options.clip_rate * excess))
        return min(first * _WIDEST, max(first / _WIDEST, clip * exp(power)))

    def _state(self) -> dict[str, Any]:
        return {**super()._state(), "clip": self._clip or 0.0}

    def _set_state(self, state: dict[str, Any]) -> None:
        super()._set_state(state)
        self._clip = float(state["clip"]) or None


INFO = StrategyInfo(
    name=FederatedAveraging.name,
    summary="parties train on their own, and the mean of their clipped updates is released",
    noise_by="server",
    asks=("local-training", "local-training with a count"),
    convex_only=False,
    options=AveragingOptions,
    shares=True,
    units=(Unit.PARTY,),
    follows_budget=lambda options: options.clip == "auto",  # none is needed where there is no noise
)


def build(setup: Setup, options: AveragingOptions) -> FederatedAveraging:
    """The strategy, planned within its budget; without a plan if it has no guarantee."""
    clip, counted = options.clip_norm(setup), options.clip_quantile > 0
    if counted and clip is None:
        raise ValueError("clip must be a number with clip_quantile, which moves it, got none.")
    plan, counting = None, (1.0 if counted else None)
    if setup.allowance is not None and clip is not None:
        plan, counting = plan_updates(
            setup,
            options,
            strategy=FederatedAveraging.name,
            clip_norm=clip,
            width=setup.task.dimension + counted,
            counted=counted,
            count_noise=options.count_noise,
        )
    return FederatedAveraging(
        task=setup.task,
        plan=plan,
        run=setup.run,
        options=options,
        clip_norm=clip,
        counting=counting,
    )
