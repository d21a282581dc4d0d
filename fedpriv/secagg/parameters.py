"""How many holders keep a party's shares, and how many of them open a secret.

Let n parties be announced, at most ⌊γn⌋ of them corrupt and at most ⌊δn⌋ dropping out. Up to
`COMPLETE` parties, everybody holds shares of everybody. Beyond, each party draws k holders for
itself, uniformly among the others (Bell et al. 2020: a random graph of logarithmic degree), and the
probabilities below are over that draw, which nobody else can influence.

With X ~ Hypergeometric(n - 1, ⌊γn⌋, k) the number of corrupt holders of an honest party and Y that
of holders who stay, the round is

- secure, except with probability 2^-σ, if nobody can open both secrets of an honest party: X < t
  when the server follows the protocol; X < 2t - k when it may tell different parties different
  things, because the k - X honest holders release one share each, of one secret or the other; and
  if the honest parties' masks connect them all, so that no part of the sum shows by itself;
- live, except with probability 2^-η, if Y ≥ t for everybody.

The two conditions of security get half of 2^-σ each.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import floor

import numpy as np
from scipy.special import gammaln

from fedpriv._validate import require_count
from fedpriv.secagg.fixed_point import MAX_PARTIES

COMPLETE = 128
"""Up to so many parties everybody holds shares of everybody: no draw, no failure probability."""


class Mode(StrEnum):
    """What the server is trusted with."""

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
            corrupt: The largest fraction of them that collude with the server, γ.
            dropout: The largest fraction of them that stop answering, at any steps together, δ.
            security: σ: a round is insecure with probability at most 2^-σ. Complete graph: zero.
            liveness: η: a round within δ fails with probability at most 2^-η. Complete graph: zero.
            minimum: The least number of answers in a sum. By default, and at the least, n - ⌊δn⌋;
                with a complete graph the threshold, since security does not depend on δ there.

        Raises:
            ValueError: If no threshold meets the conditions, or ``minimum`` is too small.
        """
        mode = Mode(mode)
        require_count(parties=parties)
        for name, value in (("corrupt", corrupt), ("dropout", dropout)):
            if not 0 <= value < 1:
                raise ValueError(f"{name} must lie in [0, 1), got {value!r}.")
        bad, gone = _share_of(corrupt, parties), _share_of(dropout, parties)
        if parties <= COMPLETE:
            holders = parties
            threshold = (parties + (bad if mode is Mode.ACTIVE else 0)) // 2 + 1
            found = bad < threshold <= parties - gone
        else:
            holders, threshold = _search(mode, parties, bad, gone, security, liveness)
            found = holders > 0
        if not found:
            raise ValueError(
                f"no threshold is secure with corrupt = {corrupt!r} and live with dropout = "
                f"{dropout!r} for {parties} parties in {mode.value} mode. Allow fewer of either."
            )
        least = max(2, threshold if holders == parties else parties - gone)
        minimum = least if minimum is None else minimum
        if minimum < least:
            raise ValueError(f"minimum must be at least {least} by this plan, got {minimum}.")
        return cls(
            mode=mode, parties=parties, holders=holders, threshold=threshold, minimum=minimum
        )


def _share_of(fraction: float, parties: int) -> int:
    return floor(fraction * parties + 1e-9)  # 0.29 · 100 is 28.999999999999996


def _search(
    mode: Mode, n: int, bad: int, gone: int, security: float, liveness: float
) -> tuple[int, int]:
    """The smallest even k, and the smallest t with it; (0, 0) if there is none."""
    from scipy.stats import hypergeom  # slow to import, and small cohorts do not need it

    half, live = 2.0 ** -(security + 1), 2.0**-liveness
    for k in range(2, n, 2):
        t = np.arange(1, k + 1)
        opened = t if mode is Mode.SEMI_HONEST else 2 * t - k
        secure = n * hypergeom.sf(opened - 1, n - 1, bad, k) <= half
        # The party itself is one of the n - gone that stay.
        lively = n * hypergeom.cdf(t - 1, n - 1, n - gone - 1, k) <= live
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
    from scipy.stats import hypergeom

    kept, outside = (k, bad + gone) if mode is Mode.SEMI_HONEST else (t, bad)
    honest = n - outside
    s = np.arange(1, honest // 2 + 1)
    sets = gammaln(honest + 1) - gammaln(s + 1) - gammaln(honest - s + 1)
    inside = hypergeom.logsf(kept - 1, n - 1, outside + s - 1, k)
    return float(np.exp(np.minimum(sets + s * inside, 0.0)).sum())
