"""Server states: what the server remembers between two steps; kept in memory only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fedpriv.secagg.numbers.fixed_point import Ring


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """A message that was rejected; the round continues without it."""

    party: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysCollected:
    """After step 0: the signed keys and the holders of every party that advertised."""

    keys: Mapping[int, bytes] = field(repr=False)
    holders: Mapping[int, frozenset[int]] = field(repr=False)
    rejected: tuple[Rejection, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SharesCollected:
    """After step 1: keys, holders and commitments of every party that shared."""

    keys: Mapping[int, bytes] = field(repr=False)
    holders: Mapping[int, frozenset[int]] = field(repr=False)
    commitments: Mapping[int, bytes] = field(repr=False)
    rejected: tuple[Rejection, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswersCollected:
    """After step 2: the survivors, the query, and the sum of the answers, still masked."""

    shares: SharesCollected = field(repr=False)
    survivors: frozenset[int]
    masked: Ring = field(repr=False)
    about: bytes = field(repr=False)
    rejected: tuple[Rejection, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsentCollected:
    """After step 3, active mode: who has signed the set of survivors."""

    answers: AnswersCollected
    confirmed: frozenset[int]
    rejected: tuple[Rejection, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """The unmasked total: the sum of the survivors' answers, and nothing else about them.

    Attributes:
        vector: The sum, as ring elements.
        parties: Whose answers are in it.
        rejected: Messages not accepted, in any step.
        wrong: Holders of shares found to be wrong: either they or the owner falsified them.
    """

    vector: Ring = field(repr=False)
    parties: tuple[int, ...]
    rejected: tuple[Rejection, ...]
    wrong: frozenset[int]
