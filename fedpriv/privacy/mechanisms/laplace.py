"""Laplace mechanisms: pure differential privacy for a vector whose L2, or L1, sensitivity is known.

Laplace noise of scale Δ₂/ε on every coordinate is the textbook mechanism for *L1* sensitivity. With
an L2 sensitivity it is only √d·ε-DP. There are two sound forms; the unsound one is here for study.
Where an L1 sensitivity is known, `LaplaceMechanism` is the textbook mechanism.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod, sqrt
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fedpriv._validate import require_count, require_positive
from fedpriv.privacy.events import Event, LaplaceEvent, PureEvent
from fedpriv.privacy.mechanisms.mechanism import Mechanism, independent
from fedpriv.privacy.samplers import RoundedLaplace, rounded_normals
from fedpriv.privacy.samplers.sampler import require_scale

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedpriv.privacy.randomness import RandomStream


@dataclass(frozen=True, slots=True, kw_only=True)
class _VectorLaplace(Mechanism):
    """What all forms share: a sum of ``dimension`` numbers with a ``sensitivity``, mostly in L2."""

    sensitivity: float
    epsilon: float
    dimension: int

    def __post_init__(self) -> None:
        Mechanism.__post_init__(self)
        require_positive(sensitivity=self.sensitivity, epsilon=self.epsilon)
        require_count(dimension=self.dimension)

    def event(self) -> Event:
        """ε-DP; for a single number the whole privacy-loss distribution is known."""
        if self.dimension == 1:
            return LaplaceEvent(
                adjacency=self.adjacency, unit=self.unit, relative_noise=1 / self.epsilon
            )
        return PureEvent(adjacency=self.adjacency, unit=self.unit, epsilon=self.epsilon)

    @property
    def expected_squared_norm(self) -> float:
        """E‖b‖² of the noise vector b."""
        return self.dimension * self.noise_stddev**2

    @property
    def _coordinates(self) -> int:
        return self.dimension


@dataclass(frozen=True, slots=True, kw_only=True)
class L2LaplaceMechanism(_VectorLaplace):
    """Noise with density ∝ exp(-ε‖b‖₂/Δ₂): a Gamma(d, Δ₂/ε) radius in a uniform direction.

    Guarantee. ε-DP, by the triangle inequality (Chaudhuri, Monteleoni and Sarwate 2011). The less
    noisy of the two sound forms: E‖b‖² = d(d+1)·Δ₂²/ε².

    Sampling. For d = 1 exact, as `RoundedLaplace`. Otherwise as the scale mixture
    b = (Δ₂/ε)·√(2V)·N(0, I) with V ~ Gamma((d+1)/2, 1): given V the rounded Gaussians are exact
    (`rounded_normals`), but V is a float64 sum of logarithms of 52-bit uniforms. A relative
    error η in V moves the release by at most η·√(d/8) in total variation; with the tails that
    52 bits cannot reach, the release is within about d·2^-48 of its law. Read the guarantee as
    (ε, d·2^-48)-DP, or use `L1LaplaceMechanism`, which has no such term.
    """

    name: ClassVar[str] = "l2-laplace"

    @property
    def precision(self) -> str:
        """The radius of a vector is computed in double precision."""
        return "integer noise, within about d * 2^-48 of its law"

    @property
    def noise_stddev(self) -> float:
        """Standard deviation of the noise on one coordinate, √(d+1)·Δ₂/ε."""
        return sqrt(self.dimension + 1) * self.sensitivity / self.epsilon

    def _draw(self, shape: tuple[int, ...], step: float, stream: RandomStream) -> NDArray[np.int64]:
        """One radius and one direction for each vector along the last axis."""
        scale = self.sensitivity / step / self.epsilon
        if self.dimension == 1:
            return independent(RoundedLaplace(scale=scale), shape, stream)
        require_scale(largest=2.0**36, noise_stddev=self.noise_stddev / step)
        mixing = _gamma_half(self.dimension + 1, prod(shape[:-1]), stream)
        stddevs = scale * np.sqrt(2 * mixing)
        return rounded_normals(np.repeat(stddevs, self.dimension), stream).reshape(shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class L1LaplaceMechanism(_VectorLaplace):
    """Laplace noise of scale √d·Δ₂/ε on every coordinate, rounded to the grid exactly.

    Guarantee. ε-DP: a vector of L2 norm Δ₂ has an L1 norm of at most √d·Δ₂ (Dwork et al. 2006).
    E‖b‖² = 2d²·Δ₂²/ε², up to twice that of `L2LaplaceMechanism`.
    """

    name: ClassVar[str] = "l1-laplace"

    @property
    def scale(self) -> float:
        """The scale on one coordinate."""
        return sqrt(self.dimension) * self.sensitivity / self.epsilon

    @property
    def noise_stddev(self) -> float:
        """Standard deviation of the noise on one coordinate, √2 times the scale."""
        return sqrt(2) * self.scale

    def _draw(self, shape: tuple[int, ...], step: float, stream: RandomStream) -> NDArray[np.int64]:
        # In steps first: a tiny Δ₂/ε would be subnormal, and lose the digits of the noise.
        scale = sqrt(self.dimension) * (self.sensitivity / step) / self.epsilon
        return independent(RoundedLaplace(scale=scale), shape, stream)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaplaceMechanism(_VectorLaplace):
    """Laplace noise of scale Δ₁/ε on every coordinate, for an *L1* sensitivity; exact on the grid.

    Guarantee. ε-DP if ``sensitivity`` bounds how far one unit moves the sum in L1 (Dwork et al.
    2006). E‖b‖² = 2d·Δ₁²/ε²: for gradients with few coordinates, such as those of categories, far
    less than what an L2 sensitivity needs; for dense ones, where Δ₁ ≈ √d·Δ₂, no less.
    """

    name: ClassVar[str] = "laplace"

    @property
    def scale(self) -> float:
        """The scale on one coordinate."""
        return self.sensitivity / self.epsilon

    @property
    def noise_stddev(self) -> float:
        """Standard deviation of the noise on one coordinate, √2 times the scale."""
        return sqrt(2) * self.scale

    def _draw(self, shape: tuple[int, ...], step: float, stream: RandomStream) -> NDArray[np.int64]:
        return independent(
            RoundedLaplace(scale=self.sensitivity / step / self.epsilon), shape, stream
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsoundLaplaceMechanism(_VectorLaplace):
    """Laplace noise of scale Δ₂/ε on every coordinate. **Not ε-DP**: for study only.

    The form often printed for L2 sensitivities. An L2 change of Δ₂ spread over all coordinates is
    an L1 change of √d·Δ₂, so the release is √d·ε-DP, no better. `event` reports that cost, so no
    budget is deceived; ``epsilon`` is only what is claimed.
    """

    name: ClassVar[str] = "unsound-laplace"
    sound: ClassVar[bool] = False

    def event(self) -> PureEvent:
        """What the release really costs: √d·ε."""
        return PureEvent(
            adjacency=self.adjacency, unit=self.unit, epsilon=sqrt(self.dimension) * self.epsilon
        )

    @property
    def noise_stddev(self) -> float:
        """Standard deviation of the noise on one coordinate."""
        return sqrt(2) * self.sensitivity / self.epsilon

    def _draw(self, shape: tuple[int, ...], step: float, stream: RandomStream) -> NDArray[np.int64]:
        return independent(
            RoundedLaplace(scale=self.sensitivity / step / self.epsilon), shape, stream
        )


def _gamma_half(halves: int, count: int, stream: RandomStream) -> NDArray[np.float64]:
    """``count`` draws of Gamma(halves/2, 1): a sum of exponentials, and half a squared normal."""
    whole = stream.exponential(count * (halves // 2)).reshape(count, halves // 2)
    drawn: NDArray[np.float64] = whole.sum(axis=1)
    if halves % 2:
        drawn += np.square(stream.normal(count)) / 2
    return drawn
