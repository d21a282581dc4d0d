"""Is a uniform number below a real threshold? Decided exactly, almost always in float64.

A uniform real is a sequence of random bits, of which the first 64 or so settle nearly every
comparison. When float64 cannot tell the two sides apart, more bits are drawn and the threshold is
recomputed in arbitrary precision, so that rounding never biases a probability.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from mpmath.ctx_mp import MPContext

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from fedpriv.privacy.randomness import RandomStream

TIE = 2.0**-40
"""Float64 decides outside this distance; thresholds in [0, 1] must be good to a quarter of it."""

_PRECISION = 256  # bits: far beyond the 136 or more that an extended uniform has


def uniform_below(
    uniform: NDArray[np.float64],
    threshold: NDArray[np.float64],
    decide: Callable[[int, MPContext], bool],
) -> NDArray[np.bool_]:
    """Compare elementwise; ``decide(index, context)`` settles what float64 leaves open."""
    below = uniform < threshold
    ties = np.flatnonzero(np.abs(uniform - threshold) <= TIE)
    if ties.size:
        context = exact_context()
        for index in ties.tolist():
            below[index] = decide(index, context)
    return below


def exact_context() -> MPContext:
    """A context for exact arithmetic, our own: mpmath's default one is global state."""
    context = MPContext()
    context.prec = _PRECISION
    return context


def extend(prefix: int, bits: int, stream: RandomStream, context: MPContext) -> Any:
    """The uniform number in [0, 1) that starts with these bits, 64 fresh bits longer.

    It stands for the real number it begins, up to 2^-(bits + 64): the chance that the rest of its
    bits would have changed a comparison.
    """
    word = int(stream.words(1)[0])
    return context.ldexp(context.mpf((prefix << 64) | word), -(bits + 64))
