"""A plan for adaptively chosen noise: everything but the noise is fixed beforehand.

A fixed plan proves its guarantee at construction, this one release by release: ``admit`` returns
the plan with one more release, or raises. It starts empty, and at the end of a run it is the plan
as carried out, with every release in order.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, replace
from math import sqrt
from typing import TYPE_CHECKING, Any, Self

from fedpriv.privacy.budget import BudgetExceeded
from fedpriv.privacy.events import GaussianEvent
from fedpriv.privacy.mechanisms import GaussianMechanism, Mechanism
from fedpriv.privacy.mechanisms.selection import ExponentialMechanism, ReportNoisyMax, Selection
from fedpriv.privacy.planning.filters import GdpFilter, RdpFilter, least_noise
from fedpriv.privacy.planning.plan import Plan, in_words, sampled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from fedpriv.privacy.adjacency import Adjacency
    from fedpriv.privacy.events import Event
    from fedpriv.privacy.planning.filters import PrivacyFilter
    from fedpriv.privacy.planning.releases import Releases
    from fedpriv.privacy.unit import Unit

Release = Mechanism | Selection
_KINDS: dict[str, type[Release]] = {
    kind.name: kind for kind in (GaussianMechanism, ExponentialMechanism, ReportNoisyMax)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptivePlan(Plan):
    """What a run may spend, and what it has spent, when each noise follows from earlier releases.

    Guarantee. All releases that it admitted are together (ε, δ)-DP for the budget of its filter,
    by the theorem of that filter, however each was chosen from those before it. The guarantee is
    the budget: ``epsilon`` is the budget's, not that of the releases made, because how much was
    spent depends on what was seen.

    With sampling, every release has its own sample, with fresh coins: given all releases before it,
    its divergence is that of one sampled release, whatever was chosen so far. Two releases on one
    sample would be one sampled release of both, whose noise is not chosen in between.

    Attributes:
        filter: decides what is still affordable; fresh at the start.
        made: (part, mechanism) of every release so far, in order; the part is empty for the main
            release of a round, and a name for any other.
    """

    filter: PrivacyFilter
    made: tuple[tuple[str, Release], ...] = ()

    def __post_init__(self) -> None:
        additive = tuple(release for _, release in self.made if isinstance(release, Mechanism))
        object.__setattr__(self, "mechanisms", additive)
        object.__setattr__(self, "budget", self.filter.budget)
        object.__setattr__(self, "accountant", self.filter.name)
        object.__setattr__(self, "epsilon", self.filter.budget.epsilon)
        self._require_facts()
        if not self.made and self.filter.spent:
            raise ValueError(
                f"filter must be fresh for a plan without releases, got one that has spent "
                f"{self.filter.spent:g}."
            )

    def admit(self, release: Release, *, part: str = "") -> Self:
        """The plan with one more release. Call it before anything is asked for that release.

        Raises:
            BudgetExceeded: It does not fit. Nothing was charged.
        """
        event = self.priced(release)
        return replace(self, filter=self.filter.admit(event), made=(*self.made, (part, release)))

    def priced(self, release: Release) -> Event:
        """The event of ``release`` on its own sample, which determines its cost."""
        return sampled(release.event(), self.sampling_rate, parts=self.parts)

    def affords(self, *releases: Release) -> bool:
        """Whether all of ``releases`` would be admitted, one after the other."""
        plan = self
        try:
            for release in releases:
                plan = plan.admit(release)
        except BudgetExceeded:
            return False
        return True

    def part(self, name: str = "") -> tuple[Release, ...]:
        """The releases of one part, in order."""
        return tuple(release for part, release in self.made if part == name)

    @property
    def rounds(self) -> int:
        """The number of releases so far."""
        return len(self.made)

    @property
    def adjacency(self) -> Adjacency:
        """Which data sets the guarantee compares."""
        return self.filter.adjacency

    @property
    def unit(self) -> Unit:
        """Whose presence the guarantee hides."""
        return self.filter.unit

    def event(self, index: int) -> Event:
        """The event of release ``index``, counted from 0 over all parts."""
        return self.priced(self.made[index][1])

    @property
    def needed(self) -> Releases:
        """One Gaussian release that stands for everything the filter may admit.

        Exact for Gaussian releases, in the filter's measure; others may cost a ledger more. With
        sampling it is sampled too, so that a ledger which prices no single one refuses the run.
        """
        noise, rate = self.filter.whole_noise, self.sampling_rate
        if rate < 1:
            limit, parts = self.filter.limit, self.parts
            noise = least_noise(self.filter, amount=limit, sampling_rate=rate, parts=parts)
        whole = GaussianEvent(relative_noise=noise, adjacency=self.adjacency, unit=self.unit)
        return [(sampled(whole, rate, parts=self.parts), 1)]

    @property
    def ledger_rule(self) -> str | None:
        """How a ledger created for this run adds up; None if it may choose.

        With sampling, by divergences at the filter's own order: it then admits what that admits.
        """
        if self.sampling_rate == 1 or not isinstance(self.filter, RdpFilter):
            return None
        return f"rdp:{self.filter.order!r}"

    @property
    def main(self) -> tuple[Mechanism, ...]:
        """The noise of the main releases so far."""
        return tuple(release for release in self.part() if isinstance(release, Mechanism))

    def spending(self) -> Callable[[int], float]:
        """ε of the releases so far, in whatever number of rounds."""
        spent = self.filter.epsilon
        return lambda _rounds: spent

    @property
    def laws(self) -> tuple[str, ...]:
        """The names of its mechanisms and selections so far, each once."""
        return tuple(dict.fromkeys(release.name for _, release in self.made))

    @property
    def noise_in_words(self) -> str:
        """The range of the noise so far, by parts of a round."""
        noise: dict[str, list[float]] = {}
        for part, release in self.made:
            if isinstance(release, Mechanism):
                noise.setdefault(part or "main", []).append(release.noise_stddev)
        ranges = [f"{part} {in_words(stddevs)}" for part, stddevs in noise.items()]
        return f"chosen on the way: {', '.join(ranges) or 'nothing was released'}"

    @property
    def method(self) -> str:
        """The method of the filter."""
        return self.filter.method

    @property
    def gdp_mu(self) -> float | None:
        """The limit of a GDP filter: what was actually spent depends on what was seen."""
        return sqrt(self.filter.limit) if isinstance(self.filter, GdpFilter) else None

    @property
    def gdp_exact(self) -> bool:
        """False: a filter guarantees its limit, and seldom spends all of it."""
        return False

    @property
    def zcdp_rho(self) -> float | None:
        """μ²/2 of the limit."""
        return self.filter.limit / 2 if isinstance(self.filter, GdpFilter) else None

    def history(self) -> list[dict[str, Any]]:
        """Every release so far as JSON-ready values; `replayed` inverts it."""
        return [
            {"part": part, "name": release.name, **asdict(release)} for part, release in self.made
        ]

    def replayed(self, history: Iterable[Mapping[str, Any]]) -> Self:
        """This plan, still empty, after the releases that `history` wrote are admitted again."""
        plan = self
        for entry in history:
            values = {key: entry[key] for key in entry if key not in ("part", "name")}
            plan = plan.admit(_KINDS[entry["name"]](**values), part=entry["part"])
        return plan

    @property
    def _apart(self) -> tuple[str, ...]:
        return ("filter", "made")

    def _noise_to_dict(self) -> dict[str, Any]:
        """The filter, and every release so far."""
        return {
            "spent": self.filter.spent,
            "limit": self.filter.limit,
            "releases": dict(Counter(part or "main" for part, _ in self.made)),
            "made": self.history(),
        }
