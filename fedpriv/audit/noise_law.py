"""Noise check: whether the noise in releases is what a plan states, direction by direction.

An audit by likelihood ratios examines noise along one direction, in which the canary moves the sum,
and adds it up over the rounds. It misses noise that is absent elsewhere, or that cancels: a
coordinate without noise, one draw reused in two rounds, bounded noise that is normal only in the
mean. The auditor knows the exact sums, so it can examine the noise itself.

**What is tested.** In units of the planned law, noise is N(0, 1) on every coordinate of every
round, independent of all other noise and of the sum to which it is added. Then, exactly, for any
number of rounds and runs:

- squares add up to χ²: of all noise, of a coordinate, of a round, and along the sum it is added to
  (a direction that is known before the noise is drawn);
- means are normal: of a coordinate, and along that sum, so that noise which depends on records
  shows;
- the least singular value of N draws of a vector of n is at least √N - √n - t, except with a
  probability of exp(-t²/2) (Davidson and Szarek 2001, Thm. II.13): no combination of coordinates,
  nor of rounds, has less noise than that (of 256 of them, where there are more);
- the empirical distribution stays within √(ln(2/p)/(2N)) of Φ, except with a probability of p
  (Massart 1990).

Each test has the same share of the failure probability. The spread tests reject only too little
noise; the last test also rejects too much, since the accounting assumes the law of the plan.

**What it cannot see**: faults of the generator itself, in an audit whose noise follows from a seed;
a few per cent of a single coordinate; what is common to different runs.
"""

from __future__ import annotations

from math import log, sqrt
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import chdtrc, gammainc, ndtr

from fedpriv._validate import require_open_unit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]

FAILURE = 1e-6
"""The largest probability that a check rejects noise that is as planned."""

_COARSEST = 0.1  # a grid in standard deviations: on a coarser one integer noise is not normal
_OF_A_GRID = 0.25  # what a grid of one standard deviation may change of a distribution, at most
_BINS = 4096
_MOST = 256  # coordinates, or rounds, of which combinations are looked at: evenly spread
_TESTS = 9


class NoiseCheck:
    """The noise of repeated runs, in units of its planned law.

    Args:
        rounds: How many releases a run has.
        dimension: How many coordinates each has.
    """

    def __init__(self, rounds: int, dimension: int) -> None:
        self._shape = rounds, dimension
        self._runs, self._grid = 0, 0.0
        self._squares, self._means = np.zeros(self._shape), np.zeros(dimension)
        self._counts = np.zeros(_BINS)
        self._along = np.zeros(3)  # how often, the sum, the sum of squares
        self._some = [np.linspace(0, n - 1, min(n, _MOST)).astype(np.int64) for n in self._shape]
        self._products = [np.zeros((each.size, each.size)) for each in self._some]

    @property
    def numbers(self) -> int:
        """How many numbers were looked at."""
        return int(self._runs * self._squares.size)

    def add(self, noise: Matrix, sums: Matrix, *, grid: float = 0.0) -> None:
        """The noise of one run.

        Args:
            noise: In units of its law, (rounds, dimension).
            sums: What each was added to, in whatever units.
            grid: The width of the grid on which the noise lies, in its units.
        """
        if not noise.shape == sums.shape == self._shape:
            raise ValueError(
                f"noise and sums must have shape {self._shape}, got {noise.shape} and {sums.shape}."
            )
        self._runs, self._grid = self._runs + 1, max(self._grid, grid)
        self._squares += noise**2
        self._means += noise.sum(axis=0)
        places = np.minimum((ndtr(noise) * _BINS).astype(np.int64), _BINS - 1)
        self._counts += np.bincount(places.ravel(), minlength=_BINS)
        lengths = np.linalg.norm(sums, axis=1)
        along = (noise * sums).sum(axis=1)[lengths > 0] / lengths[lengths > 0]
        self._along += along.size, along.sum(), (along**2).sum()
        for products, some, all_of in zip(
            self._products, self._some, (noise, noise.T), strict=True
        ):
            draws = all_of[some]
            np.add(products, draws @ draws.T, out=products)

    def fault(self, *, failure: float = FAILURE) -> str:
        """What is wrong with the noise, in words; empty if no fault was found.

        Args:
            failure: The largest probability of rejecting noise that is as planned.
        """
        require_open_unit(failure=failure)
        if not self._runs or self._grid > _COARSEST:
            return ""
        return "; ".join(self._faults(failure / _TESTS))

    def _faults(self, share: float) -> Iterator[str]:
        rounds, dimension = self._shape
        times = self._runs * rounds
        everything = float(self._squares.sum())
        if _below(everything, self.numbers) < share:
            spread = sqrt(everything / self.numbers)
            yield f"its standard deviation is {spread:.3g} of the planned one"
        for axis, each in enumerate(("coordinate", "round")):
            sums = self._squares.sum(axis=axis)
            freedom = self.numbers // sums.size
            least = int(np.argmin(sums))
            if sums.size * _below(float(sums[least]), freedom) < share:
                spread = sqrt(float(sums[least]) / freedom)
                yield f"in {each} {least} it is {spread:.3g} of the planned one"
        yield from self._combined(share)
        if chdtrc(dimension, float(self._means @ self._means) / times) < share:
            yield "its mean is not zero"
        count, total, squares = (float(each) for each in self._along)
        if count and 2 * ndtr(-abs(total) / sqrt(count)) < share:
            yield "it goes with the sum that it is added to"
        if count and _below(squares, count) < share:
            yield "there is too little of it along the sum that it is added to"
        share_below = np.cumsum(self._counts) / self.numbers
        distance = float(np.abs(share_below - np.arange(1, _BINS + 1) / _BINS).max())
        if distance > sqrt(log(2 / share) / (2 * self.numbers)) + _OF_A_GRID * self._grid:
            yield f"its distribution is {distance:.2g} away from the planned one"

    def _combined(self, share: float) -> Iterator[str]:
        """Combinations of rounds, and of coordinates, with less noise than chance allows."""
        beyond = sqrt(-2 * log(share))
        for axis, each in enumerate(("rounds", "coordinates")):
            products = self._products[axis]
            if len(products) < 2:
                continue
            draws = self.numbers // self._shape[axis]
            least = sqrt(max(0.0, float(np.linalg.eigvalsh(products)[0])))
            if least < sqrt(draws) - sqrt(len(products)) - beyond:
                yield f"a combination of {each} has {least / sqrt(draws):.2g} of the planned noise"


def _below(squares: float, freedom: float) -> float:
    """The probability of so small a χ², or of a smaller one."""
    return float(gammainc(freedom / 2, squares / 2))
