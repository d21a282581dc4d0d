"""Parts of a report: sections with words, figures and tables, each as JSON and on the page alike.

A number is kept twice: in full, and as the page prints it. The page is made from these values
alone, so that what it shows is what `report.json` holds.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

FORMAT = "fedpriv report 1"
MOST_POINTS = 160
"""Of one curve; of longer ones every so many is drawn, the first and the last among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One entry of a table: as it is printed, and in full, for sorting and for programs."""

    text: str
    value: float | int | str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table.

    Attributes:
        id: Of the element on the page, and of its file.
        title: Its caption.
        columns: Headings.
        numeric: By column, whether it holds numbers.
        rows: Cells, one for each column.
        curves: By row, the curve of the figures that it belongs to; empty for none.
        sortable: Whether readers may sort and filter it.
    """

    id: str
    title: str
    columns: tuple[str, ...]
    numeric: tuple[bool, ...]
    rows: tuple[tuple[Cell, ...], ...]
    curves: tuple[str, ...] = ()
    sortable: bool = False

    def __post_init__(self) -> None:
        widths = {len(self.columns), len(self.numeric), *map(len, self.rows)}
        if len(widths) > 1 or (self.curves and len(self.curves) != len(self.rows)):
            raise ValueError(f"table {self.id!r} must be rectangular, got widths {sorted(widths)}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A point of a curve, with the interval of its value if it has one, and its text."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A curve.

    Attributes:
        name: What the legend calls it.
        colour: Which of the palette's colours.
        mark: Which of the shapes of its points.
        dashed: Whether its line is.
        joined: Whether there is a line at all.
        level: Whether its only point is a level that holds everywhere.
        points: From left to right.
    """

    name: str
    colour: int
    mark: int = 0
    dashed: bool = False
    joined: bool = True
    level: bool = False
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """An axis.

    Attributes:
        title: What it measures.
        ticks: Text and place of each, where they are named ones; else round numbers are chosen.
        logarithmic: Whether it is drawn so at first.
        switch: Whether a reader may change that: all places are positive.
        percent: Whether values are printed in percent.
        whole: Whether it counts, so that nothing lies between whole numbers.
    """

    title: str
    ticks: tuple[tuple[str, float], ...] = ()
    logarithmic: bool = False
    switch: bool = False
    percent: bool = False
    whole: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure: curves over two axes, and what it shows in words, for who does not see it."""

    id: str
    title: str
    description: str
    x: Axis
    y: Axis
    curves: tuple[Curve, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A titled list of sentences."""

    title: str
    items: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A text of its own, shown letter by letter: a statement, a configuration."""

    title: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A section of a report: words, figures, tables, lists, texts, in this order."""

    id: str
    title: str
    words: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()
    lists: tuple[Listing, ...] = ()
    texts: tuple[Text, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether there is nothing in it."""
        return not (self.words or self.figures or self.tables or self.lists or self.texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A report.

    Attributes:
        kind: "comparison" or "runs".
        title: What it is about.
        status: Whether privacy was spent: the first thing that a reader must know.
        simulated: Whether none was.
        version: Of fedpriv, with which the results were computed.
        question: What was compared, or run.
        headline: What came out, in one sentence.
        facts: A few numbers that everything else rests on.
        sections: The rest, what matters most first.
    """

    kind: str
    title: str
    status: str
    simulated: bool
    version: str
    question: str
    headline: str
    facts: Table
    sections: tuple[Section, ...]

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values; sections that say nothing are left out."""
        values = asdict(self)
        values["sections"] = [asdict(section) for section in self.sections if not section.empty]
        return {"format": FORMAT, **values}


def facts(id_: str, title: str, entries: dict[str, Cell]) -> Table:
    """A table of names and values."""
    return Table(
        id=id_,
        title=title,
        columns=("name", "value"),
        numeric=(False, False),
        rows=tuple((Cell(text=name), cell) for name, cell in entries.items()),
    )


def thinned(count: int, most: int = MOST_POINTS) -> list[int]:
    """Which of ``count`` points are drawn: all, or every so many with the first and the last.

    >>> thinned(5), thinned(7, most=3)
    ([0, 1, 2, 3, 4], [0, 3, 6])
    """
    if count <= most:
        return list(range(count))
    return [round(place * (count - 1) / (most - 1)) for place in range(most)]
