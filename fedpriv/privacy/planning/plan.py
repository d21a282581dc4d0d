"""A plan: sampling, noise and events of a whole run in one frozen object.

A strategy accepts nothing less. The noise it adds comes from ``plan.mechanisms`` and the ledger is
charged from ``plan.event``, which reads the same mechanisms: noise and accounting cannot disagree.
Noise fixed before the first release is a `FixedPlan`, adaptively chosen noise an `AdaptivePlan`;
readers of a plan need not know which.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import asdict, dataclass, field
from math import sqrt
from typing import TYPE_CHECKING, Any, Literal

from fedpriv._validate import require_choice, require_count, require_positive, require_rate
from fedpriv.privacy.events import (
    BoundedRangeEvent,
    Event,
    GaussianEvent,
    LaplaceEvent,
    PoissonGaussianEvent,
    PoissonPartsEvent,
    PoissonPureEvent,
    PoissonSkellamEvent,
    PureEvent,
    SkellamEvent,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fedpriv.privacy.adjacency import Adjacency
    from fedpriv.privacy.budget import Budget
    from fedpriv.privacy.mechanisms import Mechanism
    from fedpriv.privacy.planning.releases import Releases
    from fedpriv.privacy.unit import Unit

NoisePlace = Literal["server", "parties"]
NOISE_PLACES: tuple[NoisePlace, ...] = ("server", "parties")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(ABC):
    """What a run asks, how much noise each release gets, and what it all spends. Use a subclass.

    Planners create it; by hand, for one noisy mean of 100 numbers in [-1, 1]:

    >>> from fedpriv.privacy.budget import Budget
    >>> from fedpriv.privacy.mechanisms import GaussianMechanism
    >>> from fedpriv.privacy.planning.fixed_plan import FixedPlan
    >>> plan = FixedPlan(
    ...     strategy="mean",
    ...     query="the sum of the numbers",
    ...     released="the noisy mean",
    ...     budget=Budget(epsilon=1.0, delta=1e-6),
    ...     mechanisms=(GaussianMechanism(adjacency="replace-one", sensitivity=2.0, stddev=9.0),),
    ...     parties=1,
    ...     records=100,
    ...     smallest_party=100,
    ...     dimension=1,
    ...     step=2.0**-20,
    ... )
    >>> plan.accountant, plan.epsilon <= 1.0
    ('gdp', True)

    Attributes:
        strategy: name of the learning algorithm.
        query: what each party is asked for, in words.
        released: what leaves the server, in words.
        budget: (ε, δ) that the run may spend.
        mechanisms: the noise of every release that is planned, or was made, in order.
        parties: m, the number of parties in a sum.
        records: N, the number of training records; public.
        smallest_party: n₍₁₎, which equal weights pay for; public.
        dimension: d, the number of coordinates of a release.
        step: width of the fixed-point grid of a sum.
        clip_norm: bound on the norm of what one unit adds, where it is clipped: a record's
            gradient, the sum of a person's, a party's update.
        sampling_rate: Poisson rate of the records of a round; 1 is full batch.
        parts: in how many parties' samples one unit may be, by separate coins: 1, except for
            persons with records at several parties.
        noise_at: who adds the noise.
        accountant: the name of what proves ``epsilon``.
        epsilon: the guarantee of the run; at most the budget's.
    """

    strategy: str
    query: str
    released: str
    budget: Budget = field(init=False)
    mechanisms: tuple[Mechanism, ...] = field(init=False)
    parties: int
    records: int
    smallest_party: int
    dimension: int
    step: float
    clip_norm: float | None = None
    sampling_rate: float = 1.0
    parts: int = 1
    noise_at: NoisePlace = "server"
    accountant: str = field(init=False)
    epsilon: float = field(init=False)

    def _require_facts(self) -> None:
        require_count(
            parties=self.parties,
            records=self.records,
            smallest_party=self.smallest_party,
            dimension=self.dimension,
            parts=self.parts,
        )
        require_positive(step=self.step)
        if self.clip_norm is not None:
            require_positive(clip_norm=self.clip_norm)
        require_rate(sampling_rate=self.sampling_rate)
        require_choice(NOISE_PLACES, noise_at=self.noise_at)
        if len({mechanism.adjacency for mechanism in self.mechanisms}) > 1:
            raise ValueError("mechanisms must all state the same adjacency.")
        if len({mechanism.unit for mechanism in self.mechanisms}) > 1:
            raise ValueError("mechanisms must all state the same unit of privacy.")

    # What was planned, or made.

    @property
    @abstractmethod
    def rounds(self) -> int:
        """The number of releases that are planned, or were made."""

    @property
    @abstractmethod
    def adjacency(self) -> Adjacency:
        """Which data sets the guarantee compares."""

    @property
    @abstractmethod
    def unit(self) -> Unit:
        """Whose presence the guarantee hides: a record's, a person's or a party's."""

    @abstractmethod
    def event(self, index: int) -> Event:
        """The event of release ``index``, counted from 0."""

    def rate(self, index: int) -> float:
        """The sampling rate of release ``index``."""
        return self.sampling_rate

    @property
    def least_rate(self) -> float:
        """The least sampling rate of a release: below 1 the accounting assumes Poisson samples."""
        return self.sampling_rate

    @property
    def sampler(self) -> str:
        """How the accounting assumes that records were chosen."""
        return sampler_of(self.least_rate)

    @property
    def releases(self) -> Releases:
        """The events of all these releases, equal ones together."""
        return list(Counter(map(self.event, range(self.rounds))).items())

    @property
    def needed(self) -> Releases:
        """The room that a ledger should have before the run begins: everything planned."""
        return self.releases

    @property
    @abstractmethod
    def main(self) -> tuple[Mechanism, ...]:
        """The noise of each round's main release, on which the model moves."""

    @abstractmethod
    def spending(self) -> Callable[[int], float]:
        """An upper bound on the ε spent, as a function of the number of rounds made."""

    # What a statement says about it.

    @property
    def size_in_words(self) -> str:
        """How many numbers the releases have."""
        return f"{self.dimension} coordinates"

    @property
    def grid_in_words(self) -> str:
        """The grid that sums are on."""
        return f"a grid of {self.step:.3g}"

    @property
    @abstractmethod
    def laws(self) -> tuple[str, ...]:
        """The names of its mechanisms, each once."""

    @property
    @abstractmethod
    def noise_in_words(self) -> str:
        """The range of its standard deviations on one coordinate of a sum."""

    @property
    @abstractmethod
    def method(self) -> str:
        """The theorem that gives its ε."""

    @property
    @abstractmethod
    def gdp_mu(self) -> float | None:
        """μ of the run's Gaussian differential privacy, if it has one."""

    @property
    @abstractmethod
    def gdp_exact(self) -> bool:
        """Whether this μ is exact."""

    @property
    @abstractmethod
    def zcdp_rho(self) -> float | None:
        """ρ of the run's zero-concentrated differential privacy, if any."""

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON-ready values, for plan.json and the statement."""
        plain = ("mechanisms", "budget", *self._apart)
        values = {
            name: getattr(self, name) for name in self.__dataclass_fields__ if name not in plain
        }
        return {
            **values,
            "adjacency": self.adjacency.value,
            "unit": self.unit.value,
            "budget": asdict(self.budget),
            **self._noise_to_dict(),
        }

    @property
    def _apart(self) -> tuple[str, ...]:
        """Fields that `_noise_to_dict` writes in its own way."""
        return ()

    @abstractmethod
    def _noise_to_dict(self) -> dict[str, Any]: ...


def sampler_of(least_rate: float) -> str:
    """How the accounting assumes that records were chosen, by the least rate of a release."""
    return "Poisson" if least_rate < 1 else "full batch"


def in_words(stddevs: Sequence[float]) -> str:
    """A range of standard deviations."""
    least, most = min(stddevs), max(stddevs)
    return f"{least:.6g}" if least == most else f"{least:.6g} to {most:.6g}"


def grid_sensitivity(sensitivity: float, *, dimension: int, step: float) -> float:
    """The L2 sensitivity of a sum on a fixed-point grid: Δ + √d·step.

    Every coordinate is rounded to the grid, in the one answer that holds the unit: two answers at a
    distance of Δ are then at most √d·step further apart.
    """
    require_positive(sensitivity=sensitivity, step=step)
    require_count(dimension=dimension)
    return sensitivity + sqrt(dimension) * step


def require_sizes(sizes: Sequence[int]) -> None:
    """Refuse to plan for no party, or for one without records."""
    if not len(sizes):
        raise ValueError("sizes must hold at least one party, got none.")
    require_count(**{f"sizes[{index}]": size for index, size in enumerate(sizes)})


def sampled(event: Event, sampling_rate: float, *, parts: int = 1) -> Event:
    """The event of a release on a Poisson sample, or on one for each of a unit's ``parts``."""
    if sampling_rate == 1:
        return event
    match event:
        case GaussianEvent() if parts > 1:
            return PoissonPartsEvent(
                relative_noise=event.relative_noise,
                sampling_rate=sampling_rate,
                parts=parts,
                adjacency=event.adjacency,
                unit=event.unit,
            )
        case _ if parts > 1:
            raise ValueError(
                f"parts must be 1 with {event.kind} releases on samples, got {parts!r}: for a "
                "person at several parties, amplification is known for Gaussian noise only."
            )
        case GaussianEvent():
            return PoissonGaussianEvent(
                relative_noise=event.relative_noise,
                sampling_rate=sampling_rate,
                adjacency=event.adjacency,
                unit=event.unit,
            )
        case LaplaceEvent() | PureEvent() | BoundedRangeEvent():
            return PoissonPureEvent(
                epsilon=event.pure_epsilon,
                sampling_rate=sampling_rate,
                adjacency=event.adjacency,
                unit=event.unit,
            )
        case SkellamEvent():
            return PoissonSkellamEvent(**asdict(event), sampling_rate=sampling_rate)
        case _:
            raise ValueError(
                f"sampling_rate must be 1 with {event.kind} releases, got {sampling_rate!r}: "
                "their amplification by sampling is not known here."
            )
