"""Sums of clipped updates in fixed point: every party's update is bounded, rounded and added.

**What a party contributes.** An update u becomes w·u·min(1, C/‖u‖), rounded to the nearest point of
the grid. Before rounding its norm is at most w·C, whatever training and floating point produced:
the norm is computed in float64 from the very numbers that are added, and is then raised slightly.
For d coordinates a sum of squares in any order is within a factor 1 ± d·2⁻⁵³ (Higham 2002, §3.1); a
root, a quotient and two products add fewer than eight roundings; so norms are raised by a factor 1
+ (d + 16)·2⁻⁵². Squares that vanish hide less than √d·2⁻⁵³⁷, nothing beside C ≥ 2⁻⁴⁰⁰. An update
that is not finite, or too long for its square to be, counts as zero.

Integers add up exactly, in any order: the sum does not depend on who computes which part of it.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv._compiled import compiled
from fedpriv.learning.training.settings import require_clip_norm

if TYPE_CHECKING:
    from numpy.typing import NDArray

_EXACT = 2.0**52  # float64 holds sums of integers up to here
_BLOCK = 2048  # coordinates of all updates at a time: their sums stay in the nearest cache


class RoundedSum:
    """The sum of clipped and rounded updates, and their norms before clipping.

    Args:
        dimension: d.
        clip_norm: C, from 2⁻⁴⁰⁰ to 2⁴⁰⁰: squares must neither vanish nor overflow; None for no
            clipping.
        weights: (m,), at most 1.
        step: The distance of grid points.
        bound: The largest coordinate of a weighted update: at least C. Without clipping, a larger
            coordinate is an error.
    """

    def __init__(
        self,
        *,
        dimension: int,
        clip_norm: float | None,
        weights: NDArray[np.float64],
        step: float,
        bound: float,
    ) -> None:
        if clip_norm is not None:
            require_clip_norm(clip_norm)
            if bound < clip_norm:
                raise ValueError(
                    f"bound must be at least clip_norm = {clip_norm!r}, got {bound!r}: a clipped "
                    "update may have one coordinate as large as that."
                )
        self.total = np.zeros(dimension, np.int64)
        self.norms = np.zeros(len(weights))
        self._partial = np.zeros(dimension)
        self._pending = 0
        self._clip = inf if clip_norm is None else clip_norm
        self._weights = weights
        self._scale, self._limit = 1 / step, bound / step
        self._most = max(1, int(_EXACT // max(1.0, self._limit)))

    def add(self, parties: NDArray[np.int64], rows: NDArray[Any]) -> None:
        """Add the updates, (k, ≥ d), of the parties with the given indices."""
        for first in range(0, len(rows), self._most):
            chosen = parties[first : first + self._most]
            if self._pending + len(chosen) > self._most:
                self._flush()
            self._pending += len(chosen)
            fits = _add_clipped(
                rows[first : first + self._most],
                chosen,
                self._weights,
                self._clip,
                self._scale,
                self._limit,
                self._partial,
                self.norms,
            )
            if not fits:
                raise ValueError(
                    "an update has a coordinate beyond the bound of the sum: local training "
                    "diverges. Lower learning_rate, or set a clip norm."
                )

    def result(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The sum, (d,), and the norms, (m,): infinite for updates that count as zero."""
        self._flush()
        return self.total, self.norms

    def _flush(self) -> None:
        self.total += self._partial.astype(np.int64)
        self._partial[:] = 0.0
        self._pending = 0


@compiled(relaxed={"reassoc", "contract", "nsz"})
def squared_norm(row: NDArray[Any]) -> float:
    """‖row‖² in float64."""
    total = 0.0
    for k in range(len(row)):
        value = np.float64(row[k])
        total += value * value
    return total


@compiled()
def _add_clipped(
    rows: NDArray[Any],
    parties: NDArray[np.int64],
    weights: NDArray[np.float64],
    clip: float,
    scale: float,
    limit: float,
    partial: NDArray[np.float64],
    norms: NDArray[np.float64],
) -> bool:
    """Add up rounded updates; false if a coordinate does not fit although nothing is clipped."""
    d, n = len(partial), len(rows)
    slack = 1 + (d + 16) * 2.0**-52
    factors = np.zeros(n)
    for i in range(n):
        party = parties[i]
        norm = np.sqrt(squared_norm(rows[i, :d]))
        if not norm < inf:
            norms[party] = inf
            continue
        norms[party] = norm
        factors[i] = weights[party]
        if norm * slack > clip:
            factors[i] *= clip / (norm * slack)
        factors[i] *= scale
    fits = True
    for start in range(0, d, _BLOCK):
        total = partial[start : start + _BLOCK]
        for i in range(n):
            if not norms[parties[i]] < inf:
                continue
            factor, piece = factors[i], rows[i, start : start + len(total)]
            if clip < inf:
                for k in range(len(total)):
                    # No longer than w·C, so no coordinate is beyond the bound.
                    total[k] += np.rint(factor * piece[k])
            else:
                for k in range(len(total)):
                    scaled = factor * piece[k]
                    fits &= abs(scaled) <= limit
                    total[k] += np.rint(scaled)
    return fits
