"""StatisticsQuery: a party's sums for counts, moments, trees, tables and survival cells.

One vector per party, whose blocks a `Design` states. Parties hold the columns of their tables as
codes (`fedpriv.data.tables.columns`); a query about columns that differ from the party's schema is
refused.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from hashlib import sha256
from math import inf, nextafter, sqrt
from typing import TYPE_CHECKING, ClassVar, Literal

from fedpriv._validate import require_choice
from fedpriv.federation.queries.base import LATER, Query, read_by, with_terms
from fedpriv.federation.queries.bounds import changes
from fedpriv.federation.queries.local_noise import LocalNoise
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
BY_PARTY = "statistics by party"
"""The form of a query that keeps the parties' sums apart."""

MOST_PARTS, MOST_PARTS_NUMBERS = 100, 1 << 20
"""The most parties side by side: everyone's answer is as long as all of them together."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StatisticsQuery(Query):
    """Σ over a party's records of the vector that a design states.

    For the person unit of privacy (`Task.persons`) Σ over its persons of the mean of their records'
    vectors, so that a person counts once at a party and moves it as one record would; or of their
    sum, which k records move k times as far.

    Attributes:
        design: The blocks.
        per_person: "mean" or "records"; only used for persons.
        by_party: Whether the parties' sums stay side by side in a vector of as many parts as there
            are parties: each fills its own part, and all others with zeros. Deployed parties
            answer only with ``local`` noise: else the server would see their sums without noise.
        local: Noise that every party adds to its own part, by party only. It is as much as the
            server would add to the parts: nothing of a part is anybody else's, so that no other
            party can help to hide it, and masks do not.
        columns: `columns_digest` of the server's view of the columns: a party whose schema has
            other ranges or values for them, or another order, would count something else. Empty if
            it is not compared.
    """

    kind: ClassVar[str] = "statistics"
    units: ClassVar[tuple[Unit, ...]] = (Unit.RECORD, Unit.PERSON)
    events: ClassVar[tuple[type[Event], ...]] = (GaussianEvent, ZcdpEvent)
    sampling_rate: ClassVar[float] = 1.0
    weighted: ClassVar[bool] = False
    joint_fit: ClassVar[bool] = False
    design: Design = field(metadata=read_by(Design.read, optional=False))
    per_person: PerPerson = "mean"
    by_party: bool = False
    columns: str = ""
    local: LocalNoise | None = field(default=None, metadata=LATER | read_by(with_terms(LocalNoise)))

    def __post_init__(self) -> None:
        Query.__post_init__(self)
        require_choice(PER_PERSON, per_person=self.per_person)
        if type(self.by_party) is not bool:
            raise ValueError(f"by_party must be true or false, got {self.by_party!r}.")
        if self.local is not None and (self.share is not None or not self.by_party):
            raise ValueError(
                "local must be given by party only, and not with share: noise of a party's own is "
                "on its part alone, and is all the noise that this part has."
            )

    @property
    def form(self) -> str:
        """Of all parties together, or of each by itself."""
        return BY_PARTY if self.by_party else self.kind

    @property
    def own_noise(self) -> LocalNoise | None:
        """Noise on the party's own part."""
        return self.local

    def own_part(self, task: Task, party: int) -> slice:
        """By party the part of this one, and no other."""
        if not self.by_party:
            return Query.own_part(self, task, party)
        return slice(party * self.design.width, (party + 1) * self.design.width)

    def record_bound(self, task: Task) -> float:
        """The largest norm of one record's vector."""
        return sqrt(self.design.joining)

    def answer_width(self, task: Task) -> int:
        """That of the design, times the number of parties where each has its own part."""
        return self.design.width * parts_of(task, by_party=self.by_party)

    @property
    def shows_parties(self) -> bool:
        """Whether whoever sees the sum can read each party's answer in it."""
        return self.by_party

    def reach(self, task: Task, size: int) -> float:
        """That of all units that `room` allows: a count must not be clamped below it."""
        return room(task, size) * self._records(task) * self.design.largest

    def _records(self, task: Task) -> int:
        """How many records' vectors a person adds to a party's sum."""
        if task.persons is None or self.per_person == "mean":
            return 1
        if task.persons.records is None:
            raise ValueError(
                "persons.records must be given with per_person = 'records': how far a person moves "
                "a sum of records depends on the most records that one has."
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
            by_party=self.by_party,
        )

    def check(self, task: Task) -> None:
        """The columns must be those of the party's schema, each of the right kind."""
        if not isinstance(task, TableTask):
            raise ValueError("statistics are of a table: this party was asked to learn a model.")
        for block in self.design.blocks:
            check_block(block, task.columns)
        require_parts(self.design, task, by_party=self.by_party)
        if self.columns and self.columns != columns_digest(self.design, task.columns):
            raise ValueError(
                "columns must be described identically everywhere, by name, range, values and "
                "order, and this party's schema differs from the server's: agree on one schema."
            )
        self._records(task)

    def check_certain(self, task: Task) -> None:
        """Sums always exist."""


def columns_digest(design: Design, columns: Sequence[ColumnFacts]) -> str:
    """SHA-256 of the public facts of the columns that a design is computed from."""
    used = sorted({index for block in design.blocks for index in block.columns})
    facts = [(index, columns[index]) for index in used]
    told = [[i, each.name, float(each.low), float(each.high), *each.values] for i, each in facts]
    return sha256(json.dumps(told).encode()).hexdigest()


def parts_of(task: Task, *, by_party: bool) -> int:
    """How many vectors of the design lie side by side in an answer."""
    return task.parties if by_party else 1


def require_parts(design: Design, task: Task, *, by_party: bool) -> None:
    """Refuse parts by party where they would be too many, or too long."""
    if not by_party:
        return
    if task.parties > MOST_PARTS or task.parties * design.width > MOST_PARTS_NUMBERS:
        raise ValueError(
            f"describe.by_party must be of at most {MOST_PARTS} parties and {MOST_PARTS_NUMBERS} "
            f"numbers together, got {task.parties} parties with {design.width} numbers each: ask "
            "for fewer columns or bins."
        )


def statistics_sensitivity(
    design: Design,
    task: Task,
    *,
    adjacency: Adjacency,
    step: float,
    records: int = 1,
    by_party: bool = False,
) -> float:
    """How far one unit moves the sum over all parties, before the grid of one answer.

    Each party counts in integers, which is exact, and then multiplies by weights: rounding adds
    2⁻⁵² times the largest count before and after, in every coordinate of every answer that changes.
    Answers are clamped at `room`. A record that stays in place, or joins, or leaves, changes one
    answer, which clamping moves no further. An exchanged unit may otherwise leave one party and
    join another, and what cancels in their sum does not cancel if one of the two is clamped: hence
    the wide room.
    Side by side (``by_party``) a record is in its party's part, which is as long as the sum of all
    would be: a record that joins, leaves, or is exchanged in place moves that part alone, and as
    far. Two parts move only where an exchanged unit may change parties. A person moves up to p
    parts, whose squares add up; the person who comes instead may have records at p others.
    This is how far all parts move *together*. So with noise of the same relative size at every
    party, each on its own part, the parts of all parties cost what is stated, whoever looks.
    The result includes all but one of the grid's √d·step, since whoever plans a release adds that
    of one answer.
    """
    unit = Unit.RECORD if task.persons is None else Unit.PERSON
    parties = 1 if task.persons is None else task.persons.parties
    moved = design.sensitivity(
        adjacency,
        unit=unit,
        records=records,
        parties=parties,
        elsewhere=by_party and not task.in_place,  # where no person is
    )
    answers = 1 if task.in_place else changes(task, adjacency)
    reach = room(task, task.largest) * records * design.largest
    rounding = answers * reach * 2.0**-51 + (answers - 1) * step
    return nextafter(moved + rounding * sqrt(design.width), inf)


def check_block(block: Block, columns: tuple[ColumnFacts, ...]) -> None:
    """Refuse a block whose columns do not exist, or are of another kind."""
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
