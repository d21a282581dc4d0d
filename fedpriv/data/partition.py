"""Partition of the training records: which party holds which.

A partition sorts the records so that each party's are contiguous. One computation over all records
then serves all parties, and sums over parties are sums over segments.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fedpriv._validate import require_choice, require_count, require_non_negative, require_positive
from fedpriv.data.errors import DataError
from fedpriv.data.marks import cells, marks, order_by_mark

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedpriv.data.dataset import Dataset, Records

Kind = Literal["natural", "hashed", "iid", "sized", "dirichlet"]
KINDS: tuple[Kind, ...] = ("natural", "hashed", "iid", "sized", "dirichlet")

BY_RECORD: tuple[Kind, ...] = ("natural", "hashed")
"""Kinds in which the party of a record follows from that record alone: what a release may use.

The others deal the records out: one record more moves others to other parties, and with
``dirichlet`` one flipped label does.

Where a data set names persons, all but ``natural`` keep the records of a person together: then it
is persons that are hashed, or dealt out.
"""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PartitionedDataset:
    """A data set whose training records are sorted by party. Made by `partition`.

    Attributes:
        dataset: The data set; its ``train.party`` ascends and its ``party_names`` name the parties.
            The records of a party keep the order of the file, whoever's they are: in an order by
            person, one record would change the order at other parties. Several parties by hash of
            each record have the order of these hashes (`fedpriv.data.marks`).
        kind: How the parties were made.
        offsets: int64 (m + 1): party j holds the training records offsets[j] to offsets[j + 1].
        order: int64 (n): the row in the original training set of each record; a permutation.
        mapped: Whether the training records are mapped from a store on disk, and so need not fit
            the memory.
    """

    dataset: Dataset
    kind: Kind
    offsets: NDArray[np.int64]
    order: NDArray[np.int64]
    mapped: bool = False

    @property
    def parties(self) -> int:
        """The number m of parties."""
        return len(self.offsets) - 1

    @property
    def sizes(self) -> NDArray[np.int64]:
        """The number n_j of training records of each party."""
        return np.diff(self.offsets)

    @property
    def persons(self) -> NDArray[np.int64] | None:
        """The number of persons with training records at each party; None if none are named."""
        train = self.dataset.train
        if train.person is None or train.party is None:
            return None
        there = np.unique(np.column_stack([train.party, train.person.codes]), axis=0)
        return np.bincount(there[:, 0], minlength=self.parties)

    @property
    def smallest(self) -> int:
        """The number of records of the smallest party."""
        return int(self.sizes.min())

    def party(self, index: int) -> Records:
        """The training records of one party; shares memory with the whole."""
        if not 0 <= index < self.parties:
            raise ValueError(f"index must lie in 0..{self.parties - 1}, got {index!r}.")
        return self.dataset.train.take(slice(self.offsets[index], self.offsets[index + 1]))


def partition(
    dataset: Dataset,
    *,
    kind: Kind,
    parties: int | None = None,
    rng: np.random.Generator | None = None,
    exponent: float | None = None,
    alpha: float | None = None,
    min_records: int | None = None,
    marked: Records | None = None,
) -> PartitionedDataset:
    """Distribute the training records over parties.

    The result is a function of the data set, the arguments and the state of ``rng``. Within a
    party, the records keep the order of the data set, except with several ``hashed`` parties: there
    copies of a record are at many parties, and one that leaves must not change the order at any of
    them. A single party has all records in the order of the file: replacing one record moves no
    other.

    Args:
        dataset: What to distribute. The test set stays common.
        kind: ``natural``: by the data set's own parties. ``hashed``: every record by its own mark
            (see `fedpriv.data.marks`) or its person's, about equally. ``iid``: at random, in equal
            sizes (± 1). ``sized``: at random, in sizes that fall as a power of the rank.
            ``dirichlet``: for each class, shares of the parties from a symmetric Dirichlet law
            (Hsu, Qi and Brown 2019).
        parties: How many; not for ``natural``.
        rng: The source of randomness; not needed for ``natural``.
        exponent: ``sized`` only: party j gets ``min_records`` and a share ∝ (j + 1)^−exponent of
            the rest, up to rounding; 0 makes the sizes equal.
        alpha: ``dirichlet`` only: the concentration; small values give each party few classes.
        min_records: The fewest records a party may hold. ``natural`` and ``hashed`` refuse data
            with a smaller party; if it is not given, a party may be empty. The other kinds first
            deal this many to every party, at least 1.
        marked: ``hashed`` only: the actual training records, where those of the data set are
            placeholders.
    """
    require_choice(KINDS, kind=kind)
    if min_records is not None:
        require_count(min_records=min_records)
    for name, value, owner in (("exponent", exponent, "sized"), ("alpha", alpha, "dirichlet")):
        if (value is not None) != (kind == owner):
            raise ValueError(f"{name} must be given for kind = {owner!r}, and for no other kind.")
    if kind == "natural":
        if parties is not None:
            raise ValueError("parties must not be given for kind = 'natural': the data decide.")
        return _sort_by_party(dataset, kind, *_natural(dataset), least=min_records)

    if parties is None or rng is None:
        raise ValueError(f"parties and rng must be given for kind = {kind!r}.")
    require_count(parties=parties)
    if kind == "hashed":
        seed, person = int(rng.integers(1 << 62)), dataset.train.person
        if person is None:
            drawn = marks(dataset.train if marked is None else marked, purpose="party", seed=seed)
        else:
            drawn = person.marks(purpose="party", seed=seed)
        holder = cells(parties, drawn)
        by_hash = person is None and parties > 1
        order = order_by_mark(dataset.train, drawn, holder) if by_hash else None
    else:
        order = None
        holder = _dealt(dataset, parties, rng, exponent, alpha, least=min_records or 1)
    # The natural parties of the test set would be read as indices of the new ones.
    renamed = replace(
        dataset,
        train=replace(dataset.train, party=None),
        test=replace(dataset.test, party=None),
        party_names=(),
    )
    names = tuple(f"party-{j}" for j in range(parties))
    return _sort_by_party(renamed, kind, holder, names, least=min_records, order=order)


def _dealt(
    dataset: Dataset,
    parties: int,
    rng: np.random.Generator,
    exponent: float | None,
    alpha: float | None,
    *,
    least: int,
) -> NDArray[np.int64]:
    """Records dealt out to parties by position, and for ``dirichlet`` by label.

    Persons, where named, are dealt out with all their records, by the position of the first.
    """
    train = dataset.train
    first, member = np.arange(len(train)), None
    if train.person is not None:
        _, first, member = np.unique(train.person.codes, return_index=True, return_inverse=True)
    n, what = len(first), "training records" if member is None else "persons"
    if parties * least > n:
        raise ValueError(
            f"parties must be at most {n // least} for {n} {what} and "
            f"min_records = {least}, got {parties}."
        )
    if alpha is None:
        sizes = _power_law(n, parties, exponent or 0.0, least)
        holder = rng.permutation(np.repeat(np.arange(parties), sizes))
    elif dataset.task == "regression":
        raise ValueError("kind = 'dirichlet' needs classes; a regression task has none.")
    else:
        require_positive(alpha=alpha)
        holder = _label_skewed(train.y[first], parties, alpha, least, rng)
    return holder if member is None else holder[member.ravel()]


def _natural(dataset: Dataset) -> tuple[NDArray[np.integer[Any]], tuple[str, ...]]:
    if dataset.train.party is None:
        raise DataError(
            f"{dataset.name} has no natural parties, whose records are whose: name the column in "
            "the schema, as in party = 'clinic', or deal the records out, as with data.partition = "
            "'iid' and data.parties = 3."
        )
    return dataset.train.party, dataset.party_names


def _power_law(n: int, parties: int, exponent: float, min_records: int) -> NDArray[np.int64]:
    require_non_negative(exponent=exponent)
    weights = np.arange(1, parties + 1, dtype=np.float64) ** -exponent
    spare = n - parties * min_records
    # Rounding the cumulated sizes, not the sizes, makes the total exact.
    cuts = np.rint(np.cumsum(weights) / weights.sum() * spare).astype(np.int64)
    cuts[-1] = spare
    sizes: NDArray[np.int64] = min_records + np.diff(cuts, prepend=0)
    return sizes


def _label_skewed(
    labels: NDArray[np.float32] | NDArray[np.int64],
    parties: int,
    alpha: float,
    min_records: int,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    shuffled = rng.permutation(len(labels))
    reserved, rest = np.split(shuffled, [parties * min_records])
    holder = np.empty(len(labels), np.int64)
    holder[reserved] = np.repeat(np.arange(parties), min_records)
    for label in np.unique(labels[rest]):
        rows = rest[labels[rest] == label]
        shares = rng.dirichlet(np.full(parties, alpha))
        holder[rows] = np.repeat(np.arange(parties), rng.multinomial(len(rows), shares))
    return holder


def _sort_by_party(
    dataset: Dataset,
    kind: Kind,
    holder: NDArray[np.integer[Any]],
    names: tuple[str, ...],
    *,
    least: int | None,
    order: NDArray[np.int64] | None = None,
) -> PartitionedDataset:
    """The records sorted by party; those of a party in the given order, or that of the file."""
    sizes = np.bincount(holder, minlength=len(names))
    small = np.flatnonzero(sizes < (least or 0))
    if small.size:
        raise DataError(
            f"{dataset.name}: {small.size} of {sizes.size} parties hold fewer than "
            f"min_records = {least} training records; the first is party {small[0]}, "
            "counted from 0. Leave such parties out."
        )
    order = np.argsort(holder, kind="stable") if order is None else order
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    train = replace(dataset.train, party=holder).take(order)
    order.flags.writeable = offsets.flags.writeable = False
    return PartitionedDataset(
        dataset=replace(dataset, train=train, party_names=names),
        kind=kind,
        offsets=offsets,
        order=order,
    )
