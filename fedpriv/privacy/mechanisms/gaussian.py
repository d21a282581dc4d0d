"""The Gaussian mechanism."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fedpriv._validate import require_positive
from fedpriv.privacy.events import GaussianEvent
from fedpriv.privacy.mechanisms.mechanism import Mechanism, independent
from fedpriv.privacy.samplers import RoundedGaussian

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fedpriv.privacy.randomness import RandomStream


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianMechanism(Mechanism):
    """N(0, stddev²) on every coordinate of a sum with L2 ``sensitivity``, rounded to the grid.

    Guarantee. Exactly μ-GDP with μ = sensitivity/stddev (Dong, Roth and Su 2022, Thm. 1): rounding
    is post-processing.
    """

    name: ClassVar[str] = "gaussian"
    sensitivity: float
    stddev: float

    def __post_init__(self) -> None:
        Mechanism.__post_init__(self)
        require_positive(sensitivity=self.sensitivity, stddev=self.stddev)

    def event(self) -> GaussianEvent:
        """The event of a full-batch Gaussian release: exactly μ-GDP."""
        return GaussianEvent(
            adjacency=self.adjacency, unit=self.unit, relative_noise=self.stddev / self.sensitivity
        )

    @property
    def noise_stddev(self) -> float:
        """Standard deviation of the noise on one coordinate."""
        return self.stddev

    def _draw(self, shape: tuple[int, ...], step: float, stream: RandomStream) -> NDArray[np.int64]:
        return independent(RoundedGaussian(stddev=self.stddev / step), shape, stream)
