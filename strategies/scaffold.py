"""SCAFFOLD: federated averaging with control variates, which correct for differing parties.

    for t = 1 … T:
        party j:  w ← θ; SGD along ∇f_j(w) + c - c_j; u_j ← w - θ
                  v_j ← c_j⁺ - c_j,   c_j⁺ = c_j - c + (θ - w)/(K·η)
        S ← Σ over the parties of w_j·clip_C(u_j, v_j)                 (a secure sum)
        (u, v) ← (S + N(0, σ²)) / (q·Σ w_j)
        θ ← step(θ, -u);   c ← c + q·v

Karimireddy et al. 2020 (arXiv:1910.06378), option II, K local steps of rate η. Every party keeps
its control variate c_j, the mean gradient of its own data along its last steps, and never sends it;
q is the share of the parties that train.

With privacy the unit is the party: (u, v) is clipped *as one vector*, so that the sum moves by C or
2C as in federated averaging, whatever c_j is. It costs nothing more that c_j depends on earlier
rounds: given the releases so far, a party's answer has norm at most C, and whether it trains is
drawn afresh. But a release has twice as many numbers, and noise on all of them.

Deployed parties keep c_j in their journal: a resumed run continues from it, and a release that is
asked for again updates it only once. Elsewhere c_j is in memory: a run in one place that was
interrupted continues with c_j = c, as in a first round. The guarantee is the same, c_j is not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fedpriv.privacy.unit import Unit
from fedpriv.strategies.common.building import Setup, StrategyInfo
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


class Scaffold(UpdateStrategy):
    """T exchanges of updates and changes of control variates, each one release."""

    name: ClassVar[str] = "scaffold"

    def __init__(
        self,
        *,
        task: Task,
        plan: FixedPlan | None,
        run: Run,
        options: LocalOptions,
        clip_norm: float | None,
    ) -> None:
        super().__init__(
            task=task,
            plan=plan,
            run=run,
            options=options,
            training=options.local_training(task),
            clip_norm=clip_norm,
            width=2 * task.dimension,
        )
        self._variate = np.zeros(task.dimension)

    def _control(self) -> Vector:
        return self._variate

    def _release(self, answer: Sum) -> Vector:
        """The noisy means of updates and of changes of control variates."""
        return self._mean(self._noisy_sum(answer))

    def _update(self, release: Vector) -> None:
        d = self.task.dimension
        self._move(release[:d])
        share = training_parties(self.task, self._local) / self.task.parties
        self._variate = self._variate + share * release[d:]

    def _state(self) -> dict[str, Any]:
        return {**super()._state(), "variate": self._variate}

    def _set_state(self, state: dict[str, Any]) -> None:
        super()._set_state(state)
        self._variate = np.array(state["variate"])


INFO = StrategyInfo(
    name=Scaffold.name,
    summary="federated averaging with control variates against how far parties drift apart",
    noise_by="server",
    asks=("local-training with control variates",),
    convex_only=False,
    options=LocalOptions,
    shares=True,
    units=(Unit.PARTY,),
    follows_budget=lambda options: options.clip == "auto",  # none is needed where there is no noise
)


def build(setup: Setup, options: LocalOptions) -> Scaffold:
    """The strategy, planned within its budget; without a plan where nothing is promised."""
    clip, plan = options.clip_norm(setup), None
    if setup.allowance is not None and clip is not None:
        plan, _ = plan_updates(
            setup,
            options,
            strategy=Scaffold.name,
            clip_norm=clip,
            width=2 * setup.task.dimension,
            sums="sums of updates and of changes of control variates",
        )
    return Scaffold(task=setup.task, plan=plan, run=setup.run, options=options, clip_norm=clip)
