"""Marks: a number for every record that follows from that record and a seed, and from nothing else.

Marks decide the test split and parties by hash. If one record joins or leaves, all others keep
their marks, hence their side of the split and their party, whatever their position in the file.

Copies. Records of one party with equal features and an equal label are numbered 0, 1, 2, …, in any
order, and each number has its own mark: so copies are spread like other records. One copy more or
fewer adds or removes the last number; the set of the other marks stays the same.

Where a data set names persons, the split and parties by hash go by persons instead, whose records
stay together: see `fedpriv.data.persons`.
"""

from __future__ import annotations

from hashlib import shake_256
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from fedpriv.data.dataset import Records

_NUMBERS = 1 << 20  # at a time: bounds the memory


def marks(
    records: Records, *, purpose: str, seed: int, owner: NDArray[np.int64] | None = None
) -> NDArray[np.uint64]:
    """A pseudo-random number of 64 bits for every record, from the record and its copy's number.

    Multilinear hashing (Lemire and Kaser 2014): Σ aᵢ·wᵢ + b modulo 2⁶⁴ over the 32-bit words wᵢ of
    a record, its party and its number, with aᵢ and b from SHAKE-256 of ``purpose`` and ``seed``;
    then a finaliser that spreads the bits. It is not secret and need not be: privacy relies on what
    a mark depends on, not on its randomness.

    Args:
        records: Whose marks.
        purpose: What they are for: marks for other purposes are unrelated.
        seed: The same.
        owner: (n,): copies are numbered within an owner; the party, if not given.
    """
    width = records.X.shape[1] + records.y.itemsize // 4
    key = shake_256(f"fedpriv {purpose} {seed}".encode()).digest(8 * (width + 3))
    *factors, holder, number, start = np.frombuffer(key, "<u8")
    hashes = np.full(len(records), start, np.uint64)
    for part, words in _words(records):
        hashes[part] += words.astype(np.uint64) @ np.array(factors)
    if records.party is not None:
        hashes += records.party.astype(np.uint64) * holder
    if owner is None:
        party = records.party
        owner = np.zeros(len(records), np.int64) if party is None else party.astype(np.int64)
    return mixed(hashes + _copies(records, hashes, owner).astype(np.uint64) * number)


def order_by_mark(
    records: Records, drawn: NDArray[np.uint64], holder: NDArray[np.integer[Any]]
) -> NDArray[np.int64]:
    """The position of each record when sorted by holder, and by mark within a holder.

    Guarantee. If one record joins or leaves, all others stay in the same order, at every holder.
    The order of a file lacks that property: a copy that leaves renumbers those after it, and each
    of them takes another's place at another holder. Every holder then has the same set of records,
    but in another order, in which floating-point sums round differently.

    Records that differ and have equal marks are sorted by their bits.
    """
    order = np.lexsort((drawn, holder))
    tied = (np.diff(drawn[order]) == 0) & (np.diff(holder[order]) == 0)
    if tied.any():
        words = np.concatenate([part for _, part in _words(records)])
        order = np.lexsort((*words.T, drawn, holder))
    return order


def below(fraction: float, drawn: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Which marks are among the lowest ``fraction`` of all 64-bit numbers."""
    return drawn < np.uint64(min(int(fraction * 2.0**64), 2**64 - 1))


def cells(count: int, drawn: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Every mark as one of ``count`` cells of equal size, by its upper 32 bits."""
    return ((drawn >> np.uint64(32)) * np.uint64(count) >> np.uint64(32)).astype(np.int64)


def _words(records: Records) -> Iterator[tuple[slice, NDArray[np.uint32]]]:
    """The bits of features and label, some records at a time; equal numbers have equal bits."""
    rows = max(1, _NUMBERS // (records.X.shape[1] + 1))
    for first in range(0, len(records), rows):
        part = slice(first, first + rows)
        # Adding 0 turns −0 into 0.
        columns = records.X[part] + np.float32(0), (records.y[part] + records.y.dtype.type(0))
        yield part, np.column_stack([_bits(columns[0]), _bits(columns[1][:, np.newaxis])])


def _bits(values: NDArray[np.generic]) -> NDArray[np.uint32]:
    return np.ascontiguousarray(values).view("<u4")


def _copies(
    records: Records, hashes: NDArray[np.uint64], owner: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The number of every record among its copies of the same owner.

    Equal hashes are a cheap first test. That records are copies is then checked to the bit: if two
    different records shared a number, the mark of one would depend on the other.
    """
    numbers = ranks(owner, hashes)
    repeated = np.flatnonzero(numbers)
    if len(repeated) and not _all_copies(records, owner, hashes):
        rows = np.concatenate([words for _, words in _words(records)])
        _, groups = np.unique(rows.view([("", rows.dtype)] * rows.shape[1]), return_inverse=True)
        numbers = ranks(owner, groups.ravel())
    return numbers


def ranks(*keys: NDArray[np.integer]) -> NDArray[np.int64]:
    """The rank of every entry among those with the same keys, in their order."""
    order = np.lexsort(keys[::-1])
    new = np.zeros(len(order), bool)
    new[:1] = True
    for key in keys:
        new[1:] |= key[order][1:] != key[order][:-1]
    places = np.arange(len(order))
    found = np.empty(len(order), np.int64)
    found[order] = places - np.maximum.accumulate(np.where(new, places, 0))
    return found


def _all_copies(records: Records, owner: NDArray[np.int64], hashes: NDArray[np.uint64]) -> bool:
    """Whether all records of one owner with equal hashes are equal."""
    order = np.lexsort((hashes, owner))
    same = (np.diff(owner[order]) == 0) & (hashes[order][1:] == hashes[order][:-1])
    first, second = order[:-1][same], order[1:][same]
    rows = max(1, _NUMBERS // records.X.shape[1])
    return bool((records.y[first] == records.y[second]).all()) and all(
        (records.X[first[i : i + rows]] == records.X[second[i : i + rows]]).all()
        for i in range(0, len(first), rows)
    )


def mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64: a bijection in which every bit depends on every other."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        values = (values ^ (values >> np.uint64(shift))) * np.uint64(factor)
    return values ^ (values >> np.uint64(31))
