"""Exact rejection sampling of a symmetric unimodal integer law, one random word for most draws.

The integers are cut into at most 2^11 bins of equal power-of-two width around zero. A word of 64
random bits proposes a draw: 16 bits pick a slot of a table in which bin i owns c_i of the 2^16
slots, the next bits place the draw inside its bin, and the rest begin a uniform number u. The
proposal is kept if u < f(x)·S/c_i, where f is the probability relative to its peak and S a constant
with f·S ≤ c_i. What is kept has a law proportional to (c_i/2^16) · f(x)·S/c_i, that is to f:
*whatever* the table says, the law is right; a poor table only costs speed.

Two bounds per bin on f(x)·S/c_i settle most draws (98 % for a Gaussian) by comparing integers. The
others get 64 more bits of u and one evaluation of f in float64; a comparison closer than 2^-40 is
repeated in arbitrary precision (`comparison`).

Distance from the stated law, per draw: at most 2^-102 in total variation. The bins reach so far
that the tail beyond them has mass at most 2·e^-72 < 2^-102; each law states the tail bound it uses.
A repeated comparison (about one draw in 2^39) resolves to 2^-136. This relies on the accuracy of f
in float64 that `Law` asks for, which the tests verify against arbitrary precision.

Not covered: timing. The number of words used depends on the noise drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from fedpriv.privacy.samplers.comparison import TIE, extend, uniform_below

if TYPE_CHECKING:
    from mpmath.ctx_mp import MPContext
    from numpy.typing import NDArray

    from fedpriv.privacy.randomness import RandomStream

TAIL = 72.0
"""Each law stops where its tail bound reaches 2·e^-TAIL < 2^-102."""

_SLOT_BITS = 16
_SLOTS = 1 << _SLOT_BITS
_MAX_BIN_BITS = 11
_CHUNK = 1 << 15  # draws at a time: the temporaries of one chunk stay in the cache


_Array = TypeVar("_Array", bound="NDArray[Any]")


class Law(Protocol):
    """A law on the line: symmetric about zero and falling away from it. A hashable value."""

    def __hash__(self) -> int:
        """Equal laws share one table."""

    @property
    def reach(self) -> float:
        """Beyond ±reach the law has mass at most 2·e^-TAIL."""

    def ratio(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """f(x)/f(0) in float64, within a relative 2^-42 or an absolute 2^-64."""

    def exact_ratio(self, x: Any, context: MPContext) -> Any:
        """f(x)/f(0) at the precision of ``context``."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RejectionTable:
    """Draws integers x with probability proportional to f(x + offset), offset 0 or ½.

    Bin i, counted from the left end, owns ``counts[i]`` slots; the last count is that of rejecting
    slots. ``scale`` is S; ``lower`` and ``upper`` bound f·S/c on a bin, in units of u's last bit.
    """

    law: Law
    offset: float
    width_bits: int
    scale: float
    counts: NDArray[np.int64]
    lower: NDArray[np.int64]
    upper: NDArray[np.int64]
    bin_of_slot: NDArray[np.uint16]

    @classmethod
    @lru_cache(maxsize=8)
    def build(cls, law: Law, *, offset: float = 0.0) -> RejectionTable:
        """The table for a law: some thousand evaluations of f in float64, and no loop.

        The last few are kept: a uniform schedule draws from one law in every round.
        """
        half = ceil(law.reach) + 1
        width_bits = max(0, (2 * half - 1).bit_length() - _MAX_BIN_BITS)
        width = 1 << width_bits
        half_bins = -(-half // width)
        # Zero begins a bin, so f is monotone on each bin and extreme at its two ends.
        first = np.arange(-half_bins, half_bins) * float(width) + offset
        last = first + (width - 1)
        highest = law.ratio(np.minimum(np.abs(first), np.abs(last)))
        lowest = law.ratio(np.maximum(np.abs(first), np.abs(last)))
        # The margins keep f·S/c ≤ 1 although `highest` is rounded, and the sum of the counts
        # within the table. Slots that no bin owns always reject.
        scale = (_SLOTS - highest.size) / float(highest.sum()) * (1 - 2 * TIE)
        counts = np.append(np.ceil(highest * scale * (1 + TIE)), 0.0).astype(np.int64)
        counts[-1] = _SLOTS - counts.sum()
        accept = scale / np.maximum(counts[:-1], 1)
        resolution = 2.0 ** (64 - _SLOT_BITS - width_bits)
        lower = np.floor(np.maximum(lowest * accept - TIE, 0.0) * resolution)
        upper = np.ceil(np.minimum(highest * accept + TIE, 1.0) * resolution)
        return cls(
            law=law,
            offset=offset,
            width_bits=width_bits,
            scale=scale,
            counts=_frozen(counts),
            lower=_frozen(np.append(lower, 0.0).astype(np.int64)),
            upper=_frozen(np.append(upper, 0.0).astype(np.int64)),
            bin_of_slot=_frozen(np.repeat(np.arange(counts.size, dtype=np.uint16), counts)),
        )

    @property
    def uniform_bits(self) -> int:
        """How many bits of a word are left for u."""
        return 64 - _SLOT_BITS - self.width_bits

    def draw(self, count: int, stream: RandomStream) -> NDArray[np.int64]:
        """``count`` independent draws."""
        drawn = np.empty(count, dtype=np.int64)
        filled = 0
        while filled < count:
            missing = count - filled
            kept = self._propose(min(_CHUNK, missing + missing // 16 + 16), stream)[:missing]
            drawn[filled : filled + kept.size] = kept
            filled += kept.size
        return drawn

    def _propose(self, count: int, stream: RandomStream) -> NDArray[np.int64]:
        """The accepted ones of ``count`` proposals, in order."""
        words = stream.words(count)
        slot = (words & np.uint64(_SLOTS - 1)).view(np.int64)
        bins = self.bin_of_slot.take(slot, mode="clip").astype(np.int64)
        words >>= np.uint64(_SLOT_BITS)
        x = (words & np.uint64((1 << self.width_bits) - 1)).view(np.int64)
        x += (bins - self.lower.size // 2) << self.width_bits
        words >>= np.uint64(self.width_bits)
        u = words.view(np.int64)
        accepted = u < self.lower.take(bins, mode="clip")
        open_ = np.flatnonzero(~accepted)
        open_ = open_[u[open_] < self.upper.take(bins[open_], mode="clip")]
        if open_.size:
            accepted[open_] = self._resolve(x[open_], bins[open_], u[open_], stream)
        return x[accepted]

    def _resolve(
        self,
        x: NDArray[np.int64],
        bins: NDArray[np.int64],
        leading: NDArray[np.int64],
        stream: RandomStream,
    ) -> NDArray[np.bool_]:
        """Accept or not, where the bounds of the bin do not decide: evaluate the law."""
        trailing = stream.words(x.size)
        u = (leading + trailing.astype(np.float64) * 2.0**-64) * 2.0**-self.uniform_bits
        accept = self.law.ratio(x.astype(np.float64) + self.offset) * (
            self.scale / self.counts[bins]
        )

        def decide(index: int, context: MPContext) -> bool:
            prefix = (int(leading[index]) << 64) | int(trailing[index])
            exact_u = extend(prefix, self.uniform_bits + 64, stream, context)
            exact_x = context.mpf(int(x[index])) + self.offset
            exact_f = self.law.exact_ratio(exact_x, context)
            count = int(self.counts[bins[index]])
            return bool(exact_u < exact_f * context.mpf(self.scale) / count)

        return uniform_below(u, accept, decide)


def _frozen(array: _Array) -> _Array:
    array.flags.writeable = False
    return array
