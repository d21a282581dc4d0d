"""Zero-concentrated differential privacy: ρ adds up."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, ClassVar

from fedpriv.privacy.accountants.base import Accountant, AdditiveAccountant, squared, unsupported
from fedpriv.privacy.conversions import zcdp_epsilon, zcdp_epsilon_simple
from fedpriv.privacy.events import (
    BoundedRangeEvent,
    GaussianEvent,
    LaplaceEvent,
    PoissonPureEvent,
    PureEvent,
    ZcdpEvent,
)

if TYPE_CHECKING:
    from fedpriv.privacy.events import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class ZcdpAccountant(AdditiveAccountant):
    """ρ adds up (Bun and Steinke 2016, Lemma 1.7); ε by the optimal Rényi order."""

    name: ClassVar[str] = "zcdp"
    method: ClassVar[str] = "zCDP, optimal conversion"

    @property
    def rho(self) -> float:
        """The ρ of everything composed so far."""
        return self.total

    def cost(self, event: Event) -> float:
        """ρ of one release."""
        return zcdp_cost(self, event)

    def epsilon(self, delta: float) -> float:
        """ε at δ by the optimal order (Canonne, Kamath and Steinke 2020)."""
        return zcdp_epsilon(rho=self.total, delta=delta) if self.total < inf else inf


@dataclass(frozen=True, slots=True, kw_only=True)
class SimpleZcdpAccountant(ZcdpAccountant):
    """As `ZcdpAccountant`, with the textbook conversion ρ + 2√(ρ·ln(1/δ))."""

    name: ClassVar[str] = "zcdp-simple"
    method: ClassVar[str] = "zCDP, textbook conversion"

    def epsilon(self, delta: float) -> float:
        """ε at δ by the textbook rule."""
        return zcdp_epsilon_simple(rho=self.total, delta=delta) if self.total < inf else inf


def zcdp_cost(accountant: Accountant, event: Event) -> float:
    """ρ of one release that is zCDP; other releases are refused on behalf of ``accountant``."""
    match event:
        case GaussianEvent():
            return squared(1 / event.relative_noise) / 2
        case ZcdpEvent():
            return event.rho
        case BoundedRangeEvent():
            return squared(event.epsilon) / 8
        case LaplaceEvent() | PureEvent() | PoissonPureEvent():
            return squared(event.pure_epsilon) / 2
        case _:
            raise unsupported(
                accountant, event, "it is not zCDP with a known constant; use rdp or pld"
            )
