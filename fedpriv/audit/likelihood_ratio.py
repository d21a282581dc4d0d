"""Audit by likelihood ratios: a lower bound on ε from many releases on two neighbouring inputs.

If a mechanism is (ε, δ)-DP, then every set A of outputs has P(A) ≤ e^ε·Q(A) + δ, where P and Q are
the laws of the release on two neighbours. The audit looks for a set that contradicts a claimed ε:
by Neyman and Pearson the best ones are where the likelihood ratio of P to Q is above a threshold,
or below one. Half of the draws choose the set, the other half measure it, so that the choice does
not flatter the result; Clopper-Pearson intervals make it a statement with a stated confidence.

A bound above the claim proves a violation. A bound below it proves nothing: a weak statistic, a
harmless pair of inputs or few draws give small bounds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedpriv._validate import require_count, require_delta, require_open_unit, require_positive
from fedpriv.audit.clopper_pearson import lower_limit, upper_limit

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from fedpriv.privacy.mechanisms import Mechanism
    from fedpriv.privacy.randomness import RandomStream

_BATCH = 1 << 16  # releases in memory at a time
_THRESHOLDS = 1000


def audit_mechanism(
    mechanism: Mechanism,
    *,
    shift: NDArray[np.int64],
    statistic: Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.float64]],
    step: float,
    draws: int,
    confidence: float,
    stream: RandomStream,
    delta: float = 0.0,
) -> float:
    """An ε that releases of ``shift`` and of zero, ``draws`` of each, show to be exceeded.

    ``statistic(outputs, shift)`` is one of the three below, whichever grows with the likelihood
    ratio of the law; the outputs are one release per row, in steps of the grid.
    """
    require_count(draws=draws)

    def statistics(total: NDArray[np.int64]) -> NDArray[np.float64]:
        batches = []
        for start in range(0, draws, _BATCH):
            shape = (min(_BATCH, draws - start), total.size)
            outputs = total + mechanism.noise(shape, step=step, stream=stream)
            batches.append(statistic(outputs, shift))
        return np.concatenate(batches)

    return epsilon_lower_bound(
        statistics(shift), statistics(np.zeros_like(shift)), confidence=confidence, delta=delta
    )


def laplace_statistic(outputs: NDArray[np.int64], shift: NDArray[np.int64]) -> NDArray[np.float64]:
    """‖y‖₁ - ‖y - shift‖₁: for Laplace noise that is independent on every coordinate."""
    return np.asarray((np.abs(outputs) - np.abs(outputs - shift)).sum(axis=1), dtype=np.float64)


def radial_statistic(outputs: NDArray[np.int64], shift: NDArray[np.int64]) -> NDArray[np.float64]:
    """‖y‖₂ - ‖y - shift‖₂: for noise whose density falls exponentially with its length."""
    before, after = (np.linalg.norm(y, axis=1) for y in (outputs, outputs - shift))
    return np.asarray(before - after, dtype=np.float64)


def gaussian_statistic(outputs: NDArray[np.int64], shift: NDArray[np.int64]) -> NDArray[np.float64]:
    """⟨y, shift⟩: for Gaussian noise, discrete or not."""
    return outputs.astype(np.float64) @ shift.astype(np.float64)


def diagonal_shift(*, sensitivity: float, dimension: int, step: float) -> NDArray[np.int64]:
    """A change of a sum by L2 ``sensitivity`` or a little less, spread evenly, in steps.

    Of all such changes it is the largest in L1, the worst for noise that is independent on every
    coordinate; for noise that is the same in all directions it is as good as any.
    """
    require_positive(sensitivity=sensitivity, step=step)
    require_count(dimension=dimension)
    return np.full(dimension, int(sensitivity / np.sqrt(dimension) / step), dtype=np.int64)


def epsilon_lower_bound(
    first: NDArray[np.float64],
    second: NDArray[np.float64],
    *,
    confidence: float,
    delta: float = 0.0,
) -> float:
    """The ε below which no (ε, δ)-DP mechanism has these statistics, except with 1 - confidence.

    Args:
        first: a statistic of independent releases on one input, large where they are more likely
            than on the other: best the likelihood ratio, or anything that grows with it.
        second: the same statistic of releases on a neighbouring input.
        confidence: the probability, over the draws, that the bound is true.
        delta: the δ of the claim that is audited.

    Returns:
        A lower bound on ε, 0 if nothing was found.
    """
    require_open_unit(confidence=confidence)
    require_delta(delta=delta)
    if min(first.size, second.size) < 4:
        raise ValueError(
            f"first and second must have 4 draws or more, got {first.size} and {second.size}."
        )
    failure = 1 - confidence
    # Even and odd draws: the halves must be independent in whatever order the draws come.
    pool = np.concatenate([first[::2], second[::2]])
    thresholds = np.quantile(pool, np.linspace(0, 1, _THRESHOLDS))
    candidates = _bounds(first[::2], second[::2], thresholds, failure, delta)
    side, best = np.unravel_index(int(candidates.argmax()), candidates.shape)
    measured = _bounds(first[1::2], second[1::2], thresholds[best : best + 1], failure, delta)
    return max(0.0, float(measured[side, 0]))


def _bounds(
    first: NDArray[np.float64],
    second: NDArray[np.float64],
    thresholds: NDArray[np.float64],
    failure: float,
    delta: float,
) -> NDArray[np.float64]:
    """Lower bounds on ε from the sets at or above each threshold, and from those below it."""
    above_first = first.size - np.searchsorted(np.sort(first), thresholds)
    above_second = second.size - np.searchsorted(np.sort(second), thresholds)
    pairs = (
        (above_first, first.size, above_second, second.size),
        (second.size - above_second, second.size, first.size - above_first, first.size),
    )
    bounds = []
    for more, more_draws, less, less_draws in pairs:
        # One-sided each; the failure is shared between the two.
        low = lower_limit(more, more_draws, failure=failure / 2)
        high = upper_limit(less, less_draws, failure=failure / 2)
        with np.errstate(divide="ignore"):
            bounds.append(np.log(np.maximum(low - delta, 0.0) / high))
    return np.array(bounds)
