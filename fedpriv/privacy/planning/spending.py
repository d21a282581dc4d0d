"""How much of its ε a run with fixed noise has spent so far: an upper bound per release."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from math import ceil, isfinite, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.privacy.accountants import GdpAccountant, RdpAccountant
from fedpriv.privacy.conversions import rdp_epsilon
from fedpriv.privacy.gaussian import gdp_epsilon

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedpriv.privacy.planning.fixed_plan import FixedPlan

# An exact ε takes a third of a millisecond, as long as a small round: long runs compute so many.
_LEVELS = 64


@dataclass(frozen=True, kw_only=True)
class Spending:
    """ε of the first t releases of a plan; in a long run, of a few more, which is still a bound.

    Exact for Gaussian releases; otherwise the smaller of the plan's own ε, which bounds every
    prefix of the run, and a Rényi bound, which is cheap for every prefix.
    """

    plan: FixedPlan
    _known: dict[int, float] = field(default_factory=dict, repr=False)

    def after(self, releases: int) -> float:
        """ε at the plan's δ after so many releases."""
        stride = ceil(self.plan.rounds / _LEVELS)
        counted = ceil(releases / stride) * stride
        if counted == 0:
            return 0.0
        if counted >= self.plan.rounds:
            return self.plan.epsilon
        if counted not in self._known:
            self._known[counted] = min(self._epsilon(counted), self.plan.epsilon)
        return self._known[counted]

    def _epsilon(self, releases: int) -> float:
        delta = self.plan.budget.delta
        if self.plan.accountant == GdpAccountant.name:
            return gdp_epsilon(mu=sqrt(self._squares[releases - 1]), delta=delta)
        epsilon = rdp_epsilon(
            orders=np.array(self._rdp.orders),
            divergences=self._divergences[releases - 1],
            delta=delta,
        )
        return epsilon if isfinite(epsilon) else self.plan.epsilon

    @cached_property
    def _squares(self) -> list[float]:
        accountant = GdpAccountant(adjacency=self.plan.adjacency, unit=self.plan.unit)
        events = map(self.plan.event, range(self.plan.rounds))
        return list(accumulate(map(accountant.cost, events)))

    @cached_property
    def _divergences(self) -> NDArray[Any]:
        events = map(self.plan.event, range(self.plan.rounds))
        return np.cumsum(np.array([self._rdp.cost(event) for event in events]), axis=0)

    @cached_property
    def _rdp(self) -> RdpAccountant:
        return RdpAccountant(adjacency=self.plan.adjacency, unit=self.plan.unit)
