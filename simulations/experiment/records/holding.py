"""Holding: who holds which records of an experiment, and how many that is in public."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedpriv.data import PartitionedDataset


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Holding:
    """Who holds which records, and how many that is in public.

    Attributes:
        data: The records, sorted by party. The number at each party is private: it depends on the
            test split and, under add-remove adjacency, on which records exist.
        sizes: n_j, the public number of training records of each party: the number that the
            experiment declares, or else that of the party's records, times the share that a split
            by hash leaves. Everything that is divided, weighted or calibrated uses these. For the
            person unit of privacy, of persons.
        headroom: The largest ratio of a party's number of records to its size.
        in_place: Whether no other record affects a record's position: no hash decides which records
            are trained on, or at which of several parties.
        own_test: Whether the test records were set apart by their source, not drawn by a hash.
    """

    data: PartitionedDataset
    sizes: tuple[int, ...]
    headroom: float
    in_place: bool
    own_test: bool
