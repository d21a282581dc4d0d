"""Truncated concentrated differential privacy: zCDP up to an order ω, which sampling amplifies."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, ClassVar, Self

from fedpriv.privacy.accountants.base import Accountant, UnsupportedEvent, squared
from fedpriv.privacy.accountants.zcdp import zcdp_cost
from fedpriv.privacy.conversions import (
    TruncatedBudget,
    ctcdp_epsilon,
    tcdp_epsilon,
    tcdp_subsampled,
)
from fedpriv.privacy.events import PoissonGaussianEvent

if TYPE_CHECKING:
    from fedpriv.privacy.events import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class TcdpAccountant(Accountant):
    """ρ adds up and ω is the smallest of all (Bun, Dwork, Rothblum and Steinke 2018, Lemma 5)."""

    name: ClassVar[str] = "tcdp"
    method: ClassVar[str] = "truncated CDP"
    rho: float = 0.0
    omega: float = inf

    def _add(self, event: Event, count: int) -> Self:
        cost = self.cost(event)
        return replace(self, rho=self.rho + count * cost.rho, omega=min(self.omega, cost.omega))

    def cost(self, event: Event) -> TruncatedBudget:
        """(ρ, ω) of one release."""
        if isinstance(event, PoissonGaussianEvent):
            try:
                return tcdp_subsampled(
                    rho=squared(1 / event.relative_noise) / 2, sampling_rate=event.sampling_rate
                )
            except ValueError as reason:
                raise UnsupportedEvent(str(reason)) from None
        return TruncatedBudget(rho=zcdp_cost(self, event), omega=inf)

    def epsilon(self, delta: float) -> float:
        """ε at δ from the best order below ω."""
        if self.rho == inf:
            return inf
        return tcdp_epsilon(rho=self.rho, omega=self.omega, delta=delta)


@dataclass(frozen=True, slots=True, kw_only=True)
class CtcdpAccountant(TcdpAccountant):
    """ctCDP: the same releases compared with the tCDP budget (ρ_a, ω_a) that is (ε, δ)-DP.

    As in learned protection (AAAI 2021), whose print has ρ_a inverted. A baseline: for full
    batches it is the simple rule of zCDP, and on samples it asks for more orders than (ε, δ) needs;
    where the orders decide, more releases cost nothing more for a while.
    """

    name: ClassVar[str] = "ctcdp"
    method: ClassVar[str] = "converted truncated CDP"

    def epsilon(self, delta: float) -> float:
        """The least ε whose budget covers what was spent."""
        if self.rho == inf:
            return inf
        return ctcdp_epsilon(rho=self.rho, omega=self.omega, delta=delta)
