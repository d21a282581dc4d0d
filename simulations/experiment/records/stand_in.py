"""StandIn: records in the place of an experiment's own, for audits and attacks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedpriv.data import Dataset


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StandIn:
    """Records that an experiment is run on instead of its own; everything else stays as it is.

    Split, bounds and parties are those of the experiment. Where it deals records out by position,
    which no release may do, the records name their parties themselves.

    Attributes:
        dataset: The records, with the public facts of the experiment's own data set.
        by_hash: Whether the experiment draws its test records by hash.
        sizes: n_j, where they are public and would be counted: those of the experiment's own data.
    """

    dataset: Dataset
    by_hash: bool
    sizes: tuple[int, ...] | None = None
