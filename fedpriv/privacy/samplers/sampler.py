"""The integer sampler interface: a frozen value that holds its table and draws from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import frexp
from typing import TYPE_CHECKING

from fedpriv._validate import require_positive

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fedpriv.privacy.randomness import RandomStream
    from fedpriv.privacy.samplers.rejection import RejectionTable

SMALLEST_SCALE = 2.0**-20
LARGEST_SCALE = 2.0**42
"""Scales the tables cover: every draw is then exact in float64, and 8 bits or more begin u."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerSampler:
    """Integer noise of one distribution and one scale. Use a subclass."""

    _table: RejectionTable = field(init=False, repr=False, compare=False)

    def draw(self, count: int, stream: RandomStream) -> NDArray[np.int64]:
        """``count`` independent draws."""
        return self._table.draw(count, stream)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundedSampler(IntegerSampler):
    """Nearest integers to draws y from a continuous distribution. Use a subclass.

    Rounding y only needs the cell [x, x + 1) of y·2^bits that a draw falls into, which is drawn
    with probability proportional to the density at the middle of the cell. On a grid where the
    scale is at least 2^40 cells, the middle stands for the cell to a relative (z² - 1)/24·2^-80 for
    a Gaussian at z deviations, 2^-85 in total variation, and exactly for a Laplace law.
    """

    _fine_bits: int = field(init=False, repr=False, compare=False)

    def draw(self, count: int, stream: RandomStream) -> NDArray[np.int64]:
        """``count`` independent draws."""
        drawn = self._table.draw(count, stream)
        drawn += 1 << (self._fine_bits - 1)
        drawn >>= self._fine_bits
        return drawn


def fine_bits(scale: float) -> int:
    """Fractional bits, at least one, that bring a scale to at least 2^40."""
    return max(1, 41 - frexp(scale)[1])


def require_scale(
    *, smallest: float = SMALLEST_SCALE, largest: float = LARGEST_SCALE, **scale: float
) -> None:
    """Refuse a scale, in steps of the integer grid, that the tables do not cover."""
    require_positive(**scale)
    for name, value in scale.items():
        if not smallest <= value <= largest:
            raise ValueError(
                f"{name} must lie between {smallest:g} and {largest:g}, in steps of the integer "
                f"grid, got {value!r}: choose a {'finer' if value < smallest else 'coarser'} grid."
            )
