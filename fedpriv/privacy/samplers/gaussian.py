"""Integer noise with Gaussian shape: the discrete Gaussian and the rounded Gaussian."""

from __future__ import annotations

from dataclasses import dataclass
from math import ldexp, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.privacy.samplers.comparison import exact_context, extend
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

    from fedpriv.privacy.randomness import RandomStream

_CELL_BITS = 42
_LARGEST = 2.0**48  # twelve standard deviations of it are still integers in float64


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscreteGaussian(IntegerSampler):
    """P(k) ∝ exp(-k²/(2·stddev²)) on the integers (Canonne, Kamath and Steinke 2020).

    ``stddev`` is the parameter σ of the law; its true standard deviation is at most σ, and from
    σ = 2 on the two differ by less than double precision can show.
    """

    stddev: float

    def __post_init__(self) -> None:
        require_scale(stddev=self.stddev)
        object.__setattr__(self, "_table", RejectionTable.build(_GaussianLaw(self.stddev)))


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundedGaussian(RoundedSampler):
    """The nearest integer to N(0, stddev²): P(k) = Φ((k+½)/stddev) - Φ((k-½)/stddev).

    Added to an integer it is the continuous Gaussian mechanism followed by rounding, so it keeps
    that mechanism's exact guarantee.
    """

    stddev: float

    def __post_init__(self) -> None:
        require_scale(stddev=self.stddev)
        bits = fine_bits(self.stddev)
        table = RejectionTable.build(_GaussianLaw(ldexp(self.stddev, bits)), offset=0.5)
        object.__setattr__(self, "_table", table)
        object.__setattr__(self, "_fine_bits", bits)


def rounded_normals(stddevs: NDArray[np.float64], stream: RandomStream) -> NDArray[np.int64]:
    """The nearest integers to N(0, stddev²), with a standard deviation for each draw.

    For scale mixtures, where a table per draw would cost too much: one table of standard normals,
    in cells of 2^-42, serves all. Where a cell, or the rounding error of the product, straddles the
    border between two integers, the normal gets 64 more bits and the product is formed exactly.
    They are uniform inside the cell, which is right up to (1 + stddev)·2^-86 in total variation.
    """
    if not ((stddevs >= 0) & (stddevs <= _LARGEST)).all():
        raise ValueError(f"stddevs must lie between 0 and {_LARGEST:g}, in steps of the grid.")
    cells = RejectionTable.build(_GaussianLaw(ldexp(1.0, _CELL_BITS)), offset=0.5)
    x = cells.draw(stddevs.size, stream)
    value = stddevs * ((x + 0.5) * 2.0**-_CELL_BITS)
    nearest = np.rint(value)
    doubt = stddevs * 2.0 ** -(_CELL_BITS + 1) + np.abs(value) * 2.0**-50
    open_ = np.flatnonzero(np.abs(value - nearest) + doubt >= 0.5)
    if open_.size:
        context = exact_context()
        for index in open_.tolist():
            place = int(x[index]) + extend(0, 0, stream, context)
            exact = context.ldexp(context.mpf(float(stddevs[index])) * place, -_CELL_BITS)
            nearest[index] = int(context.floor(exact + 0.5))
    return nearest.astype(np.int64)


@dataclass(frozen=True, slots=True)
class _GaussianLaw:
    """exp(-x²/(2σ²)). On the integers as on the line P(|X| ≥ r) ≤ 2·exp(-r²/(2σ²)) [CKS20]."""

    stddev: float

    @property
    def reach(self) -> float:
        return self.stddev * sqrt(2 * TAIL)

    def ratio(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.exp(-0.5 * np.square(x / self.stddev))

    def exact_ratio(self, x: Any, context: MPContext) -> Any:
        return context.exp(-((x / context.mpf(self.stddev)) ** 2) / 2)
