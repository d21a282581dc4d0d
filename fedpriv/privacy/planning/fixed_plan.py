"""A plan for noise that is fixed before the first release, proved by an accountant."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from math import sqrt
from typing import TYPE_CHECKING, Any

from fedpriv.privacy.accountants import (
    ACCOUNTANTS,
    GdpAccountant,
    UnsupportedEvent,
    ZcdpAccountant,
    account,
)
from fedpriv.privacy.budget import Budget, BudgetExceeded, within
from fedpriv.privacy.mechanisms.shares import SharedNoise
from fedpriv.privacy.planning.plan import Plan, in_words, sampled

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedpriv.privacy.adjacency import Adjacency
    from fedpriv.privacy.events import Event
    from fedpriv.privacy.mechanisms import Mechanism
    from fedpriv.privacy.unit import Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedPlan(Plan):
    """All releases of a run, known before the first.

    Guarantee. Together they are (ε, δ)-DP for ``epsilon`` and the budget's δ, by the named
    accountant. Refused at construction with `BudgetExceeded` if that is more than the budget.

    Attributes:
        budget: (ε, δ) that the run may spend.
        mechanisms: one per release, in order.
        accountant: name, or "auto" for the tightest sound one.
    """

    budget: Budget
    mechanisms: tuple[Mechanism, ...]
    accountant: str = "auto"

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

    @property
    def rounds(self) -> int:
        """The number of releases."""
        return len(self.mechanisms)

    @property
    def adjacency(self) -> Adjacency:
        """Which data sets the guarantee compares."""
        return self.mechanisms[0].adjacency

    @property
    def unit(self) -> Unit:
        """Whose presence the guarantee hides."""
        return self.mechanisms[0].unit

    def event(self, index: int) -> Event:
        """The event of release ``index``, counted from 0."""
        return sampled(self.mechanisms[index].event(), self.rate(index))

    @property
    def main(self) -> tuple[Mechanism, ...]:
        """Every release moves the model."""
        return self.mechanisms

    def spending(self) -> Callable[[int], float]:
        """ε of the first so many releases."""
        from fedpriv.privacy.planning.spending import Spending

        return Spending(plan=self).after

    @property
    def laws(self) -> tuple[str, ...]:
        """The names of its mechanisms, each once."""
        return tuple(dict.fromkeys(mechanism.title for mechanism in self.mechanisms))

    @property
    def noise_in_words(self) -> str:
        """The range of the noise; of shares, what a sum is sure to carry and what it can."""
        sure = in_words([mechanism.noise_stddev for mechanism in self.mechanisms])
        shared = [m for m in self.mechanisms if isinstance(m, SharedNoise)]
        if not shared:
            return sure
        full = in_words([mechanism.stddev_of(self.parties) for mechanism in shared])
        return f"at least {sure}; {full} if all parties are in it"

    @property
    def method(self) -> str:
        """That of the accountant."""
        return ACCOUNTANTS[self.accountant].method

    @property
    def gdp_mu(self) -> float | None:
        """μ of all releases together, if all are Gaussian."""
        square = self._composed(GdpAccountant(adjacency=self.adjacency, unit=self.unit))
        return None if square is None else sqrt(square)

    @property
    def gdp_exact(self) -> bool:
        """Composition of Gaussian releases that are fixed beforehand is exact."""
        return True

    @property
    def zcdp_rho(self) -> float | None:
        """ρ of all releases together, where each has one."""
        return self._composed(ZcdpAccountant(adjacency=self.adjacency, unit=self.unit))

    def _composed(self, accountant: GdpAccountant | ZcdpAccountant) -> float | None:
        try:
            return accountant.compose_all(self.releases).total
        except UnsupportedEvent:
            return None

    def _noise_to_dict(self) -> dict[str, Any]:
        """Mechanisms that repeat are written once with their count."""
        return {
            "mechanisms": [
                {"name": mechanism.name, **asdict(mechanism), "count": count}
                for mechanism, count in Counter(self.mechanisms).items()
            ],
        }
