"""Gaussian differential privacy (GDP): exact accounting of full-batch Gaussian releases."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, sqrt
from typing import TYPE_CHECKING, ClassVar

from fedpriv.privacy.accountants.base import AdditiveAccountant, squared, unsupported
from fedpriv.privacy.events import GaussianEvent
from fedpriv.privacy.gaussian import gdp_delta, gdp_epsilon

if TYPE_CHECKING:
    from fedpriv.privacy.events import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class GdpAccountant(AdditiveAccountant):
    """μ² adds up, and (ε, δ) follows exactly: no other accountant can report less.

    Guarantee. Gaussian releases with noise fixed beforehand compose to μ-GDP, μ² = Σμ_t² (Dong,
    Roth and Su 2022, Cor. 2.1); the conversion is an equivalence. For noise that depends on earlier
    releases use `GdpFilter`.
    """

    name: ClassVar[str] = "gdp"
    method: ClassVar[str] = "exact Gaussian"

    @property
    def mu(self) -> float:
        """The μ of everything composed so far."""
        return sqrt(self.total)

    def cost(self, event: Event) -> float:
        """μ² = (Δ/σ)²."""
        if not isinstance(event, GaussianEvent):
            raise unsupported(self, event, "only full-batch Gaussian noise is exactly GDP")
        return squared(1 / event.relative_noise)

    def epsilon(self, delta: float) -> float:
        """Exact ε at δ."""
        if self.total == inf:
            return inf
        return gdp_epsilon(mu=self.mu, delta=delta) if self.total else 0.0

    def delta(self, epsilon: float) -> float:
        """Exact δ at ε."""
        if self.total == inf:
            return 1.0
        return gdp_delta(mu=self.mu, epsilon=epsilon) if self.total else 0.0
