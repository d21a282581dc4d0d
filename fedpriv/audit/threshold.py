"""Threshold audit: lower bounds on μ and ε from one set of outcomes, with nothing assumed.

A test that guesses "the first neighbour" when a statistic is at or above a threshold is right with
probability TPR on the first, and wrong with probability FPR on the second. For a μ-GDP release
Φ⁻¹(TPR) - Φ⁻¹(FPR) ≤ μ, and for an (ε, δ)-DP one TPR ≤ e^ε·FPR + δ, whatever the statistic. The
threshold is chosen on draws that are not used to measure the rates; Clopper-Pearson limits, each
with half of the failure probability, give the bounds a stated confidence.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtri

from fedpriv._validate import require_delta, require_open_unit
from fedpriv.audit.clopper_pearson import lower_limit, upper_limit

if TYPE_CHECKING:
    from numpy.typing import NDArray

_THRESHOLDS = 1000
_LEAST = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Operating:
    """What one threshold shows, with a stated confidence.

    Attributes:
        threshold: At or above it, the first neighbour is guessed.
        true_positives: At least this rate, on the first.
        false_positives: At most this rate, on the second.
    """

    threshold: float
    true_positives: float
    false_positives: float

    @property
    def mu(self) -> float:
        """Φ⁻¹(TPR) - Φ⁻¹(FPR): the release is μ-GDP for no smaller μ."""
        if self.true_positives <= self.false_positives:
            return 0.0
        return float(ndtri(self.true_positives) - ndtri(self.false_positives))

    def epsilon(self, delta: float) -> float:
        """ln((TPR - δ)/FPR): the release is (ε, δ)-DP for no smaller ε."""
        require_delta(delta=delta)
        if self.true_positives - delta <= self.false_positives:
            return 0.0
        return log((self.true_positives - delta) / self.false_positives)


def operating_point(
    first: NDArray[np.float64], second: NDArray[np.float64], *, confidence: float
) -> Operating:
    """The best threshold, chosen on half of the draws and measured on the other half.

    It is chosen for μ. By the symmetry of the test, a statistic whose sign is wrong shows nothing.

    Args:
        first: A statistic of independent releases on one neighbour, larger there.
        second: The same of releases on the other.
        confidence: The probability, over the draws, that both limits are true.
    """
    require_open_unit(confidence=confidence)
    if min(first.size, second.size) < _LEAST:
        raise ValueError(
            f"first and second must have {_LEAST} draws or more, got {first.size} and "
            f"{second.size}."
        )
    failure = (1 - confidence) / 2
    chosen = (first[::2], second[::2])  # even and odd: independent in whatever order draws come
    levels = np.quantile(np.concatenate(chosen), np.linspace(0, 1, _THRESHOLDS))
    right, wrong = _rates(levels, *chosen, failure)
    with np.errstate(invalid="ignore"):
        shown = np.nan_to_num(ndtri(right) - ndtri(wrong), nan=-np.inf)
    best = levels[int(np.argmax(shown)) : int(np.argmax(shown)) + 1]
    right, wrong = _rates(best, first[1::2], second[1::2], failure)
    return Operating(
        threshold=float(best[0]),
        true_positives=float(right[0]),
        false_positives=float(wrong[0]),
    )


def _rates(
    levels: NDArray[np.float64],
    first: NDArray[np.float64],
    second: NDArray[np.float64],
    failure: float,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Limits of the rates at or above each level: of the first from below, else from above."""
    above = [each.size - np.searchsorted(np.sort(each), levels) for each in (first, second)]
    return (
        lower_limit(above[0], first.size, failure=failure),
        upper_limit(above[1], second.size, failure=failure),
    )
