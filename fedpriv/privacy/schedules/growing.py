"""Growing batches: the same noise on ever larger Poisson samples, so that means get less noise."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedpriv._validate import require_count, require_positive, require_rate
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import GaussianEvent
from fedpriv.privacy.planning.calibration import noise_within
from fedpriv.privacy.planning.fixed_plan import FixedPlan
from fedpriv.privacy.planning.plan import sampled
from fedpriv.privacy.unit import DEFAULT_UNIT, Unit

if TYPE_CHECKING:
    from fedpriv.privacy.budget import Budget
    from fedpriv.privacy.planning.releases import Releases

_MOST_LEVELS = 50  # each distinct rate costs an accountant tens of milliseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowingBatch:
    """Sampling rates q_t that grow: ``first``, times ``factor`` after every ``every`` rounds.

    A rate never exceeds 1, the full batch. Poisson sampling is analysed under add-remove adjacency.
    """

    first: float
    factor: float
    every: int

    def __post_init__(self) -> None:
        require_rate(first=self.first)
        require_positive(factor=self.factor)
        require_count(every=self.every)

    def rates(self, rounds: int) -> tuple[float, ...]:
        """q_1 … q_T."""
        require_count(rounds=rounds)
        rates = tuple(
            min(1.0, self.first * self.factor ** (t // self.every)) for t in range(rounds)
        )
        if len(set(rates)) > _MOST_LEVELS:
            raise ValueError(
                f"every must be larger, got {self.every!r}: {rounds} rounds would have "
                f"{len(set(rates))} different rates, and at most {_MOST_LEVELS} are accounted for."
            )
        return rates

    def releases(
        self, rounds: int, *, noise_multiplier: float, unit: Unit = DEFAULT_UNIT
    ) -> Releases:
        """The events of a run with the same noise in every round, equal ones together."""
        event = GaussianEvent(
            relative_noise=noise_multiplier, adjacency=Adjacency.ADD_REMOVE, unit=unit
        )
        return list(Counter(sampled(event, rate) for rate in self.rates(rounds)).items())

    def noise_multiplier(
        self,
        *,
        budget: Budget,
        rounds: int,
        accountant: str = "rdp",
        unit: Unit = DEFAULT_UNIT,
    ) -> float:
        """The least noise on the sum, in units of the clip norm, that keeps the run in budget."""
        return noise_within(
            lambda noise: self.releases(rounds, noise_multiplier=noise, unit=unit),
            budget=budget,
            accountant=accountant,
            start=1.0,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowingPlan(FixedPlan):
    """A plan whose rounds each have their own sampling rate.

    Attributes:
        rates: q_t of every round; ``sampling_rate`` is the largest.
    """

    rates: tuple[float, ...]

    def __post_init__(self) -> None:
        require_rate(**{f"rates[{t}]": rate for t, rate in enumerate(self.rates)})
        if len(self.rates) != len(self.mechanisms):
            raise ValueError(
                f"rates must have one entry per round, {len(self.mechanisms)}; "
                f"got {len(self.rates)}."
            )
        object.__setattr__(self, "sampling_rate", max(self.rates))
        FixedPlan.__post_init__(self)

    def rate(self, index: int) -> float:
        """The sampling rate of release ``index``."""
        return self.rates[index]

    @property
    def least_rate(self) -> float:
        """That of the first round, since rates grow; the last may take everybody."""
        return min(self.rates)
