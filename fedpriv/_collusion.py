"""Colluding parties: how many may tell the server all they know; one rule for all of fedpriv.

Masks, shares of noise, policies and statements all use `colluders_of`, so that they never assume
different numbers.
"""

from __future__ import annotations

from math import floor

DEFAULT_COLLUDING = 0.1
"""The fraction of the parties that may collude with the server, unless somebody says otherwise."""


def count_of(fraction: float, parties: int) -> int:
    """⌊fraction·parties⌋, robust to rounding: 0.29 · 100 is 28.999999999999996."""
    return floor(fraction * parties + 1e-9)


def colluders_of(fraction: float, parties: int) -> int:
    """c: how many of ``parties`` collude with the server, for masks that hide the other answers.

    The fraction of them; with three or more parties at least one, unless the fraction is 0 on
    purpose. With two parties a colluder learns the other's answer from the sum, so masks promise
    nothing: c is then 0 unless the fraction says otherwise, and in that case there is no plan.

    >>> colluders_of(0.1, 5), colluders_of(0.1, 20), colluders_of(0.0, 5), colluders_of(0.1, 2)
    (1, 2, 0, 0)
    """
    least = 1 if fraction > 0 and parties >= 3 else 0
    return max(least, count_of(fraction, parties))


def tolerance(
    *,
    parties: int,
    mode: str,
    colluders: int,
    minimum: int,
    shares: int | None = None,
    apart: bool = False,
) -> str:
    """What masks tolerate, in words; ``shares`` of noise are honest, if the parties add it.

    Where every party is told of by itself (``apart``) they promise nothing: what is opened holds
    each party's part, and no part may be missing.

    >>> tolerance(parties=5, mode="active", colluders=1, minimum=4, shares=3)[132:]
    'No sum of fewer than 4; noise of 3 honest shares.'
    """
    if apart:
        return (
            f"{parties} parties, {mode}. Every party is told of by itself: masks hide no party "
            "among the others. With 1 missing the run stops."
        )
    missing = parties - minimum
    who = {0: "no party", 1: "1 party"}.get(colluders, f"{colluders} parties")
    noise = "" if shares is None else f"; noise of {shares} honest share{'s'[: shares != 1]}"
    return (
        f"{parties} parties, {mode}. Tolerates {who} colluding with the server and "
        f"{missing or 'none'} missing. With {missing + 1} missing the run stops and nothing is "
        f"revealed. No sum of fewer than {minimum}{noise}."
    )


def known_shares(fraction: float, parties: int) -> int:
    """How many shares of noise the worst observer knows: the colluders' shares, at least one.

    A party that only reads the release knows its own share, and is an observer like any other.
    """
    return max(colluders_of(fraction, parties), min(1, parties - 1))
