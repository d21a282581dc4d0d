"""Thresholds: how many holders keep a party's shares, and how many of them open a secret.

Let n of the m parties of the roster be announced, at most ⌊γm⌋ of them corrupt, since the server
chooses whom to announce, and at most ⌊δn⌋ dropping out. Up to `COMPLETE` parties, everybody holds
shares of everybody. Beyond, each party draws k holders for itself, uniformly among the others (Bell
et al. 2020: a random graph of logarithmic degree), and the probabilities below are over that draw,
which nobody else can influence.

With X ~ Hypergeometric(n - 1, ⌊γm⌋, k) the number of corrupt holders of an honest party and Y that
of holders who stay, the round is

- secure, except with probability 2^-σ, if nobody can open both secrets of an honest party: X < t
  when the server follows the protocol; X < 2t - k when it may tell different parties different
  things, because the k - X honest holders release one share each, of one secret or the other; and
  if the honest parties' masks connect them all, so that no part of the sum shows by itself;
- live, except with probability 2^-η, if Y ≥ t for everybody.

The two conditions of security get half of 2^-σ each.

Whatever the graph, a sum has at least two honest answers: minimum ≥ ⌊γm⌋ + 2. In active mode it has
more than (m + ⌊γm⌋)/2 answers, and half of the honest parties of the roster cannot open it without
the others: with a complete graph because t > (m + ⌊γm⌋)/2, else except with probability 2^-2σ. So
two sums, over whichever cohorts, are not opened by two sets of honest parties that have nobody in
common: if each refuses to open one answer over two sets of survivors, nobody can.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import floor
from typing import TYPE_CHECKING

import numpy as np

from fedpriv._validate import require_count
from fedpriv.secagg.hypergeometric import log_choose, log_tails
from fedpriv.secagg.numbers.fixed_point import MAX_PARTIES

if TYPE_CHECKING:
    from numpy.typing import NDArray

COMPLETE = 128
"""Up to this many parties everybody holds shares of everybody: no draw, no failure probability."""


class Mode(StrEnum):
    """The threat model: what the server is trusted with."""

    SEMI_HONEST = "semi-honest"
    """It follows the protocol, and looks at everything that it sees."""
    ACTIVE = "active"
    """It may say anything to anybody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """The public numbers of a round. Every party computes them from its own policy.

    Attributes:
        mode: What the server is trusted with.
        parties: How many parties are announced, n.
        holders: How many keep shares of one party's secrets: k others, or all n, itself included.
        threshold: How many shares open a secret, t.
        minimum: The least number of answers in a sum: with fewer, no party reveals anything.
    """

    mode: Mode
    parties: int
    holders: int
    threshold: int
    minimum: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "mode", Mode(self.mode))
        require_count(parties=self.parties, holders=self.holders, threshold=self.threshold)
        if not 2 <= self.parties <= MAX_PARTIES:
            raise ValueError(f"parties must lie in 2 … {MAX_PARTIES}, got {self.parties}.")
        if not self.threshold <= self.holders <= self.parties:
            raise ValueError(
                f"threshold ≤ holders ≤ parties must hold, got {self.threshold}, {self.holders}, "
                f"{self.parties}."
            )
        if self.mode is Mode.ACTIVE and 2 * self.threshold <= self.holders:
            raise ValueError(
                f"threshold must exceed holders / 2 = {self.holders / 2:g} in active mode, got "
                f"{self.threshold}: two halves would open both secrets of a party."
            )
        if not max(2, self.threshold) <= self.minimum <= self.parties:
            raise ValueError(
                f"minimum must lie between threshold = {self.threshold} (and 2) and parties = "
                f"{self.parties}, got {self.minimum}."
            )

    @property
    def complete(self) -> bool:
        """Whether everybody holds shares of everybody."""
        return self.holders == self.parties

    @classmethod
    def plan(
        cls,
        *,
        mode: Mode | str,
        parties: int,
        roster: int | None = None,
        corrupt: float = 0.1,
        dropout: float = 0.1,
        security: float = 40.0,
        liveness: float = 20.0,
        minimum: int | None = None,
    ) -> Parameters:
        """The fewest holders, and the smallest threshold with them, that meet the conditions.

        Args:
            mode: What the server is trusted with.
            parties: How many parties are announced, n.
            roster: How many parties there are to announce, m; n if not given.
            corrupt: The largest fraction of the roster that colludes with the server, γ.
            dropout: The largest fraction of those announced that stop answering, at any steps
                together, δ; with a complete graph that of the roster, and who was not announced
                is one of them.
            security: σ: a round is insecure with probability at most 2^-σ. Complete graph: zero.
            liveness: η: a round within δ fails with probability at most 2^-η. Complete graph: zero.
            minimum: The least number of answers in a sum. By default, and at the least, n - ⌊δn⌋;
                with a complete graph the threshold, since security does not depend on δ there; and
                never fewer than the text above says.

        Raises:
            ValueError: If no threshold meets the conditions, or ``minimum`` is too small.
        """
        mode = Mode(mode)
        require_count(parties=parties)
        for name, value in (("corrupt", corrupt), ("dropout", dropout)):
            if not 0 <= value < 1:
                raise ValueError(f"{name} must lie in [0, 1), got {value!r}.")
        roster = parties if roster is None else roster
        if not parties <= roster <= MAX_PARTIES:
            raise ValueError(
                f"roster must lie between parties = {parties} and {MAX_PARTIES}, got {roster}."
            )
        bad, gone = _share_of(corrupt, roster), _share_of(dropout, parties)
        most = (roster + bad) // 2 + 1  # more than half of whom a lying server can count on
        if parties <= COMPLETE:
            holders = parties
            threshold = most if mode is Mode.ACTIVE else parties // 2 + 1
            stay = min(parties, roster - _share_of(dropout, roster))
            feasible = bad < threshold <= stay
        elif bad >= parties:
            feasible = False
        else:
            holders, threshold = _search(mode, parties, roster, bad, gone, security, liveness)
            feasible = holders > 0
        if not feasible:
            raise ValueError(
                f"no threshold is secure with corrupt = {corrupt!r} and live with dropout = "
                f"{dropout!r} for {parties} parties in {mode.value} mode. Allow fewer of either."
            )
        least = max(
            bad + 2,
            threshold if holders == parties else parties - gone,
            most if mode is Mode.ACTIVE else 0,
        )
        if least > parties:
            raise ValueError(
                f"{parties} of {roster} parties are too few for a sum in {mode.value} mode if "
                f"{bad} of them collude with the server: it takes {least}."
            )
        minimum = least if minimum is None else minimum
        if minimum < least:
            raise ValueError(f"minimum must be at least {least} by this plan, got {minimum}.")
        return cls(
            mode=mode, parties=parties, holders=holders, threshold=threshold, minimum=minimum
        )


def _share_of(fraction: float, parties: int) -> int:
    return floor(fraction * parties + 1e-9)  # 0.29 · 100 is 28.999999999999996


def _search(
    mode: Mode, n: int, roster: int, bad: int, gone: int, security: float, liveness: float
) -> tuple[int, int]:
    """The smallest even k, and the smallest t with it; (0, 0) if there is none."""
    half, live = 2.0 ** -(security + 1), 2.0**-liveness
    for k in range(2, n, 2):
        t = np.arange(1, k + 1)
        opened = t if mode is Mode.SEMI_HONEST else 2 * t - k
        corrupt = log_tails(population=n - 1, marked=bad, drawn=k)
        secure = n * np.exp(corrupt[np.maximum(opened, 0)]) <= half
        # Fewer than t stay: more than k - t leave. The party itself is one of those that stay.
        leaving = log_tails(population=n - 1, marked=gone, drawn=k)
        lively = n * np.exp(leaving[k - t + 1]) <= live
        if mode is Mode.ACTIVE:
            secure &= _opened_by_half(n, roster, bad, gone, k, t) <= half**2
        for threshold in t[secure & lively].tolist():
            if _disconnected(mode, n, bad, gone, k, threshold) <= half:
                return k, threshold
    return 0, 0


def _disconnected(mode: Mode, n: int, bad: int, gone: int, k: int, t: int) -> float:
    """A bound on the probability that the masks leave two sets of honest parties unconnected.

    A set of s honest parties, at most half of them, is cut off only if every member finds enough of
    its holders inside the set or among those that do not count: all k of them, where corrupt and
    dropped parties do not count; or, since an active server can conceal holders as long as t are
    left, t of them inside the set or corrupt. The members draw independently, and drop-outs do not
    depend on what they drew: union over all sets.
    """
    kept, outside = (k, bad + gone) if mode is Mode.SEMI_HONEST else (t, bad)
    honest = n - outside
    s = np.arange(1, honest // 2 + 1)
    inside = log_tails(population=n - 1, marked=outside + s - 1, drawn=k)[:, kept]
    return float(np.exp(np.minimum(log_choose(honest, s) + s * inside, 0.0)).sum())


def _opened_by_half(
    n: int, roster: int, bad: int, gone: int, k: int, t: NDArray[np.int64]
) -> NDArray[np.float64]:
    """A bound on the probability that some half of the honest parties opens a sum by itself.

    With the corrupt ones it must have t holders of every honest answer in the sum, of which there
    are n - ``gone`` - ``bad`` at the least. Those parties draw their holders independently: union
    over all halves of the roster.
    """
    honest = roster - bad
    half = honest // 2
    each = log_tails(population=n - 1, marked=min(half + bad, n - 1), drawn=k)[t]
    tries = log_choose(honest, half) + max(n - gone - bad, 0) * each
    bound: NDArray[np.float64] = np.exp(np.minimum(tries, 0.0))
    return bound
