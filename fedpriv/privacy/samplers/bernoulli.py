"""Exact coin flips with probability e^-γ, the coins of private selection."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedpriv.privacy.samplers.comparison import extend, uniform_below

if TYPE_CHECKING:
    from mpmath.ctx_mp import MPContext
    from numpy.typing import NDArray

    from fedpriv.privacy.randomness import RandomStream


def bernoulli_exp(exponents: NDArray[np.float64], stream: RandomStream) -> NDArray[np.bool_]:
    """Independent flips, true with probability exp(-γ) for each γ ≥ 0, within 2^-128.

    Tiny probabilities included: a candidate is unlikely, never impossible.
    """
    words = stream.words(exponents.size)

    def decide(index: int, context: MPContext) -> bool:
        uniform = extend(int(words[index]), 64, stream, context)
        return bool(uniform < context.exp(-context.mpf(float(exponents[index]))))

    return uniform_below(words.astype(np.float64) * 2.0**-64, np.exp(-exponents), decide)
