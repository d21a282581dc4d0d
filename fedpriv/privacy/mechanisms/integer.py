"""Integer mechanisms: discrete Laplace, discrete Gaussian and Skellam noise.

Sensitivity and noise are stated in steps of the grid, so the step of a release changes neither.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, expm1, sqrt
from typing import TYPE_CHECKING, ClassVar

from fedpriv._validate import require_count, require_positive
from fedpriv.privacy.events import PureEvent, SkellamEvent, ZcdpEvent
from fedpriv.privacy.mechanisms.mechanism import Mechanism, independent
from fedpriv.privacy.samplers import DiscreteGaussian, DiscreteLaplace, Skellam

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fedpriv.privacy.randomness import RandomStream


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscreteLaplaceMechanism(Mechanism):
    """P(k) ∝ exp(-ε|k|/Δ₁) on every coordinate of a sum with integer L1 ``sensitivity`` Δ₁.

    Guarantee. ε-DP, and exactly so for a single number (Ghosh, Roughgarden and Sundararajan 2009).
    """

    name: ClassVar[str] = "discrete-laplace"
    sensitivity: int
    epsilon: float

    def __post_init__(self) -> None:
        Mechanism.__post_init__(self)
        require_count(sensitivity=self.sensitivity)
        require_positive(epsilon=self.epsilon)

    def event(self) -> PureEvent:
        """ε-DP."""
        return PureEvent(adjacency=self.adjacency, unit=self.unit, epsilon=self.epsilon)

    @property
    def noise_stddev(self) -> float:
        """Standard deviation of the noise on one coordinate: √2·e^(-a/2)/(1 - e^-a), a = ε/Δ₁."""
        rate = self.epsilon / self.sensitivity
        return sqrt(2) * exp(-rate / 2) / -expm1(-rate)

    def _draw(self, shape: tuple[int, ...], step: float, stream: RandomStream) -> NDArray[np.int64]:
        return independent(DiscreteLaplace(scale=self.sensitivity / self.epsilon), shape, stream)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscreteGaussianMechanism(Mechanism):
    """P(k) ∝ exp(-k²/(2·stddev²)) on every coordinate of an integer sum with L2 ``sensitivity``.

    Guarantee. ρ-zCDP with ρ = Δ₂²/(2·stddev²) (Canonne, Kamath and Steinke 2020, Thm. 4).
    """

    name: ClassVar[str] = "discrete-gaussian"
    sensitivity: float
    stddev: float

    def __post_init__(self) -> None:
        Mechanism.__post_init__(self)
        require_positive(sensitivity=self.sensitivity, stddev=self.stddev)

    def event(self) -> ZcdpEvent:
        """ρ-zCDP."""
        return ZcdpEvent(
            adjacency=self.adjacency, unit=self.unit, rho=(self.sensitivity / self.stddev) ** 2 / 2
        )

    @property
    def noise_stddev(self) -> float:
        """The parameter σ of the law; the true standard deviation is never larger."""
        return self.stddev

    def _draw(self, shape: tuple[int, ...], step: float, stream: RandomStream) -> NDArray[np.int64]:
        return independent(DiscreteGaussian(stddev=self.stddev), shape, stream)


@dataclass(frozen=True, slots=True, kw_only=True)
class SkellamMechanism(Mechanism):
    """Symmetric Skellam noise of ``variance`` on every coordinate of an integer sum.

    Guarantee. Rényi DP in both sensitivities (Agarwal, Kairouz and Liu 2021, Thm. 3.5). Shares of
    Skellam noise add up to Skellam noise exactly, which makes it the law for noise at the parties.
    """

    name: ClassVar[str] = "skellam"
    l1_sensitivity: float
    l2_sensitivity: float
    variance: float

    def __post_init__(self) -> None:
        Mechanism.__post_init__(self)
        self.event()  # the event's own checks are the mechanism's

    def event(self) -> SkellamEvent:
        """Rényi DP of the Skellam law."""
        return SkellamEvent(
            adjacency=self.adjacency,
            unit=self.unit,
            variance=self.variance,
            l1_sensitivity=self.l1_sensitivity,
            l2_sensitivity=self.l2_sensitivity,
        )

    @property
    def noise_stddev(self) -> float:
        """Standard deviation of the noise on one coordinate."""
        return sqrt(self.variance)

    def _draw(self, shape: tuple[int, ...], step: float, stream: RandomStream) -> NDArray[np.int64]:
        return independent(Skellam(variance=self.variance), shape, stream)
