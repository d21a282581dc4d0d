"""The task of describing a table: columns of codes where a learning task has features.

Everything that engines, guards and plans ask of a task holds here as well: parties, their public
sizes, persons. There is nothing to learn: the model has one weight per column and none is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedpriv.data.tables.columns import ColumnFacts, codes_norm
from fedpriv.federation.task import Task
from fedpriv.learning.losses import HuberRegression
from fedpriv.learning.models import LinearModel

if TYPE_CHECKING:
    from fedpriv.federation.task import PersonBounds

# The facts as well: strategies see them, and nothing that reads a table.
__all__ = ["ColumnFacts", "TableTask", "table_task"]


@dataclass(frozen=True, kw_only=True)
class TableTask(Task):
    """A table to describe.

    Attributes:
        columns: What is publicly known of every column, in the order of the codes.
    """

    columns: tuple[ColumnFacts, ...] = ()


def table_task(
    columns: tuple[ColumnFacts, ...],
    *,
    sizes: tuple[int, ...],
    headroom: float = 1.0,
    in_place: bool = True,
    persons: PersonBounds | None = None,
) -> TableTask:
    """The task of parties with so many records each, whose tables have these columns."""
    return TableTask(
        model=LinearModel(width=len(columns)),
        loss=HuberRegression(threshold=1.0),
        regulariser=0.0,
        feature_bound=codes_norm(columns) * (1 + 2.0**-20),  # codes are in float32
        sizes=sizes,
        headroom=headroom,
        in_place=in_place,
        persons=persons,
        columns=columns,
    )
