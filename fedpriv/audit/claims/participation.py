"""Participation: Gaussian rounds of which a unit is in some, by draws that do not see the data.

Cohorts of fixed size, drawn anew in every round, are not Poisson samples, and no accountant here
covers them. This bound holds for any such draws. Suppose it is public who took part in which round:
given that, the run is a full-batch one of exactly μ = √S / relative noise, where S is the sum over
the rounds of how often the unit was drawn, squared. The run itself reveals less, and the
hockey-stick divergence is jointly convex, hence δ(ε) ≤ E[δ(ε, √S / relative noise)].
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import brentq
from scipy.stats import binom

from fedpriv._validate import require_count, require_open_unit, require_positive
from fedpriv.privacy.gaussian import gdp_delta, towards_privacy

if TYPE_CHECKING:
    from numpy.typing import NDArray

METHOD = "exact Gaussian, averaged over who took part"
_NEGLIGIBLE = 1e-9  # of δ: what is cut off is added to it
_MOST_DRAWS = 1000
_LARGEST = 1e6  # of ε


def participation_epsilon(
    *, relative_noise: float, rounds: int, draws: int, chance: float, delta: float
) -> float | None:
    """ε of ``rounds`` Gaussian releases; None if no finite one is found.

    Args:
        relative_noise: Standard deviation / what the unit moves the sum by if it is drawn once.
        rounds: How many.
        draws: How often somebody is drawn in a round, with replacement; 1 for cohorts in which a
            unit is at most once.
        chance: Of the unit, in one draw.
        delta: At which.
    """
    require_positive(relative_noise=relative_noise, delta=delta)
    require_count(rounds=rounds, draws=draws)
    require_open_unit(chance=chance)
    law, lost = _law_of_squares(rounds, draws, chance, delta)
    totals = np.flatnonzero(law > delta * _NEGLIGIBLE / law.size)
    lost += float(law.sum() - law[totals].sum())
    mus = [(sqrt(s) / relative_noise, float(law[s])) for s in totals.tolist() if s]

    def excess(epsilon: float) -> float:
        return lost + sum(p * gdp_delta(mu=mu, epsilon=epsilon) for mu, p in mus) - delta

    if excess(0.0) <= 0:
        return 0.0
    if excess(_LARGEST) > 0:
        return None
    high = 1.0
    while excess(high) > 0:
        high *= 2
    root = float(brentq(excess, 0.0, high, xtol=1e-9))
    return towards_privacy(root, lambda epsilon: excess(epsilon) <= 0, up=True)


def _law_of_squares(
    rounds: int, draws: int, chance: float, delta: float
) -> tuple[NDArray[np.float64], float]:
    """The law of S, and the probability that was cut off."""
    if draws == 1:
        return np.asarray(binom.pmf(np.arange(rounds + 1), rounds, chance), np.float64), 0.0
    allowed = delta * _NEGLIGIBLE / rounds
    most = int(np.argmax(binom.sf(np.arange(_MOST_DRAWS), draws, chance) <= allowed))
    one = np.zeros(most * most + 1)
    one[np.arange(most + 1) ** 2] = binom.pmf(np.arange(most + 1), draws, chance)
    law, left = np.ones(1), rounds
    while left:  # by squaring; sums of positive numbers keep their digits
        if left & 1:
            law = _cut(np.convolve(law, one), allowed)
        one, left = _cut(np.convolve(one, one), allowed), left >> 1
    return law, max(0.0, 1.0 - float(law.sum()))


def _cut(law: NDArray[np.float64], allowed: float) -> NDArray[np.float64]:
    """Without the end of a law that is hardly ever reached."""
    tail = np.cumsum(law[::-1])[::-1]
    return law[: max(1, int(np.count_nonzero(tail > allowed)))]
