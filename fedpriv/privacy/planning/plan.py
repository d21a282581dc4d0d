"""A plan: sampling, noise and events of a whole run in one frozen object.

A strategy accepts nothing less. What it adds comes from ``plan.mechanisms`` and what the ledger is
charged from ``plan.event``, which reads the same mechanisms: noise and accounting cannot disagree.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from fedpriv._validate import require_choice, require_count, require_positive, require_rate
from fedpriv.privacy.accountants import account
from fedpriv.privacy.budget import Budget, BudgetExceeded, within
from fedpriv.privacy.events import (
    Event,
    GaussianEvent,
    LaplaceEvent,
    PoissonGaussianEvent,
    PoissonPureEvent,
    PureEvent,
)

if TYPE_CHECKING:
    from fedpriv.privacy.adjacency import Adjacency
    from fedpriv.privacy.mechanisms import Mechanism
    from fedpriv.privacy.planning.releases import Releases

NoisePlace = Literal["server", "parties"]
NOISE_PLACES: tuple[NoisePlace, ...] = ("server", "parties")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run asks, how much noise each release gets, and what it all spends.

    Refused at construction with `BudgetExceeded` if its own events do not fit its budget.

    Planners make it; by hand, for one noisy mean of 100 numbers in [-1, 1]:

    >>> from fedpriv.privacy.mechanisms import GaussianMechanism
    >>> plan = Plan(
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
        mechanisms: one a release, in order.
        parties: m, the number of parties in a sum.
        records: N, the number of training records; public.
        smallest_party: n₍₁₎, which equal weights pay for; public.
        dimension: d, the number of coordinates of a release.
        step: width of the fixed-point grid of a sum.
        clip_norm: bound on the norm of one record's gradient, where gradients are asked for.
        sampling_rate: Poisson rate of the records of a round; 1 is full batch.
        noise_at: who adds the noise.
        accountant: name, or "auto" for the tightest sound one.
        epsilon: what the accountant finds; at most the budget's.
    """

    strategy: str
    query: str
    released: str
    budget: Budget
    mechanisms: tuple[Mechanism, ...]
    parties: int
    records: int
    smallest_party: int
    dimension: int
    step: float
    clip_norm: float | None = None
    sampling_rate: float = 1.0
    noise_at: NoisePlace = "server"
    accountant: str = "auto"
    epsilon: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "mechanisms", tuple(self.mechanisms))
        self._require_facts()
        if not self.mechanisms:
            raise ValueError("mechanisms must hold at least one release, got none.")
        report = account(self.releases, delta=self.budget.delta, accountant=self.accountant)
        object.__setattr__(self, "accountant", report.accountant)
        if report.epsilon is None or not within(report.epsilon, self.budget.epsilon):
            spends = "no finite epsilon" if report.epsilon is None else f"{report.epsilon:.6g}"
            raise BudgetExceeded(
                f"the plan would spend epsilon = {spends} of {self.budget.epsilon:g} at delta = "
                f"{self.budget.delta:g} ({report.method}). Nothing was released. Plan fewer rounds "
                "or more noise; calibrate() finds the least noise that fits."
            )
        object.__setattr__(self, "epsilon", report.epsilon)

    def _require_facts(self) -> None:
        require_count(
            parties=self.parties,
            records=self.records,
            smallest_party=self.smallest_party,
            dimension=self.dimension,
        )
        require_positive(step=self.step)
        if self.clip_norm is not None:
            require_positive(clip_norm=self.clip_norm)
        require_rate(sampling_rate=self.sampling_rate)
        require_choice(NOISE_PLACES, noise_at=self.noise_at)
        if len({mechanism.adjacency for mechanism in self.mechanisms}) > 1:
            raise ValueError("mechanisms must all state the same adjacency.")

    @property
    def rounds(self) -> int:
        """The number of releases."""
        return len(self.mechanisms)

    @property
    def adjacency(self) -> Adjacency:
        """Which data sets the guarantee compares."""
        return self.mechanisms[0].adjacency

    def event(self, index: int) -> Event:
        """The event of release ``index``, counted from 0."""
        return sampled(self.mechanisms[index].event(), self.sampling_rate)

    @property
    def laws(self) -> tuple[str, ...]:
        """The names of its mechanisms, each once."""
        return tuple(dict.fromkeys(mechanism.title for mechanism in self.mechanisms))

    @property
    def releases(self) -> Releases:
        """All events of the run, equal ones together."""
        return list(Counter(map(self.event, range(self.rounds))).items())

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON-ready values, mechanisms that repeat written once with their count."""
        values = {
            name: getattr(self, name)
            for name in self.__dataclass_fields__
            if name not in ("mechanisms", "budget")
        }
        return {
            **values,
            "adjacency": self.adjacency.value,
            "budget": asdict(self.budget),
            "mechanisms": [
                {"name": mechanism.name, **asdict(mechanism), "count": count}
                for mechanism, count in Counter(self.mechanisms).items()
            ],
        }


def sampled(event: Event, sampling_rate: float) -> Event:
    """The event of a release on a Poisson sample."""
    if sampling_rate == 1:
        return event
    match event:
        case GaussianEvent():
            return PoissonGaussianEvent(
                relative_noise=event.relative_noise,
                sampling_rate=sampling_rate,
                adjacency=event.adjacency,
            )
        case LaplaceEvent() | PureEvent():
            return PoissonPureEvent(
                epsilon=event.pure_epsilon, sampling_rate=sampling_rate, adjacency=event.adjacency
            )
        case _:
            raise ValueError(
                f"sampling_rate must be 1 with {event.kind} releases, got {sampling_rate!r}: "
                "their amplification by sampling is not known here."
            )
