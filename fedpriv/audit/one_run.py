"""One-run audit: bounds on μ and ε from many canaries in a single run, each there by a coin.

A fair coin decides for each of m canaries whether it is in or out, or which of two records takes
its place. The auditor guesses the r coins it is surest of from the run, and W guesses are right
(Steinke, Nasr and Jagielski 2023). Many right guesses contradict a claim.

**The bound** (the argument of Mahloujifar, Melis and Chaudhuri 2024, in tails). Let the trade-off
curve of a claim allow true positives of F(x) at most at false positives of x: F is concave, and g
its inverse. Fix a coin i, all other coins, and the event that guess i is right and W ≥ j. With coin
i turned, the same outcome has guess i wrong and one right guess less. So the probability of the
first is at most F of that of "guess i is wrong and W ≥ j - 1". Averaged over all coins and over i,
as F is concave, with the tails P_j = P(W ≥ j):

    E[W; W ≥ j]/m ≤ F(E[r - W; W ≥ j - 1]/m),
    E[W; W ≥ j] = j·P_j + Σ_{w>j} P_w,
    E[r - W; W ≥ j - 1] = (r - j + 1)·P_{j-1} - Σ_{w≥j} P_w,

so P_{j-1} ≥ (m·g((j·P_j + Σ_{w>j} P_w)/m) + Σ_{w≥j} P_w)/(r - j + 1). The right side grows with
every tail. If W ≥ c has a probability of at least p, then least tails follow, from P_c = p and
zeros above, one by one; one that is larger than 1 is a contradiction: W ≥ c has a probability below
p.

Nothing is assumed about the guesses, nor about how canaries affect each other. Only r, the number
of guesses, must be fixed in advance: `best_guesses` chooses it from the claim alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtr, ndtri

from fedpriv._validate import require_count, require_delta, require_open_unit, require_positive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    Inverse = Callable[[float], float]
    """g: the least false positives at which a claim allows so many true ones."""

_MOST_MU, _MOST_EPSILON = 40.0, 200.0
_STEPS = 60
_SHARES = np.geomspace(0.005, 1.0, 40)


def right_guesses(scores: NDArray[np.float64], coins: NDArray[np.bool_], guesses: int) -> int:
    """How many of the surest guesses are right: those of the scores that are farthest from zero.

    Args:
        scores: Of every canary, positive where its coin was more likely heads.
        coins: What they were.
        guesses: r, fixed before the run.
    """
    surest = np.argsort(-np.abs(scores), kind="stable")[:guesses]
    return int(np.count_nonzero((scores[surest] > 0) == coins[surest]))


def contradicts(
    right: int, guesses: int, canaries: int, *, inverse: Inverse, failure: float
) -> bool:
    """Whether so many right guesses have a probability below ``failure``, if a claim is true."""
    _require_game(right, guesses, canaries)
    require_open_unit(failure=failure)
    tail, above = failure, 0.0
    for j in range(right, 0, -1):
        weight = (j * tail + above) / canaries
        above += tail
        least = (canaries * inverse(min(1.0, weight)) + above) / (guesses - j + 1)
        tail = max(tail, least)
        if tail > 1:
            return True
    return False


def mu_lower_bound(right: int, guesses: int, canaries: int, *, confidence: float) -> float:
    """The μ below which no μ-GDP release lets so many guesses be right, except with 1 - confidence.

    >>> round(mu_lower_bound(90, 100, 1000, confidence=0.95), 2)
    0.6
    """
    return _largest(
        lambda mu: contradicts(
            right, guesses, canaries, inverse=gaussian_inverse(mu), failure=1 - confidence
        ),
        _MOST_MU,
    )


def epsilon_lower_bound(
    right: int, guesses: int, canaries: int, *, delta: float, confidence: float
) -> float:
    """The ε below which no (ε, δ)-DP release does, except with 1 - confidence."""
    return _largest(
        lambda epsilon: contradicts(
            right,
            guesses,
            canaries,
            inverse=points_inverse([(epsilon, delta)]),
            failure=1 - confidence,
        ),
        _MOST_EPSILON,
    )


def gaussian_inverse(mu: float) -> Inverse:
    """g of μ-GDP: Φ(Φ⁻¹(y) - μ)."""
    return lambda y: float(ndtr(ndtri(y) - mu))


def points_inverse(points: Iterable[tuple[float, float]]) -> Inverse:
    """g of (ε, δ)-DP at all of some points: the largest of (y - δ)/e^ε and 1 - δ - e^ε(1 - y)."""
    table = np.array(list(points), dtype=np.float64)
    for delta in table[:, 1]:
        require_delta(delta=float(delta))
    growth, delta = np.exp(np.minimum(table[:, 0], 700.0)), table[:, 1]
    return lambda y: max(
        0.0, float(np.max((y - delta) / growth)), float(np.max(1 - delta - growth * (1 - y)))
    )


def best_guesses(canaries: int, *, mu: float, confidence: float) -> int:
    """r: the number of guesses with the largest bounds, for releases with this μ and with 2μ.

    A few guesses are the surest and come closest to a true claim; but where they are right anyway,
    they cannot contradict it. Scores are modelled as N(μ/2, 1) or N(-μ/2, 1), by the coin. No
    measurement is used.
    """
    require_count(canaries=canaries)
    require_positive(mu=mu)

    def shown(guesses: int, true: float) -> float:
        right = int(guesses * _accuracy(guesses / canaries, true))
        return mu_lower_bound(right, guesses, canaries, confidence=confidence)

    sizes = sorted({max(1, round(float(share) * canaries)) for share in _SHARES})
    return max(sizes, key=lambda guesses: shown(guesses, mu) + shown(guesses, 2 * mu))


def _accuracy(share: float, mu: float) -> float:
    """How many of the surest guesses are right, if they are this share of all."""
    level = np.linspace(0, mu / 2 + 8, 4000)
    heads, tails = ndtr(mu / 2 - level), ndtr(-mu / 2 - level)  # beyond a level, right and wrong
    place = int(np.argmin(np.abs(heads + tails - share)))
    return float(heads[place] / (heads[place] + tails[place]))


def _largest(contradicted: Callable[[float], bool], most: float) -> float:
    """The largest value that is contradicted; 0 if none is."""
    if not contradicted(0.0):
        return 0.0
    low, high = 0.0, most
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if contradicted(middle) else (low, middle)
        if high - low < 1e-6 * high:
            break
    return low


def _require_game(right: int, guesses: int, canaries: int) -> None:
    require_count(guesses=guesses, canaries=canaries)
    if not 0 <= right <= guesses <= canaries:
        raise ValueError(
            "right, guesses and canaries must not decrease from one to the next, got "
            f"{right}, {guesses} and {canaries}."
        )
