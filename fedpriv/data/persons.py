"""Persons: which records are one person's, for a guarantee about all records of a person.

A person is named by an identifier, a column of the table. It is not a feature: nothing is learned
from it. A person's side of the test split, or party, depends on that identifier and a seed alone.
If a person joins or leaves, all others keep theirs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import shake_256
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv._validate import require_count
from fedpriv.data.errors import DataError
from fedpriv.data.marks import marks, mixed, ranks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fedpriv.data.dataset import Records


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Persons:
    """The person of each record.

    Two records belong to one person if and only if they have the same code. Hashes do not decide
    it: with a collision, two persons counted as one would double the sensitivity.

    Attributes:
        codes: int64 (n,): the person of each record, as an index of ``hashes``.
        hashes: uint64 (P,): a hash of each person's identifier. Some may have no record here.
    """

    codes: NDArray[np.int64]
    hashes: NDArray[np.uint64]

    def __post_init__(self) -> None:
        for name, dtype in (("codes", np.int64), ("hashes", np.uint64)):
            array = np.ascontiguousarray(getattr(self, name), dtype).view()
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        if self.codes.ndim != 1 or self.hashes.ndim != 1:
            raise DataError("codes and hashes of persons must be vectors.")
        if len(self.codes) and not 0 <= self.codes.min() <= self.codes.max() < len(self.hashes):
            raise DataError(f"codes must index the {len(self.hashes)} persons.")

    @classmethod
    def named(cls, codes: NDArray[np.integer[Any]], identifiers: Sequence[str]) -> Persons:
        """Persons by their different identifiers, which ``codes`` index."""
        return cls(codes=codes.astype(np.int64), hashes=_hashes(identifiers))

    @classmethod
    def of(cls, identifiers: Any) -> Persons:
        """Persons by the identifier of each record: numbers or texts, in an array or a list."""
        column = np.asarray(identifiers)
        if column.ndim != 1 or column.dtype.kind not in "iuUSO":
            raise DataError(
                "person must hold one identifier a record, an integer or a text, got "
                f"{column.dtype} of shape {column.shape}."
            )
        texts, codes = np.unique(column.astype(str), return_inverse=True)
        return cls.named(codes.ravel(), texts.tolist())

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, rows: slice | NDArray[Any]) -> Persons:
        """The persons of the chosen records."""
        return Persons(codes=self.codes[rows], hashes=self.hashes)

    def marks(self, *, purpose: str, seed: int) -> NDArray[np.uint64]:
        """The 64-bit pseudo-random mark of each record's person."""
        key = shake_256(f"fedpriv person {purpose} {seed}".encode()).digest(16)
        factor, start = np.frombuffer(key, "<u8")
        drawn: NDArray[np.uint64] = mixed(self.hashes * (factor | np.uint64(1)) + start)
        return drawn[self.codes]


def joined(first: Persons | None, second: Persons | None) -> Persons | None:
    """The persons of concatenated records; None if some are unknown."""
    if first is None or second is None:
        return None
    if first.hashes is not second.hashes and not np.array_equal(first.hashes, second.hashes):
        raise DataError("records can be put together only if the same codes mean the same persons.")
    return Persons(codes=np.concatenate([first.codes, second.codes]), hashes=first.hashes)


def grouped(persons: Persons, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """The order that puts each person's records side by side, at each of the stacked parties.

    A person's records keep their order, and persons are ordered by their codes: whoever leaves, the
    others keep their order.
    """
    party = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    return np.lexsort((persons.codes, party))


def bounds_of_persons(persons: Persons, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """The bounds of persons among `grouped` records: int64 (P + 1).

    A person with records at two parties is counted at both.
    """
    count = len(persons)
    if not count:
        return np.zeros(1, np.int64)
    begins = np.ones(count, bool)
    begins[1:] = np.diff(persons.codes) != 0
    begins[offsets[offsets < count]] = True
    return np.append(np.flatnonzero(begins), count)


def at_most(
    records: Records, offsets: NDArray[np.int64], *, records_each: int
) -> NDArray[np.bool_]:
    """Which records to keep so that nobody has more than ``records_each`` at a stacked party.

    A person's records with the smallest marks (`fedpriv.data.marks`) are kept. The rule looks at
    that person alone. Copies, records of that person with the same features and label, are numbered
    within the person and have a mark each: which of them is kept makes no difference.
    """
    require_count(records_each=records_each)
    person = require_persons(records)
    party = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    # One number per person and party: copies are numbered within it. The party's position in the
    # stack must not matter.
    owner = party * len(person.hashes) + person.codes
    anywhere = replace(records, party=None)
    drawn = marks(anywhere, purpose="records of a person", seed=0, owner=owner)
    places = np.argsort(drawn, kind="stable")
    kept: NDArray[np.bool_] = np.empty(len(records), bool)
    kept[places] = ranks(owner[places]) < records_each
    return kept


def at_few_parties(records: Records, *, parties: int) -> NDArray[np.bool_]:
    """Which records to keep so that nobody has records at more than ``parties`` parties.

    A person stays at the parties that come first in an order of that person's own, by hash. It can
    be enforced only where all parties' records are in one place.
    """
    require_count(parties=parties)
    person, party = require_persons(records), records.party
    if party is None:
        return np.ones(len(records), bool)
    pairs, member = np.unique(
        np.column_stack([person.codes, party.astype(np.int64)]), axis=0, return_inverse=True
    )
    turns = mixed(person.hashes[pairs[:, 0]] + mixed((pairs[:, 1] + 1).astype(np.uint64)))
    places = np.lexsort((turns, pairs[:, 0]))
    kept = np.empty(len(pairs), bool)
    kept[places] = ranks(pairs[places, 0]) < parties
    return np.asarray(kept[member.ravel()])


def require_persons(records: Records) -> Persons:
    """The persons of the records; refuses records without persons."""
    if records.person is None:
        raise DataError(
            "the person unit of privacy needs to know whose records these are: name the column of "
            "the table in its schema, as in person = 'patient'."
        )
    return records.person


def _hashes(identifiers: Sequence[str]) -> NDArray[np.uint64]:
    """A hash of every text by itself: multilinear over its characters, as in `marks`."""
    lengths = np.fromiter(map(len, identifiers), np.int64, len(identifiers))
    text = "".join(identifiers).encode("utf-32-le", "surrogatepass")
    characters = np.frombuffer(text, "<u4").astype(np.uint64)
    ends = np.cumsum(lengths)
    within = np.arange(len(characters)) - np.repeat(ends - lengths, lengths)
    longest = int(lengths.max(initial=0))
    key = shake_256(b"fedpriv identifiers of persons").digest(8 * (longest + 2))
    start, length, *factors = np.frombuffer(key, "<u8")
    products = (characters + np.uint64(1)) * np.array(factors, np.uint64)[within]
    total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(products, dtype=np.uint64)])
    sums = total[ends] - total[ends - lengths]
    return np.asarray(mixed(sums + lengths.astype(np.uint64) * length + start))
