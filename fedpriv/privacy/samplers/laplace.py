"""Integer noise with Laplace shape: the discrete and the rounded Laplace distribution."""

from __future__ import annotations

from dataclasses import dataclass
from math import ldexp
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.privacy.samplers.rejection import TAIL, RejectionTable
from fedpriv.privacy.samplers.sampler import (
    IntegerSampler,
    RoundedSampler,
    fine_bits,
    require_scale,
)

if TYPE_CHECKING:
    from mpmath.ctx_mp import MPContext
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscreteLaplace(IntegerSampler):
    """P(k) ∝ exp(-|k|/scale) on the integers: the two-sided geometric law (Ghosh et al. 2009)."""

    scale: float

    def __post_init__(self) -> None:
        require_scale(scale=self.scale)
        object.__setattr__(self, "_table", RejectionTable.build(_LaplaceLaw(self.scale)))


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundedLaplace(RoundedSampler):
    """The nearest integer to a Laplace draw with density exp(-|y|/scale)/(2·scale).

    Added to an integer it is the continuous Laplace mechanism followed by rounding, so it keeps
    that mechanism's guarantee for any real sensitivity.
    """

    scale: float

    def __post_init__(self) -> None:
        require_scale(scale=self.scale)
        bits = fine_bits(self.scale)
        table = RejectionTable.build(_LaplaceLaw(ldexp(self.scale, bits)), offset=0.5)
        object.__setattr__(self, "_table", table)
        object.__setattr__(self, "_fine_bits", bits)


@dataclass(frozen=True, slots=True)
class _LaplaceLaw:
    """exp(-|x|/t). P(|X| ≥ r) is exp(-r/t) on the line and at most twice that on the integers."""

    scale: float

    @property
    def reach(self) -> float:
        return self.scale * TAIL

    def ratio(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.exp(-np.abs(x) / self.scale)

    def exact_ratio(self, x: Any, context: MPContext) -> Any:
        return context.exp(-abs(x) / context.mpf(self.scale))
