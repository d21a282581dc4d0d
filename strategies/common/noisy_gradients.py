"""NoisyGradients: the base class of a strategy of your own.

It asks for sums of clipped gradients, adds the noise of its plan, and hands the noisy mean to the
subclass, which computes the step. Query and noise are made here, from one plan that is checked
against the problem, so that a strategy written elsewhere cannot ask for more than its noise covers.
docs/own-strategy.md has complete examples.
"""

from __future__ import annotations

from dataclasses import replace
from inspect import getattr_static
from math import sqrt
from typing import TYPE_CHECKING, Any, ClassVar, Self
from warnings import warn

import numpy as np

from fedpriv.federation.queries.bounds import gradient_sensitivity, grid_of
from fedpriv.federation.queries.kinds import GradientQuery
from fedpriv.federation.strategy.base import SumStrategy
from fedpriv.privacy.budget import within
from fedpriv.privacy.mechanisms import GaussianMechanism
from fedpriv.privacy.planning.fixed_plan import FixedPlan
from fedpriv.privacy.planning.noise_free import NoiseFree
from fedpriv.strategies.common.building import Options, Positive, Rate, Rounds
from fedpriv.strategies.common.forgotten import forgotten, remembered
from fedpriv.strategies.common.plans.plans import plan_gradients
from fedpriv.strategies.common.plans.sharing import noisy_sum

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedpriv.federation.federation import Sum
    from fedpriv.strategies.common.building import Setup

# What a subclass may define or override.
_OPEN = {"name", "build", "_point", "_update", "_state", "_set_state"}


class NoisyOptions(Options):
    """Options that every strategy of noisy gradients has.

    Attributes:
        rounds: T, the number of releases.
        clip: C, the bound on one record's gradient.
        sampling_rate: Poisson rate of the records of a round; 1 is full batch.
        accountant: Name of the accountant, or "auto" for the tightest.
        seed: Seed of the initial weights of a model that is not linear.
    """

    rounds: Rounds = 100
    clip: Positive = 1.0
    sampling_rate: Rate = 1.0
    accountant: str = "auto"
    seed: int = 0


class NoisyGradients(SumStrategy):
    """T noisy mean gradients, each one release; a subclass turns them into steps.

    A subclass defines `_update`, which computes the next model, ``self._theta``, from a noisy mean
    gradient without the regulariser. It may define `_point`, if the next gradient is not taken at
    the model; `_state` and `_set_state`, if it remembers more than the model, so that a run can be
    resumed; and `build`, if the noise differs between rounds.

    Guarantee. Every release is a sum of gradients clipped to the plan's C with the plan's Gaussian
    noise. A plan is refused unless its mechanisms are calibrated to how far one record can move
    that sum and its cost is within the budget. The class is closed against mistakes: overriding
    anything else is an error. It does not stop malicious code.

    Attributes:
        options: The strategy's options.
    """

    name: ClassVar[str] = "noisy-gradients"

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        for key in dir(NoisyGradients):  # whichever base of the subclass overrides it
            closed = key not in _OPEN and not key.startswith(("__", "_abc_"))
            if closed and getattr_static(cls, key) is not getattr_static(NoisyGradients, key):
                raise TypeError(
                    f"{cls.__name__}.{key} must not be overridden: query, noise and ledger are "
                    f"those of the plan. A subclass may define {', '.join(sorted(_OPEN))}."
                )

    def __init__(self, *, setup: Setup, options: NoisyOptions, plan: FixedPlan | NoiseFree) -> None:
        if isinstance(plan, FixedPlan):
            plan = replace(plan, strategy=setup.signature or plan.strategy)
        self.__clip = _require_covered(plan, setup)
        start = setup.task.initial(options.seed)
        super().__init__(task=setup.task, plan=plan, run=setup.run, start=start)
        self.options: Any = options
        self.__plan = plan
        self.__start = self._theta.copy()
        self.__before: dict[str, Any] | None = None
        self.__base = {*vars(self)}

    @classmethod
    def build(cls, setup: Setup, options: Any) -> Self:
        """The strategy with equal noise in all rounds, the least that fits its budget."""
        plan = plan_gradients(
            setup,
            rounds=options.rounds,
            clip_norm=options.clip,
            sampling_rate=options.sampling_rate,
            accountant=options.accountant,
        )
        return cls(setup=setup, options=options, plan=plan)

    @property
    def fixed_clip(self) -> float | None:
        """The plan's C."""
        return self.__clip

    @property
    def noise_stddev(self) -> float:
        """Standard deviation of the noise on a coordinate of the release that `_update` gets.

        Follows from the plan, for the current round, and is public: step sizes may depend on it.
        It is that of the mean over all parties: where some drop out, the mean is over fewer
        records, and its noise larger in proportion. 0 in the twin without noise.
        """
        plan = self._planned()
        if isinstance(plan, NoiseFree):
            return 0.0
        current = min(self._round, plan.rounds - 1)
        count = self.task.gradient_count("proportional", self.task.sizes)
        return plan.mechanisms[current].noise_stddev / (plan.rate(current) * count)

    def _point(self) -> NDArray[np.float64]:
        """Where the next gradient is taken: the model, unless a subclass overrides it."""
        return self._theta

    def _query(self) -> GradientQuery:
        plan = self._planned()
        bound = self.task.records * self.__clip
        return GradientQuery(
            run=self._run.name,
            round=self._round,
            grid=grid_of(step=plan.step, bound=bound, parties=self.task.parties),
            event=self._event(),
            theta=self._point(),
            clip_norm=self.__clip,
            sampling_rate=plan.rate(self._round),
        )

    def _release(self, answer: Sum) -> NDArray[np.float64]:
        """The noisy mean. Divided by the *expected* number of records: the real one is private."""
        plan = self._planned()
        mechanism = plan.mechanisms[self._round]
        noisy = noisy_sum(mechanism, answer.total, step=answer.step, stream=self._stream())
        count = self.task.gradient_count("proportional", answer.sizes)
        return noisy / (plan.rate(self._round) * count)

    def checkpoint(self) -> dict[str, Any]:
        """What `restore` needs; warns if the subclass remembers more than that."""
        saved = super().checkpoint()
        before = self.__before
        if before is not None and (lost := forgotten(before, self.__own(), self._state())):
            warn(
                f"{type(self).__name__}: {', '.join(lost)} changed since the first round, and "
                "_state does not return it: a resumed run starts with what __init__ makes. If "
                "rounds depend on it, define _state and _set_state.",
                stacklevel=2,
            )
        return saved

    def _advance(self, release: NDArray[np.float64]) -> None:
        if self.__before is None:
            self.__before = remembered(self.__own())
        super()._advance(release)
        if self._round == self.releases and np.array_equal(self._theta, self.__start):
            warn(
                f"{type(self).__name__}: after {self.releases} rounds the model is where it began. "
                "Does _update assign the next one to self._theta?",
                stacklevel=2,
            )

    def __own(self) -> dict[str, Any]:
        """What a subclass has set besides what is set here."""
        return {key: value for key, value in vars(self).items() if key not in self.__base}

    def _planned(self) -> FixedPlan | NoiseFree:
        """The plan that was checked, which must be the one that is paid for."""
        if self.plan is not (None if isinstance(self.__plan, NoiseFree) else self.__plan):
            raise RuntimeError(
                "the plan of a strategy must stay the one that it was built with. Nothing was "
                "released."
            )
        return self.__plan


def _require_covered(plan: FixedPlan | NoiseFree, setup: Setup) -> float:
    """The clip norm of a plan whose noise covers what one record can do to a sum."""
    if setup.noise_free and isinstance(plan, NoiseFree) and plan.clip_norm is not None:
        return plan.clip_norm
    budget = setup.budget
    if type(plan) is not FixedPlan or {type(m) for m in plan.mechanisms} != {GaussianMechanism}:
        raise ValueError(
            "plan must be a FixedPlan of Gaussian mechanisms, as plan_gradients makes it: no other "
            "noise is known here to cover a sum of gradients."
        )
    if plan.clip_norm is None or plan.noise_at != "server":
        raise ValueError("plan must state the clip_norm of a gradient, with noise at the server.")
    if plan.adjacency is not setup.adjacency:
        raise ValueError(
            f"plan must be made for {setup.adjacency.value!r} adjacency, that of the experiment, "
            f"got {plan.adjacency.value!r}."
        )
    if not within(plan.epsilon, budget.epsilon) or plan.budget.delta > budget.delta:
        raise ValueError(
            f"plan must be within the budget of the experiment, {budget}, got epsilon = "
            f"{plan.epsilon:g} at delta = {plan.budget.delta:g}."
        )
    parts = 1 if setup.task.persons is None else setup.task.persons.parties
    if plan.parts != parts:  # more parts are cheaper with sampling
        raise ValueError(
            f"plan must count on a person at {parts} parties, as the experiment does, got "
            f"parts = {plan.parts}."
        )
    moved = gradient_sensitivity(
        setup.task, clip_norm=plan.clip_norm, adjacency=plan.adjacency, step=plan.step
    )
    needed = moved + sqrt(setup.task.dimension) * plan.step
    stated = min(m.sensitivity for m in plan.mechanisms if isinstance(m, GaussianMechanism))
    if stated < needed * (1 - 2.0**-40):  # the same numbers summed in another order
        raise ValueError(
            f"plan must be calibrated to a sensitivity of at least {needed:.6g}, by which one "
            f"record can move a sum of gradients clipped to {plan.clip_norm:g}, got {stated:.6g}."
        )
    return plan.clip_norm
