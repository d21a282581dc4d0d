"""Thresholds of the masks: how many holders keep a party's shares, and how many open a secret.

Let the roster have m parties, of which n are announced, c collude with the server, and d are
missing at some step: not announced, silent, refusing, or sending wrong shares.

**Active.** The server may say anything to anybody. Everybody holds shares of everybody, and

    t = ⌊(m + c)/2⌋ + 1,  so that 2t > m + c;     max(t, c + 2) ≤ minimum ≤ m - d.

1. A round is opened over one set. An honest party signs one (cohort, set) per round and reveals
   only with t signatures on that set. The honest signers of two sets are disjoint, at least t - c
   of each, so 2(t - c) ≤ m - c: a contradiction.
2. Nobody gets both secrets of a party: it sees at most c < t shares of the other kind.
3. False lists of keys or sharers give no smaller sum. A part A of the set S that could be split off
   has no signer, |A| ≤ |S| - t, and each member needs minimum ≤ |A| + c + (m - |S|) ≤ m + c
   - t < t.
4. Two openings in different rounds or cohorts share an honest party, which refuses a second set.

Given t > c and minimum ≥ max(t, c + 2) the rule is exact: with 2t ≤ m + c and minimum < m both
breaks exist. A party that is cloned, or restored from a copy of its disk, can sign twice: it counts
as a colluder. Sparse graphs can be attacked without any colluder (leave a party out of everybody's
list of keys, and the rest sign a set whose opened sum lacks it), so there is no active mode beyond
`MOST_ACTIVE` parties.

**Semi-honest.** The server follows the protocol, and minimum ≥ max(t, c + 2). Up to `COMPLETE`
parties everybody holds shares of everybody, and t > c. Beyond, each party draws k holders for
itself, uniformly among the others (Bell et al. 2020: a random graph of logarithmic degree), and the
probabilities below are over that draw, which nobody else can influence. With X ~
Hypergeometric(n - 1, c, k) the number of colluding holders of an honest party and Y that of holders
who stay, the round is

- secure, except with probability 2^-σ, if X < t for everybody, and if the masks connect all honest
  parties, so that no part of the sum is exposed by itself: each condition gets half of 2^-σ;
- live, except with probability 2^-η, if Y ≥ t for everybody.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from fedpriv._collusion import DEFAULT_COLLUDING, colluders_of, count_of, tolerance
from fedpriv._validate import require_count
from fedpriv.secagg.hypergeometric import log_choose, log_tails
from fedpriv.secagg.numbers.fixed_point import MAX_PARTIES

COMPLETE = 128
"""Up to this many parties everybody holds shares of everybody: no draw, no failure probability."""

MOST_ACTIVE = 1024
"""Active mode is for rosters up to this size: everybody must hold shares of everybody."""


class Mode(StrEnum):
    """The threat model: how far the server is trusted."""

    SEMI_HONEST = "semi-honest"
    """The server follows the protocol, but tries to learn from everything that it sees."""
    ACTIVE = "active"
    """The server may send anything to anybody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """The public numbers of a round. Every party computes them from its own policy.

    The conditions of the text above are checked here, however the numbers were chosen.

    Attributes:
        mode: What the server is trusted with.
        roster: How many parties there are to announce, m.
        colluders: How many of them collude with the server, c.
        parties: How many parties are announced, n.
        holders: How many keep shares of one party's secrets: k others, or all n, itself included.
        threshold: How many shares open a secret, t.
        minimum: The least number of answers in a sum: with fewer, no party reveals anything.
    """

    mode: Mode
    roster: int
    colluders: int
    parties: int
    holders: int
    threshold: int
    minimum: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "mode", Mode(self.mode))
        require_count(
            roster=self.roster,
            parties=self.parties,
            holders=self.holders,
            threshold=self.threshold,
            minimum=self.minimum,
        )
        if type(self.colluders) is not int or self.colluders < 0:
            raise ValueError(f"colluders must be an integer of at least 0, got {self.colluders!r}.")
        if not 2 <= self.parties <= self.roster <= MAX_PARTIES:
            raise ValueError(
                f"2 ≤ parties ≤ roster ≤ {MAX_PARTIES} must hold, got {self.parties} and "
                f"{self.roster}."
            )
        if not self.threshold <= self.holders <= self.parties:
            raise ValueError(
                f"threshold ≤ holders ≤ parties must hold, got {self.threshold}, {self.holders}, "
                f"{self.parties}."
            )
        if self.complete and self.threshold <= self.colluders:
            raise ValueError(
                f"threshold must exceed colluders = {self.colluders}, got {self.threshold}: they "
                "would open every secret."
            )
        if self.mode is Mode.ACTIVE:
            self._check_active()
        least = max(self.threshold, self.colluders + 2)
        if not least <= self.minimum <= self.parties:
            raise ValueError(
                f"minimum must lie between {least}, for threshold = {self.threshold} and colluders "
                f"= {self.colluders}, and parties = {self.parties}, got {self.minimum}."
            )

    def _check_active(self) -> None:
        if not self.complete:
            raise ValueError(
                f"holders must be all {self.parties} parties in active mode, got {self.holders}: "
                "in a sparse graph the server could leave an answer out of the sum."
            )
        if 2 * self.threshold <= self.roster + self.colluders:
            raise ValueError(
                f"threshold must exceed (roster + colluders) / 2 = "
                f"{(self.roster + self.colluders) / 2:g} in active mode, got {self.threshold}: a "
                "round could be opened over two sets of parties."
            )

    @property
    def missing(self) -> int:
        """d: how many parties of the roster may be missing from a sum."""
        return self.roster - self.minimum

    def sentence(self) -> str:
        """What these numbers tolerate, in words."""
        return tolerance(
            parties=self.roster,
            mode=self.mode.value,
            colluders=self.colluders,
            minimum=self.minimum,
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
        corrupt: float = DEFAULT_COLLUDING,
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
            corrupt: The largest fraction of the roster that colludes with the server: c of them, by
                `colluders_of`.
            dropout: The largest fraction of the roster that may be missing: d of them, and one at
                the least if the fraction is positive and c leaves room for it. A party that was
                not announced counts as missing.
            security: σ: a round is insecure with probability at most 2^-σ. Complete graph: zero.
            liveness: η: a round within d fails with probability at most 2^-η. Complete graph: zero.
            minimum: The least number of answers in a sum; m - d if not given.

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
        if mode is Mode.ACTIVE and roster > MOST_ACTIVE:
            raise ValueError(
                f"active mode is for at most {MOST_ACTIVE} parties, got {roster}: it needs shares "
                "of everybody at everybody. Use semi-honest mode."
            )
        sizes = graph_sizes(
            mode=mode,
            parties=parties,
            roster=roster,
            corrupt=corrupt,
            dropout=dropout,
            security=security,
            liveness=liveness,
        )
        minimum = roster - sizes.missing if minimum is None else minimum
        if minimum > parties:
            raise ValueError(
                f"{parties} of {roster} parties are too few for a sum of at least {minimum}."
            )
        return cls(
            mode=mode,
            roster=roster,
            colluders=sizes.colluders,
            parties=parties,
            holders=sizes.holders,
            threshold=sizes.threshold,
            minimum=minimum,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphSizes:
    """The sizes of a round's communication graph: c, d, k and t of the text above."""

    colluders: int
    missing: int
    holders: int
    threshold: int


def graph_sizes(
    *,
    mode: Mode,
    parties: int,
    roster: int,
    corrupt: float,
    dropout: float,
    security: float = 40.0,
    liveness: float = 20.0,
) -> GraphSizes:
    """The fewest holders, and the smallest threshold with them: see `Parameters.plan`.

    Only the rule, for any number of parties; `Parameters` limits the number that the protocol
    takes.

    Raises:
        ValueError: If no threshold meets the conditions.
    """
    bad, gone = colluders_of(corrupt, roster), count_of(dropout, roster)
    if mode is Mode.ACTIVE:
        holders, threshold = parties, (roster + bad) // 2 + 1
    elif parties <= COMPLETE:
        holders, threshold = parties, max(parties // 2, bad) + 1
    else:
        left = max(0, gone - (roster - parties))
        holders, threshold = _search(parties, min(bad, parties - 1), left, security, liveness)
    least = max(threshold, bad + 2)
    if gone == 0 and dropout > 0 and least < roster:
        gone = 1
    if holders == 0 or least > roster - gone:
        raise ValueError(
            f"no threshold is secure with {bad} of {roster} parties colluding and live with "
            f"{gone} missing in {mode.value} mode: it takes sums of {least} or more. Allow "
            "fewer of either."
        )
    return GraphSizes(colluders=bad, missing=gone, holders=holders, threshold=threshold)


def _search(n: int, bad: int, gone: int, security: float, liveness: float) -> tuple[int, int]:
    """The smallest even k, and the smallest t with it; (0, 0) if there is none."""
    half, live = 2.0 ** -(security + 1), 2.0**-liveness
    for k in range(2, n, 2):
        t = np.arange(1, k + 1)
        corrupt = log_tails(population=n - 1, marked=bad, drawn=k)
        secure = n * np.exp(corrupt[t]) <= half
        # Fewer than t stay: more than k - t leave. The party itself is one of those that stay.
        leaving = log_tails(population=n - 1, marked=gone, drawn=k)
        lively = n * np.exp(leaving[k - t + 1]) <= live
        for threshold in t[secure & lively].tolist():
            if _disconnected(n, bad + gone, k) <= half:
                return k, threshold
    return 0, 0


def _disconnected(n: int, outside: int, k: int) -> float:
    """A bound on the probability that the masks leave two sets of honest parties unconnected.

    A set of s honest parties, at most half of them, is cut off only if every member has all k of
    its holders inside the set or among the ``outside`` (colluding or missing), which do not count.
    The members draw independently, and drop-outs do not depend on the draws: union bound over all
    sets.
    """
    honest = n - outside
    s = np.arange(1, honest // 2 + 1)
    inside = np.minimum(log_choose(outside + s - 1, k) - log_choose(n - 1, k), 0.0)  # ln P[X = k]
    return float(np.exp(np.minimum(log_choose(honest, s) + s * inside, 0.0)).sum())
