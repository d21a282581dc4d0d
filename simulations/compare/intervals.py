"""Means over seeds with their confidence intervals."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A mean and its confidence interval; one observation has none.

    Attributes:
        mean: of the observations.
        half_width: of the interval; None for a single observation.
    """

    mean: float
    half_width: float | None

    @property
    def low(self) -> float | None:
        """The lower end."""
        return None if self.half_width is None else self.mean - self.half_width

    @property
    def high(self) -> float | None:
        """The upper end."""
        return None if self.half_width is None else self.mean + self.half_width

    def __neg__(self) -> Interval:
        return Interval(mean=-self.mean, half_width=self.half_width)

    @property
    def bounds(self) -> list[float] | None:
        """Both ends, for JSON."""
        if self.half_width is None:
            return None
        return [self.mean - self.half_width, self.mean + self.half_width]


def mean_interval(values: Sequence[float]) -> Interval:
    """Student's interval: mean ± t·s/√n at 95 %.

    Covers the mean over seeds with probability 95 % if the observations are independent and
    normal; it covers noise, partitions and initial models, which depend on the seed, but not the
    choice of test records, which all runs share.
    """
    if not values:
        raise ValueError("values must hold at least one observation, got none.")
    count = len(values)
    if count == 1:
        return Interval(mean=values[0], half_width=None)
    if min(values) == max(values):  # deterministic: no rounding of the mean either
        return Interval(mean=values[0], half_width=0.0)
    from scipy.special import stdtrit

    quantile = float(stdtrit(count - 1, (1 + CONFIDENCE) / 2))
    return Interval(mean=fmean(values), half_width=quantile * stdev(values) / sqrt(count))


def paired_difference(first: Sequence[float], second: Sequence[float]) -> Interval:
    """The interval of ``first − second``, seed by seed.

    Runs with the same seed share parties and first model, so their differences vary less than
    the runs themselves. A single number stands for a quantity that no seed changes.
    """
    if len(first) != len(second):
        raise ValueError(f"both must hold the same seeds, got {len(first)} and {len(second)}.")
    return mean_interval([a - b for a, b in zip(first, second, strict=True)])
