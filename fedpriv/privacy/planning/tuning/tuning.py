"""Plans of a paid tuning: trials of one cost; a random number of them is run, and the best is kept.

**A trial** is one Gaussian composition: the noisy sums that it trains on, with Σ(Δ_t/σ_t)², and the
noisy score of the result, with (Δ_s/σ_s)². Noise is fixed beforehand and points follow from earlier
releases, so that a trial is μ-GDP with μ² the sum of both (Dong, Roth and Su 2022, Cor. 3.3),
whichever setting it draws: every setting has its own plan, and none may cost more. A share of μ²
pays for the score.

**The whole** is one release, priced by `fedpriv.privacy.tuning_profile`; the largest μ for which it
is within a budget is found by `fedpriv.privacy.planning.tuning.trials`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import hypot
from typing import TYPE_CHECKING, Any, ClassVar

from fedpriv._validate import require_choice, require_positive
from fedpriv.privacy.accountants import BasicAccountant, RdpAccountant
from fedpriv.privacy.events import TuningEvent
from fedpriv.privacy.mechanisms import GaussianMechanism, Mechanism
from fedpriv.privacy.planning.fixed_plan import FixedPlan
from fedpriv.privacy.planning.plan import in_words

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fedpriv.privacy.randomness import RandomStream
    from fedpriv.privacy.trial_count import TrialCount

ACCOUNTANTS = ("auto", BasicAccountant.name, RdpAccountant.name)
_METHODS = {
    BasicAccountant.name: "profile rule for the best of a random number of trials",
    RdpAccountant.name: "Rényi form for the best of a random number of trials",
}
_ROUNDING = 1e-12  # of a sum of squares over all releases of a trial


@dataclass(frozen=True, slots=True, kw_only=True)
class BestOfTrials(Mechanism):
    """The best of a random number of trials: the cost of each, their number, their score.

    Attributes:
        base_mu: μ of one trial, its score included.
        law: Of the number of trials.
        score: The noise on a trial's score.
    """

    name: ClassVar[str] = "tuning"
    base_mu: float
    law: TrialCount
    score: GaussianMechanism

    def __post_init__(self) -> None:
        Mechanism.__post_init__(self)
        require_positive(base_mu=self.base_mu)

    def event(self) -> TuningEvent:
        """The one event of all trials together."""
        return TuningEvent(
            adjacency=self.adjacency,
            unit=self.unit,
            base_mu=self.base_mu,
            eta=self.law.eta,
            gamma=self.law.gamma,
        )

    @property
    def score_mu(self) -> float:
        """The score's part of μ."""
        return 1 / self.score.event().relative_noise

    @property
    def noise_stddev(self) -> float:
        """That of a score."""
        return self.score.noise_stddev

    @property
    def title(self) -> str:
        """What a statement calls it."""
        return "best of a random number of trials, each with gaussian noise"

    def _draw(self, shape: tuple[int, ...], step: float, stream: RandomStream) -> NDArray[np.int64]:
        return self.score.noise(shape, step=step, stream=stream)


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningPlan(FixedPlan):
    """A `FixedPlan` of one release, the best of a random number of trials.

    Guarantee. That of `fedpriv.privacy.tuning_profile`, if every trial follows one of ``trials``,
    is scored with the noise of the mechanism, and only the best one leaves.

    Attributes:
        trials: The plan of every setting, in order; refused if one of them, with its score, is not
            μ-GDP for the μ that is charged.
    """

    trials: tuple[FixedPlan, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "trials", tuple(self.trials))
        if len(self.mechanisms) != 1 or not self.trials:
            raise ValueError("a tuning must have one release and at least one setting.")
        require_choice(ACCOUNTANTS, accountant=self.accountant)
        for index, trial in enumerate(self.trials):
            self._require_trial(index, trial)
        FixedPlan.__post_init__(self)

    def _require_trial(self, index: int, trial: FixedPlan) -> None:
        facts = ("adjacency", "unit", "records", "parties", "smallest_party", "dimension")
        for fact in facts:
            if getattr(trial, fact) != getattr(self, fact):
                raise ValueError(
                    f"trials[{index}] must have the {fact} of all others, "
                    f"{getattr(self, fact)}, got {getattr(trial, fact)}."
                )
        mu = trial_mu(trial)
        if hypot(mu, self.best.score_mu) > self.best.base_mu * (1 - _ROUNDING):
            raise ValueError(
                f"trials[{index}] must cost no more than mu = {self.best.base_mu:.9g} with its "
                f"score of {self.best.score_mu:.9g}, got {mu:.9g}."
            )

    @property
    def best(self) -> BestOfTrials:
        """The mechanism of the release."""
        (mechanism,) = self.mechanisms
        if not isinstance(mechanism, BestOfTrials):
            raise ValueError(f"mechanisms must hold a BestOfTrials, got {mechanism.name!r}.")
        return mechanism

    @property
    def main(self) -> tuple[Mechanism, ...]:
        """None: a model moves within its trial, with noise that depends on its setting."""
        return ()

    @property
    def method(self) -> str:
        """Which of the two bounds."""
        return _METHODS[self.accountant]

    @property
    def noise_in_words(self) -> str:
        """That of the sums of a trial, over all settings, and that of its score."""
        noise = [each.noise_stddev for trial in self.trials for each in trial.mechanisms]
        score = in_words([self.best.noise_stddev])
        return f"{in_words(noise)}, by the setting of a trial; on its score: {score}"

    @property
    def grid_in_words(self) -> str:
        """The widths of all grids."""
        return f"grids of {in_words([self.step, *(trial.step for trial in self.trials)])}"

    @property
    def _apart(self) -> tuple[str, ...]:
        return ("trials",)

    def _noise_to_dict(self) -> dict[str, Any]:
        return {
            "mechanisms": [{"name": self.best.name, **asdict(self.best), "count": 1}],
            "trials": [
                {
                    "rounds": trial.rounds,
                    "clip_norm": trial.clip_norm,
                    "step": trial.step,
                    "mechanisms": trial.to_dict()["mechanisms"],
                }
                for trial in self.trials
            ],
        }


def trial_mu(plan: FixedPlan) -> float:
    """μ of the sums that a trial trains on; refused unless all is Gaussian noise at the server.

    Raises:
        ValueError: The plan has noise of another law, samples, or shares of the parties.
    """
    mu = plan.gdp_mu
    if mu is None or plan.noise_at != "server":
        raise ValueError(
            f"a trial must be planned with Gaussian noise on full batches, added by the server, "
            f"got {', '.join(plan.laws)} with {plan.sampler} sampling at the {plan.noise_at}: only "
            "for that is the price of keeping the best of several trials known."
        )
    return mu
