"""Stochastic rounding of one bounded vector per party: what party-level privacy needs.

Rounding to nearest moves a vector by up to √d/2 in L2, all in one direction if it must. Rounding
up or down at random, with the right mean, almost never does; and since vectors that grew too much
are rounded again, the bound below is certain, not just likely.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, isfinite, nextafter, sqrt
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedpriv._validate import require_count, require_positive
from fedpriv.secagg.numbers.fixed_point import l1_bound

if TYPE_CHECKING:
    from fedpriv.secagg.numbers.fixed_point import FixedPoint, Ring

Uniform = Callable[[int], NDArray[np.float64]]
"""``count`` independent numbers, uniform on (0, 1), from a secret source."""

_ATTEMPTS = 2000  # each succeeds with probability at least 1 - e^(-1/2): all fail with e^-1000


@dataclass(frozen=True, slots=True, kw_only=True)
class StochasticRounding:
    """Clip a vector, round it to ``grid`` at random, and again until its norm is in bounds.

    Guarantee. What `encode` returns has an L2 norm of at most `l2_norm` and an L1 norm of at most
    `l1_norm`, in integer units: the sensitivities of a sum when one party is added or removed;
    twice that when one is replaced. An attempt fails with probability at most β = e^(-1/2)
    (Kairouz, Liu and Steinke 2021, Sec. 4), and the result is unbiased up to that condition.

    Attributes:
        grid: The step and the ring.
        clip_norm: The L2 norm that answers are scaled down to, c.
        dimension: The number of coordinates, d.
    """

    grid: FixedPoint
    clip_norm: float
    dimension: int

    def __post_init__(self) -> None:
        require_positive(clip_norm=self.clip_norm)
        require_count(dimension=self.dimension)
        if self.clip_norm / self.grid.step + 1 >= 2 ** (self.grid.bits - 1):
            raise ValueError(
                f"clip_norm must be below {2 ** (self.grid.bits - 1)} steps of the grid, got "
                f"{self.clip_norm!r}. Use FixedPoint.for_sum to choose step and ring."
            )

    @property
    def l2_norm(self) -> float:
        """min(sc + √d, √((sc)² + d/4 + √(2 ln(1/β))·(sc + √d/2))), where s = 1/step, β = e^(-1/2).

        The factor √(2 ln(1/β)) is 1. Rounded up.
        """
        scaled, root = self.clip_norm / self.grid.step, sqrt(self.dimension)
        likely = sqrt(scaled**2 + self.dimension / 4 + (scaled + root / 2))
        return nextafter(min(scaled + root, likely), inf)

    @property
    def l1_norm(self) -> float:
        """l2_norm·min(√d, l2_norm): see `l1_bound`."""
        return l1_bound(self.l2_norm, self.dimension)

    def encode(self, answer: NDArray[np.float64], uniform: Uniform) -> Ring:
        """The answer as ring elements.

        Raises:
            ValueError: If ``answer`` is not finite or not of shape (d,).
        """
        if answer.shape != (self.dimension,) or answer.dtype != np.float64:
            raise ValueError(f"answer must be float64 of shape ({self.dimension},).")
        with np.errstate(over="ignore"):
            norm = _norm(answer)
        if not isfinite(norm):
            raise ValueError("answer must be finite, with an L2 norm below 1e154.")
        scaled = answer * (self.clip_norm / max(norm, self.clip_norm) / self.grid.step)
        below = np.floor(scaled)
        fraction = scaled - below
        for _ in range(_ATTEMPTS):
            rounded = below + (uniform(self.dimension) < fraction)
            if _norm(rounded) <= self.l2_norm:
                return rounded.astype(np.int64).astype(self.grid.dtype)
        raise RuntimeError("The source of uniform numbers is broken: no rounding was in bounds.")


def _norm(vector: NDArray[np.float64]) -> float:
    # Not a BLAS dot product: its threads make it slow on a busy machine.
    return float(np.sqrt(np.square(vector).sum()))
