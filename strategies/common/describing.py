"""Options of `fedpriv describe`, and the design blocks that they ask for.

Everything is declared in public terms: columns, ranges and values come from the schema, bins and
edges from the options, and nothing from the records.
"""

from __future__ import annotations

import itertools
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from fedpriv.privacy.planning.statistics.statistics_blocks import Block
from fedpriv.strategies.common.building import Options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedpriv.federation.table_task import ColumnFacts

CORRELATION, SURVIVAL, TOTAL = "correlation", "survival", "total"

Names = tuple[str, ...]
Edges = Annotated[tuple[float, ...], Field(min_length=1)]
Chance = Annotated[float, Field(gt=0, lt=1)]
Share = Annotated[float, Field(ge=1e-9, le=1e9)]

_WIDEST = 1e100  # largest range: its square, and that of noise in its unit, must be finite


class SurvivalOptions(Options):
    """Survival by Kaplan and Meier.

    Attributes:
        time: The column with the time of the event, or of the last observation.
        event: The column that says whether the event was observed.
        seen: The value that means it was; all others mean that it was not observed yet.
        edges: Ends of the time intervals, between the bounds of the column.
        by: A column of groups, with one curve each.
    """

    time: str
    event: str
    seen: str
    edges: Edges
    by: str | None = None


class DescribeOptions(Options):
    """What to describe.

    Attributes:
        columns: Which columns; all that the schema describes, if not given.
        moments: Whether to release means and variances of numbers.
        quantiles: Which quantiles of numbers; an empty list for none.
        bins: How many bins of its range a number's quantiles are read from, a power of two.
        edges: By column: inner edges of its own histogram; by default it is read from the bins.
        correlation: Columns of numbers whose covariances and correlations to release; such a
            column needs no moments of its own.
        tables: Pairs of columns of categories.
        survival: Survival curves.
        weights: By column, by ``"correlation"``, ``"survival"``, ``"total"`` or by a table as
            ``"sex*smoker"``: the share of the budget, in proportion, of each; 1 by default.
        magnitudes: Columns of numbers without bounds: releases their histograms over powers of
            two, and nothing else, for ``--suggest-bounds``.
        by_party: Whether to release everything for every party as well: the parties' sums are
            released side by side, each with the noise that their total would have had, and the
            total is the sum of the noisy sums. With noise at the parties, each adds that of its
            own part by itself; a deployed party answers only so, and if its policy allows it.
        per_person: For the person unit: "mean" counts a person once at a party, by the average of
            that person's records; "records" counts each record, with noise scaled by the most
            records that a person may have.
    """

    columns: Names | None = None
    moments: bool = True
    quantiles: tuple[Chance, ...] = (0.25, 0.5, 0.75)
    bins: Annotated[int, Field(ge=2, le=1 << 16)] = 128
    edges: dict[str, Edges] = Field(default_factory=dict)
    correlation: Names = ()
    tables: tuple[tuple[str, str], ...] = ()
    survival: SurvivalOptions | None = None
    weights: dict[str, Share] = Field(default_factory=dict)
    magnitudes: Names = ()
    by_party: bool = False
    per_person: Literal["mean", "records"] = "mean"

    @model_validator(mode="after")
    def _check(self) -> Self:
        others = self.columns or self.edges or self.correlation or self.tables or self.survival
        if self.magnitudes and others:
            raise ValueError("magnitudes must be asked for alone: bounds come first.")
        if self.magnitudes and self.by_party:
            raise ValueError("by_party must be false with magnitudes: bounds are for everybody.")
        if self.bins & (self.bins - 1):
            raise ValueError(f"bins must be a power of two, got {self.bins}.")
        if len(self.correlation) == 1:
            raise ValueError("correlation must name two columns, or more, or none.")
        return self


def items_of(
    options: DescribeOptions, columns: Sequence[ColumnFacts], *, total: bool
) -> tuple[list[list[Block]], dict[int, float]]:
    """What the budget is divided among, and in which proportions.

    Args:
        options: What to describe.
        columns: The public facts of the table.
        total: Whether the number of records, or persons, is private, and so must be paid for.
    """
    finder = _Finder(columns)
    # Not by name: a column may be called "total" too.
    named: list[tuple[str, list[Block]]] = [(TOTAL, [Block(kind="total")])] if total else []
    chosen = [facts.name for facts in columns] if options.columns is None else options.columns
    for name in (*options.edges, *(name for name in options.correlation)):
        finder.number(name)
    for name in dict.fromkeys(chosen):
        blocks = _of_column(name, finder, options)
        if blocks:
            named.append((name, blocks))
    if options.correlation:
        indices = tuple(finder.number(name) for name in options.correlation)
        named.append((CORRELATION, [Block(kind="covariance", columns=indices)]))
    for first, second in dict.fromkeys(options.tables):
        pair = (finder.category(first), finder.category(second))
        cells = tuple(len(columns[index].values) for index in pair)
        block = Block(kind="table", columns=pair, cells=cells)
        named.append((table_name(first, second), [block]))
    if options.survival is not None:
        named.append((SURVIVAL, [_survival(options.survival, finder)]))
    if len(named) == total:
        raise ValueError("describe must ask for something: every statistic is left out.")
    names = [name for name, _ in named]
    for name in options.weights:
        if names.count(name) != 1:
            hint = _near(name, names) if name not in names else " A column is called that as well."
            raise ValueError(f"describe.weights must be of what is described, got {name!r}.{hint}")
    shares = {i: options.weights[name] for i, name in enumerate(names) if name in options.weights}
    return [blocks for _, blocks in named], shares


def table_name(first: str, second: str) -> str:
    """The name of a two-way table."""
    return f"{first}*{second}"


def _of_column(name: str, finder: _Finder, options: DescribeOptions) -> list[Block]:
    index = finder.index(name)
    facts = finder.columns[index]
    if not facts.is_number:
        return [Block(kind="histogram", columns=(index,), cells=(facts.codes,))]
    blocks = []
    if options.moments and name not in options.correlation:
        blocks.append(Block(kind="moments", columns=(index,)))
    if name in options.edges:
        edges = scaled_edges(facts, options.edges[name], key=f"describe.edges.{name}")
        blocks.append(
            Block(kind="histogram", columns=(index,), cells=(len(edges) + 1,), edges=edges)
        )
    if options.quantiles:
        blocks.append(Block(kind="tree", columns=(index,), cells=(options.bins,)))
    return [*blocks, Block(kind="missing", columns=(index,))] if blocks else []


def _survival(options: SurvivalOptions, finder: _Finder) -> Block:
    time, event = finder.number(options.time), finder.category(options.event)
    values = finder.columns[event].values
    if options.seen not in values:
        raise ValueError(
            f"describe.survival.seen must be one of the values of {options.event!r}, "
            f"{', '.join(values)}; got {options.seen!r}."
        )
    edges = scaled_edges(finder.columns[time], options.edges, key="describe.survival.edges")
    group = () if options.by is None else (finder.category(options.by),)
    groups = len(finder.columns[group[0]].values) if group else 1
    if groups == 1:
        group = ()
    return Block(
        kind="survival",
        columns=(time, event, *group),
        cells=(len(edges) + 1, groups),
        edges=edges,
        event=values.index(options.seen),
    )


def scaled_edges(facts: ColumnFacts, edges: Sequence[float], *, key: str) -> tuple[float, ...]:
    """Inner edges in units of the range, [−1, 1]."""
    inside = all(facts.low < edge < facts.high for edge in edges)
    if not inside or any(b <= a for a, b in itertools.pairwise(edges)):
        raise ValueError(
            f"{key} must ascend between the bounds of the column, {facts.low:g} and "
            f"{facts.high:g}, got {list(edges)}."
        )
    return tuple(2 * ((edge - facts.low) / (facts.high - facts.low)) - 1 for edge in edges)


class _Finder:
    """Looks up columns by name and checks their kind."""

    def __init__(self, columns: Sequence[ColumnFacts]) -> None:
        self.columns = columns
        self._places = {facts.name: index for index, facts in enumerate(columns)}

    def index(self, name: str) -> int:
        if name not in self._places:
            raise ValueError(
                f"describe must name columns that the schema describes, got {name!r}."
                f"{_near(name, self._places)}"
            )
        facts = self.columns[self._places[name]]
        if facts.high - facts.low > _WIDEST:
            raise ValueError(
                f"column {name!r} must have a range of at most {_WIDEST:g} to be described, got "
                f"[{facts.low:g}, {facts.high:g}]: declare narrower bounds, or change its unit."
            )
        return self._places[name]

    def number(self, name: str) -> int:
        return self._of_kind(name, number=True)

    def category(self, name: str) -> int:
        return self._of_kind(name, number=False)

    def _of_kind(self, name: str, *, number: bool) -> int:
        index = self.index(name)
        if self.columns[index].is_number is not number:
            wanted, other = ("number", "category") if number else ("category", "number")
            raise ValueError(f"column {name!r} must be a {wanted} for that, and is a {other}.")
        return index


def _near(name: str, known: Any) -> str:
    near = get_close_matches(name, list(known), n=1)
    return f" Did you mean {near[0]!r}?" if near else f" Known are {', '.join(known)}."
