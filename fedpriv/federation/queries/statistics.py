"""StatisticsQuery: a party's sums for counts, moments, trees, tables and survival cells.

One vector per party, whose blocks a `Design` states. Parties hold the columns of their tables as
codes (`fedpriv.data.tables.columns`); a query about others than the party's schema has is refused.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from hashlib import sha256
from math import inf, nextafter, sqrt
from typing import TYPE_CHECKING, ClassVar, Literal

from fedpriv._validate import require_choice
from fedpriv.federation.queries.base import Query, read_by
from fedpriv.federation.queries.bounds import changes
from fedpriv.federation.queries.room import room
from fedpriv.federation.table_task import TableTask
from fedpriv.privacy.events import GaussianEvent, ZcdpEvent
from fedpriv.privacy.planning.statistics.statistics_design import Design
from fedpriv.privacy.unit import Unit

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from fedpriv.data.tables.columns import ColumnFacts
    from fedpriv.federation.task import Task
    from fedpriv.privacy.adjacency import Adjacency
    from fedpriv.privacy.events import Event
    from fedpriv.privacy.planning.statistics.statistics_blocks import Block

PerPerson = Literal["mean", "records"]
PER_PERSON: tuple[PerPerson, ...] = ("mean", "records")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StatisticsQuery(Query):
    """Σ over a party's records of the vector that a design states.

    For the person unit of privacy (`Task.persons`) Σ over its persons of the mean of their records'
    vectors, so that a person counts once at a party and moves it as one record would; or of their
    sum, which k records move k times as far.

    Attributes:
        design: The blocks.
        per_person: "mean" or "records"; of no effect but for persons.
        columns: `columns_digest` of what the server takes the columns for: a party whose schema has
            other ranges or values for them, or another order, would count something else. Empty if
            that is not to be compared.
    """

    kind: ClassVar[str] = "statistics"
    units: ClassVar[tuple[Unit, ...]] = (Unit.RECORD, Unit.PERSON)
    events: ClassVar[tuple[type[Event], ...]] = (GaussianEvent, ZcdpEvent)
    sampling_rate: ClassVar[float] = 1.0
    weighted: ClassVar[bool] = False
    joint_fit: ClassVar[bool] = False
    own_noise: ClassVar[None] = None
    design: Design = field(metadata=read_by(Design.read, optional=False))
    per_person: PerPerson = "mean"
    columns: str = ""

    def __post_init__(self) -> None:
        Query.__post_init__(self)
        require_choice(PER_PERSON, per_person=self.per_person)

    def record_bound(self, task: Task) -> float:
        """The norm of one record's vector, at most."""
        return sqrt(self.design.joining)

    def answer_width(self, task: Task) -> int:
        """That of the design."""
        return self.design.width

    def reach(self, task: Task, size: int) -> float:
        """Of all units that `room` has place for: a count must not be cut at it."""
        return room(task, size) * self._records(task) * self.design.largest

    def _records(self, task: Task) -> int:
        """By how many records' vectors a person moves the sum of a party."""
        if task.persons is None or self.per_person == "mean":
            return 1
        if task.persons.records is None:
            raise ValueError(
                "persons.records must be given with per_person = 'records': how far a person moves "
                "a sum of records follows from how many one has."
            )
        return task.persons.records

    def sensitivity(
        self, task: Task, *, sizes: Collection[int], adjacency: Adjacency
    ) -> float | None:
        """`statistics_sensitivity` of the design."""
        return statistics_sensitivity(
            self.design,
            task,
            adjacency=adjacency,
            step=self.grid.step,
            records=self._records(task),
        )

    def check(self, task: Task) -> None:
        """The columns must be those of the party's schema, each of the right kind."""
        if not isinstance(task, TableTask):
            raise ValueError("statistics are of a table: this party was asked to learn a model.")
        for block in self.design.blocks:
            check_block(block, task.columns)
        if self.columns and self.columns != columns_digest(self.design, task.columns):
            raise ValueError(
                "columns must be described alike everywhere, by name, range, values and order, and "
                "the schema of this party differs from the server's: agree on one schema."
            )
        self._records(task)

    def check_certain(self, task: Task) -> None:
        """Sums always exist."""


def columns_digest(design: Design, columns: Sequence[ColumnFacts]) -> str:
    """SHA-256 of what is publicly known of the columns that a design is computed from."""
    used = sorted({index for block in design.blocks for index in block.columns})
    facts = [(index, columns[index]) for index in used]
    told = [[i, each.name, float(each.low), float(each.high), *each.values] for i, each in facts]
    return sha256(json.dumps(told).encode()).hexdigest()


def statistics_sensitivity(
    design: Design, task: Task, *, adjacency: Adjacency, step: float, records: int = 1
) -> float:
    """How far one unit moves the sum over all parties, before the grid of one answer.

    Each party counts in integers, which is exact, and then multiplies by weights: rounding adds
    2⁻⁵² times the largest count before and after, in every coordinate of every answer that changes.
    Answers are clamped at `room`. A record that stays in place, or joins, or leaves, changes one
    answer, which the clamp moves no further. Who is exchanged may otherwise leave one party and
    join another, and what cancels in their sum does not if one of the two is clamped: hence the
    wide room.
    All but one of the grid's √d·step are part of the result, since whoever plans a release adds
    that of one answer.
    """
    unit = Unit.RECORD if task.persons is None else Unit.PERSON
    parties = 1 if task.persons is None else task.persons.parties
    moved = design.sensitivity(adjacency, unit=unit, records=records, parties=parties)
    answers = 1 if task.in_place else changes(task, adjacency)
    reach = room(task, task.largest) * records * design.largest
    rounding = answers * reach * 2.0**-51 + (answers - 1) * step
    return nextafter(moved + rounding * sqrt(design.width), inf)


def check_block(block: Block, columns: tuple[ColumnFacts, ...]) -> None:
    """Refuse a block of other columns than there are, or of another kind."""
    if any(index >= len(columns) for index in block.columns):
        raise ValueError(f"columns must be among the {len(columns)} of the schema.")
    chosen = [columns[index] for index in block.columns]
    match block.kind:
        case "histogram" if not block.edges:
            good = not chosen[0].is_number and block.cells[0] == chosen[0].codes
        case "table":
            good = tuple(len(facts.values) for facts in chosen) == block.cells
        case "survival":
            time, event, *groups = chosen
            counts = [len(group.values) for group in groups] or [1]
            good = (
                time.is_number and block.event < len(event.values) and counts[0] == block.cells[1]
            )
        case _:
            good = all(facts.is_number for facts in chosen)
    if not good:
        raise ValueError(
            f"a {block.kind!r} block must fit the kinds of its columns in the schema: "
            f"{', '.join(facts.name for facts in chosen)}."
        )
