"""Pólya noise: the difference of two negative-binomial variables, closed under addition.

NB(r, p) counts P(k) = Γ(k+r)/(Γ(r)·k!)·(1-p)^r·p^k. It is a Poisson number of jumps, each of a
logarithmic size (Quenouille 1949), so a difference of two is a Poisson number of signed jumps:

    N ~ Poisson(2rb),   size L with P(L = k) = p^k/(kb),   fair sign,   b = -ln(1 - p).

A logarithmic size is a geometric one with a random parameter (Kemp 1981): with U and V uniform,
q = 1 - (1-p)^U and L = 1 + ⌊ln V/ln q⌋, because ∫ e^(-bu)·(1 - e^(-bu))^(k-1) du = p^k/(kb).

Both steps are decided exactly. N is inverted from a table of 64-bit thresholds; a word equal to one
(once in 2^64 draws per threshold) gets 64 more bits. ln V/ln q is evaluated in float64, with a
bound on its error and on the effect of the bits of U and V not yet drawn; where an integer lies
within the bound, both get 128 more bits and the quotient is computed at 256 bits. Distance from the
stated law, per draw: at most 2^-100 in total variation, almost all of it from the table of N, whose
tail is cut at 2^-104.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import exp, expm1, inf, log, log1p
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv._validate import require_positive
from fedpriv.privacy.samplers.comparison import exact_context, extend
from fedpriv.privacy.samplers.sampler import require_scale

if TYPE_CHECKING:
    from mpmath.ctx_mp import MPContext
    from numpy.typing import NDArray

    from fedpriv.privacy.randomness import RandomStream

_SMALLEST, _LARGEST = 2.0**-4, 2.0**36  # scales for which the error bound below is proved
_MOST_JUMPS = 2.0**12  # mean number in one draw: more than any cohort's shape needs
_TAIL_BITS = 104
_CHUNK = 1 << 18  # approximate number of jumps at a time: bounds the memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Polya:
    """X - Y with X and Y independent NB(``shape``, e^(-1/``scale``)).

    With shape 1 it is the discrete Laplace law, P(k) ∝ exp(-|k|/scale). The sum of independent
    draws of one scale is of the same law with the sum of the shapes: n shares of shape 1/n add up
    to discrete Laplace noise exactly (Goryczka and Xiong 2017).
    """

    shape: float
    scale: float
    _thresholds: NDArray[np.uint64] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        require_positive(shape=self.shape)
        require_scale(smallest=_SMALLEST, largest=_LARGEST, scale=self.scale)
        jumps = 2 * self.shape * self._rate
        if jumps > _MOST_JUMPS:
            raise ValueError(
                f"shape must make at most {_MOST_JUMPS:g} jumps per draw, got {self.shape!r}, "
                f"which makes {jumps:.0f}."
            )
        object.__setattr__(self, "_thresholds", self._poisson_thresholds())

    @property
    def variance(self) -> float:
        """2r·p/(1-p)²."""
        return 2 * self.shape * exp(-1 / self.scale) / expm1(-1 / self.scale) ** 2

    def draw(self, count: int, stream: RandomStream) -> NDArray[np.int64]:
        """``count`` independent draws."""
        at_once = max(1, int(_CHUNK / (1 + 2 * self.shape * self._rate)))
        parts = [
            self._some(min(at_once, count - first), stream) for first in range(0, count, at_once)
        ]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)

    def _some(self, count: int, stream: RandomStream) -> NDArray[np.int64]:
        jumps = self._jumps(count, stream)
        total = int(jumps.sum())
        sizes = self._sizes(total, stream)
        signs = np.unpackbits(stream.words(-(-total // 64)).view(np.uint8), count=total)
        path = np.concatenate([[0], np.cumsum(np.where(signs, sizes, -sizes))])
        ends = np.cumsum(jumps)
        walked: NDArray[np.int64] = path[ends] - path[ends - jumps]
        return walked

    @property
    def _rate(self) -> float:
        """b = -ln(1 - p), by the form that is accurate for this p."""
        p = exp(-1 / self.scale)
        return -log1p(-p) if p < 0.5 else -log(-expm1(-1 / self.scale))

    def _exact_rate(self, context: MPContext) -> Any:
        return -context.log(-context.expm1(-1 / context.mpf(self.scale)))

    # The number of jumps.

    def _poisson_thresholds(self) -> NDArray[np.uint64]:
        """⌊P(N ≤ k)·2^64⌋ for k = 0, 1, … until the tail is below 2^-104."""
        context = exact_context()
        return np.array([int(context.floor(c * 2**64)) for c in self._cumulative()], np.uint64)

    def _cumulative(self) -> list[Any]:
        """P(N ≤ k), at 256 bits; without the last one, which stands for everything beyond."""
        context = exact_context()
        mean = 2 * context.mpf(self.shape) * self._exact_rate(context)
        term = total = context.exp(-mean)
        probabilities, k = [], 0
        while 1 - total > context.ldexp(1, -_TAIL_BITS):
            probabilities.append(total)
            k += 1
            term *= mean / k
            total += term
        return probabilities

    def _jumps(self, count: int, stream: RandomStream) -> NDArray[np.int64]:
        words, thresholds = stream.words(count), self._thresholds
        jumps = np.searchsorted(thresholds, words, side="right").astype(np.int64)
        if thresholds.size:
            below = thresholds[np.maximum(jumps - 1, 0)]
            for index in np.flatnonzero((jumps > 0) & (below == words)).tolist():
                context = exact_context()
                uniform = extend(int(words[index]), 64, stream, context)
                jumps[index] = sum(uniform >= bound for bound in self._cumulative())
        return jumps

    # Their sizes.

    def _sizes(self, count: int, stream: RandomStream) -> NDArray[np.int64]:
        """Logarithmic sizes, 1 + ⌊ln V/ln q⌋."""
        u_words, v_words = stream.words(count), stream.words(count)
        quotient, doubt = self._quotients(u_words, v_words)
        sizes = np.floor(quotient)
        nearest = np.rint(quotient)
        open_ = np.flatnonzero((np.abs(quotient - nearest) <= doubt) & (nearest + doubt >= 1))
        if open_.size:
            context = exact_context()
            rate = self._exact_rate(context)
            for index in open_.tolist():
                long_u, long_v = (
                    extend(
                        (int(words[index]) << 64) | int(stream.words(1)[0]), 128, stream, context
                    )
                    for words in (u_words, v_words)
                )
                exact = context.log(long_v) / context.log(-context.expm1(-rate * long_u))
                sizes[index] = int(context.floor(exact))
        return sizes.astype(np.int64) + 1

    def _quotients(
        self, u_words: NDArray[np.uint64], v_words: NDArray[np.uint64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """ln V/ln q in float64, and how far the exact one can be from it, whatever bits follow.

        With s = -ln q: rounding moves b·u, at most 25, by 3 units in its last place, hence s by
        about 110 units, relatively, where q > ½, and by fewer where not; it moves -ln V by 2 units
        of 1. The bits to come move U and V by at most 2^-64 each: -ln V by 2^-64/V, and s by a
        factor of (b/p)·2^-64/U with b/p < 32, since q ≥ p·U and s ≥ 1 - q.
        """
        u = (u_words.astype(np.float64) + 0.5) * 2.0**-64
        v = (v_words.astype(np.float64) + 0.5) * 2.0**-64
        exponent = self._rate * u
        with np.errstate(divide="ignore"):  # the branch not taken
            s = np.where(
                exponent < log(2),
                -np.log(-np.expm1(-exponent)),
                -np.log1p(-np.exp(-exponent)),
            )
        quotient = np.maximum(-np.log(v), 0.0) / s
        doubt = quotient * (2.0**-44 + 2.0**-59 / u) + (2.0**-51 + 2.0**-63 / v) / s
        doubt[(u_words == 0) | (v_words == 0)] = inf  # a cell that reaches down to zero
        return quotient, doubt
