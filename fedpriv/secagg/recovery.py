"""Recovery of secrets from shares, some of which may be wrong.

Every secret can be recognised: a seed by its commitment, a mask key by its public key. So a wrong
share can only cause delay: another set of ``threshold`` shares is tried, and the first set that
opens the secret also shows which shares were wrong. Where there are too many sets to try them all,
decoding finds the right shares, if at most half of those beyond the threshold are wrong. Without
it, a few liars among many holders would never be found, and an innocent party would be blamed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from itertools import combinations, islice
from math import comb
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.secagg.errors import TooFewParties, WronglyShared
from fedpriv.secagg.primitives import shamir
from fedpriv.secagg.primitives.decoding import on_one_polynomial

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

_BATCH = 128  # sets of shares tried at a time
_ATTEMPTS = 1 << 15  # sets in total; if there are more, shares are decoded
_DRAWS = 3  # combinations of limbs; in each, a wrong share passes with probability 2^-16


@dataclass(frozen=True, slots=True, kw_only=True)
class Puzzle:
    """One secret to be recovered from shares.

    Attributes:
        owner: The party whose secret it is.
        shares: What its holders sent, packed.
        fits: Whether 32 bytes are the secret.
        heard: How many of its holders replied: one that sent no share received none that opens.
    """

    owner: int
    shares: Mapping[int, bytes] = field(repr=False)
    fits: Callable[[bytes], bool] = field(repr=False)
    heard: int = 0


def recover(
    puzzles: Sequence[Puzzle], threshold: int, *, colluders: int = 0
) -> tuple[dict[int, bytes], frozenset[int]]:
    """Every owner's secret, and the holders whose shares were found to be wrong.

    All puzzles are first tried at once, with the first ``threshold`` shares of each. Up to
    ``colluders`` of the holders that replied may lie about the shares of an innocent owner: it is
    blamed with certainty only if that many lies would have been found.

    Raises:
        TooFewParties: If a secret has fewer than ``threshold`` right shares, or so many wrong ones
            that no right set was found; `WronglyShared` if its holders were heard.
    """
    wrong: set[int] = set()
    sorted_out = [_Shares.of(puzzle, wrong) for puzzle in puzzles]
    for puzzle, shares in zip(puzzles, sorted_out, strict=True):
        if len(shares.holders) < threshold:
            words = (
                f"{len(shares.holders)} shares of party {puzzle.owner} arrived, of the "
                f"{threshold} required."
            )
            if puzzle.heard >= threshold:
                raise _wrongly_shared(words, puzzle, threshold + colluders)
            raise TooFewParties(words)
    if not puzzles:
        return {}, frozenset()
    points = np.stack([shares.points[:threshold] for shares in sorted_out])
    values = np.stack([shares.values[:threshold] for shares in sorted_out])
    secrets: dict[int, bytes] = {}
    for row, puzzle, shares in zip(_combined(points, values), puzzles, sorted_out, strict=True):
        secret = shamir.secret_bytes(row)
        if secret is None or not puzzle.fits(secret):
            secret = _search(puzzle, shares, threshold, wrong)
            if secret is None:
                words = (
                    f"Too many shares of party {puzzle.owner} are wrong: its secret was not found."
                )
                # Some set would be right; decoding corrects as many errors as there are beyond.
                spare = colluders if _few(shares, threshold) else 2 * colluders
                raise _wrongly_shared(words, puzzle, threshold + spare)
        secrets[puzzle.owner] = secret
    return secrets, frozenset(wrong)


@dataclass(frozen=True, slots=True)
class _Shares:
    """The shares of one secret, as field elements."""

    holders: NDArray[np.int64]
    points: NDArray[np.int64]
    values: NDArray[np.int64] = field(repr=False)

    @classmethod
    def of(cls, puzzle: Puzzle, wrong: set[int]) -> _Shares:
        """Read a puzzle's shares; a holder whose share is not field elements is wrong."""
        holders = np.array(sorted(puzzle.shares), dtype=np.int64)
        values = shamir.unpack([puzzle.shares[holder] for holder in holders.tolist()])
        valid = shamir.in_field(values)
        wrong.update(holders[~valid].tolist())
        return cls(holders[valid], shamir.points(holders[valid].tolist()), values[valid])


def _wrongly_shared(words: str, puzzle: Puzzle, proving: int) -> WronglyShared:
    """The error; its party is certainly at fault if at least ``proving`` holders replied."""
    return WronglyShared(words, party=puzzle.owner, certain=puzzle.heard >= proving)


def _search(puzzle: Puzzle, shares: _Shares, threshold: int, wrong: set[int]) -> bytes | None:
    """Try other sets of shares; add the holders whose shares prove wrong to ``wrong``."""
    for chosen in _choices(shares, threshold, wrong):
        candidates = _combined(shares.points[chosen], shares.values[chosen])
        for row, index in zip(candidates, chosen, strict=True):
            secret = shamir.secret_bytes(row)
            if secret is not None and puzzle.fits(secret):
                wrong.update(_inconsistent(shares, index))
                return secret
    return None


def _choices(shares: _Shares, threshold: int, wrong: set[int]) -> Iterator[NDArray[np.int64]]:
    """Batches of index sets: the holders never found wrong; then all sets, or those decoded."""
    count = shares.holders.size
    suspected = np.isin(shares.holders, list(wrong))
    yield np.argsort(suspected, kind="stable")[np.newaxis, :threshold]
    if _few(shares, threshold):
        every = combinations(range(count), threshold)
        while batch := list(islice(every, _BATCH)):
            yield np.array(batch)
        return
    for draw in range(_DRAWS):
        if (right := _decoded(shares, threshold, draw)) is not None and right.sum() >= threshold:
            yield np.flatnonzero(right)[np.newaxis, :threshold]


def _few(shares: _Shares, threshold: int) -> bool:
    """Whether all sets of shares can be tried."""
    return comb(shares.holders.size, threshold) <= _ATTEMPTS


def _decoded(shares: _Shares, threshold: int, draw: int) -> NDArray[np.bool_] | None:
    """Which shares are right, by one combination of their limbs.

    It is derived from all shares, so that no holder can predict it and lie where it does not look.
    """
    seed = sha256(shares.values.tobytes() + bytes([draw])).digest()
    generator = np.random.default_rng(int.from_bytes(seed, "big"))
    combination = generator.integers(1, shamir.PRIME, shares.values.shape[-1])
    values = shares.values @ combination % shamir.PRIME
    return on_one_polynomial(shares.points, values, threshold)


def _inconsistent(shares: _Shares, index: NDArray[np.int64]) -> list[int]:
    """The holders whose shares do not lie on the polynomials through the shares at ``index``."""
    others = np.setdiff1d(np.arange(shares.holders.size), index)
    if not others.size:
        return []
    through = np.broadcast_to(shares.points[index], (others.size, index.size))
    weights = shamir.weights(through, at=shares.points[others][:, np.newaxis])
    expected = shamir.combine(weights, shares.values[index][np.newaxis])
    differs = (expected != shares.values[others]).any(axis=-1)
    bad: list[int] = shares.holders[others[differs]].tolist()
    return bad


def _combined(points: NDArray[np.int64], values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Secrets from points (b, t) and values (b, t, 16); equal rows of points are solved once."""
    distinct, inverse = np.unique(points, axis=0, return_inverse=True)
    return shamir.combine(shamir.weights(distinct)[inverse], values)
