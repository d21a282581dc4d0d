"""Influence q_t: by how much a unit of noise variance in round t raises the final risk.

Hong, Wang and Zhou 2022 ("Dynamic privacy budget allocation"). Only the relative size of the q_t
matters to a schedule; constants cancel. They follow from public facts alone: the contraction γ of
noiseless descent, and the momentum β. Neither may be estimated from private records for free.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedpriv._validate import require_count, require_open_unit

if TYPE_CHECKING:
    from numpy.typing import NDArray


def descent_influence(rounds: int, *, gamma: float) -> NDArray[np.float64]:
    """ln q_t, q_t = γ^(T−t), t = 1 … T: what descent forgets of the noise of round t.

    Under the Polyak–Łojasiewicz condition with constant μ, M-smoothness and steps of 1/M, the
    excess risk falls by γ = 1 − μ/M in a round, and with it the harm of earlier noise.
    """
    require_count(rounds=rounds)
    require_open_unit(gamma=gamma)
    return np.asarray(np.log(gamma) * np.arange(rounds - 1, -1, -1.0))


def momentum_influence(rounds: int, *, gamma: float, beta: float) -> NDArray[np.float64]:
    """ln q_t for debiased momentum: q_t = Σ_j γ^j·β^(2(k−1−j)), j < k = T−t+1.

    The weights of noise in the theorem of `momentum`, without its factor (1−β)²/(1−β^t)², which is
    constant after the first rounds, whose noise is forgotten. In closed form
    (β^(2k) − γ^k)/(β² − γ), or k·γ^(k−1) at β² = γ. Not monotone: the noise of a round keeps acting
    while the momentum remembers it, so the last rounds matter less than those shortly before them.
    """
    require_count(rounds=rounds)
    require_open_unit(gamma=gamma, beta=beta)
    k = np.arange(rounds, 0, -1.0)
    high, low = max(np.log(gamma), 2 * np.log(beta)), min(np.log(gamma), 2 * np.log(beta))
    # A geometric sum in the ratio of the smaller to the larger: no cancellation, no underflow.
    ratio = low - high
    series = k if ratio == 0 else np.expm1(k * ratio) / np.expm1(ratio)
    return np.asarray((k - 1) * high + np.log(series))
