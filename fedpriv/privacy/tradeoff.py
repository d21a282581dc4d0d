"""Trade-off curves: what a guarantee means to an attacker, as error rates and as advantage.

An attacker who tries to distinguish two neighbouring data sets makes two kinds of error: a false
alarm with probability α, a miss with probability β. A guarantee is a lower bound on β for each α.
"""

from __future__ import annotations

from math import exp, expm1
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtr, ndtri

from fedpriv._validate import require_delta, require_non_negative, require_positive

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


def tradeoff_curve(false_alarm: ArrayLike, *, epsilon: float, delta: float) -> NDArray[np.float64]:
    """Least miss rate β at each false-alarm rate α, under (ε, δ)-DP.

    max(0, 1 − δ − e^ε·α, e^{−ε}(1 − δ − α)) (Wasserman and Zhou 2010; Dong, Roth and Su 2022).
    """
    require_non_negative(epsilon=epsilon)
    require_delta(delta=delta)
    alpha = _rates(false_alarm)
    with np.errstate(divide="ignore"):  # α = 0: nothing is raised, whatever ε
        raised = np.exp(np.minimum(epsilon + np.log(alpha), 1.0))  # e^ε·α, void from 1 on
    curve: NDArray[np.float64] = np.maximum.reduce(
        [
            np.zeros_like(alpha),
            1 - delta - raised,
            exp(-epsilon) * (1 - delta - alpha),
        ]
    )
    return curve


def gaussian_tradeoff_curve(false_alarm: ArrayLike, *, mu: float) -> NDArray[np.float64]:
    """Least miss rate β at each α under μ-GDP: Φ(Φ⁻¹(1 − α) − μ)."""
    require_positive(mu=mu)
    curve: NDArray[np.float64] = ndtr(-ndtri(_rates(false_alarm)) - mu)
    return curve


def attack_advantage(*, epsilon: float, delta: float) -> float:
    """The most by which any attacker's true-positive rate can exceed the false-positive rate.

    (e^ε − 1 + 2δ)/(e^ε + 1) (Kairouz, Oh and Viswanath 2015): 0 is blind guessing, 1 certainty.
    """
    require_non_negative(epsilon=epsilon)
    require_delta(delta=delta)
    return (-expm1(-epsilon) + 2 * delta * exp(-epsilon)) / (1 + exp(-epsilon))


def gaussian_attack_advantage(*, mu: float) -> float:
    """The same under μ-GDP, exactly: 2Φ(μ/2) − 1."""
    require_positive(mu=mu)
    return float(2 * ndtr(mu / 2) - 1)


def _rates(false_alarm: ArrayLike) -> NDArray[np.float64]:
    alpha = np.asarray(false_alarm, dtype=np.float64)
    if not np.all((alpha >= 0) & (alpha <= 1)):
        raise ValueError("false_alarm must lie in [0, 1].")
    return alpha
