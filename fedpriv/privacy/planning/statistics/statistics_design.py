"""Design of federated statistics: all blocks of one release, as one vector with one noise.

`fedpriv.privacy.planning.statistics.statistics_blocks` has how far a record moves each block.

Blocks of different columns reach their worst cases together, so the squares add up. Blocks of one
column share it: two values of it differ in everything computed from values; a value and a missing
one differ in the missing count as well, but then only one of them has a value. So counting missing
values is free up to a weight, which `weigh` uses.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from math import inf, nextafter, sqrt
from typing import TYPE_CHECKING, Any

from fedpriv._validate import require_positive
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.planning.statistics.statistics_blocks import MOST_NUMBERS, Block
from fedpriv.privacy.unit import Unit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_OF_VALUES = ("moments", "histogram", "tree")
_LEAST_MISSING = 0.25  # of what a column's values may move, where counting the missing is not free


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """All blocks of a release, in the order of its vector.

    >>> design = Design(blocks=(Block(kind="tree", columns=(0,), cells=(64,)),))
    >>> design.width, round(design.sensitivity(Adjacency.REPLACE_ONE) ** 2)
    (126, 12)
    """

    blocks: tuple[Block, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "blocks", tuple(self.blocks))
        if not self.blocks:
            raise ValueError("blocks must hold at least one, got none.")
        if self.width > MOST_NUMBERS:
            raise ValueError(
                f"blocks must have at most {MOST_NUMBERS} numbers together, got {self.width}: ask "
                "for fewer columns or bins."
            )
        categories = {b.columns[0] for b in self.blocks if b.kind == "histogram" and not b.edges}
        if any(b.kind == "missing" and b.columns[0] in categories for b in self.blocks):
            raise ValueError(
                "blocks must not count what is missing beside a histogram of values, which has a "
                "cell for it."
            )

    @classmethod
    def read(cls, values: Any) -> Design:
        """A design from JSON-ready values."""
        return cls(blocks=tuple(Block(**block) for block in values["blocks"]))

    @property
    def width(self) -> int:
        """How many numbers the vector has."""
        return sum(block.width for block in self.blocks)

    @property
    def largest(self) -> float:
        """The most that one record adds to one number."""
        return max(block.largest * block.weight for block in self.blocks)

    def places(self) -> list[slice]:
        """Where each block lies in the vector."""
        found, first = [], 0
        for block in self.blocks:
            found.append(slice(first, first + block.width))
            first += block.width
        return found

    @property
    def joining(self) -> float:
        """The square of the most that one record adds to the vector."""
        return self._square(lambda values, one, none: max(one, none), lambda block: block.joining)

    @property
    def exchanging(self) -> float:
        """The square of the most that exchanging one record for another moves."""
        return self._square(
            lambda values, one, none: max(values, one + none), lambda block: block.exchanging
        )

    def _square(
        self,
        of_column: Callable[[float, float, float], float],
        of_block: Callable[[Block], float],
    ) -> float:
        columns: dict[int, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
        square = 0.0
        for block in self.blocks:
            if block.kind in _OF_VALUES:
                columns[block.columns[0]][0] += block.exchanging
                columns[block.columns[0]][1] += block.joining
            elif block.kind == "missing":
                columns[block.columns[0]][2] += block.joining
            else:
                square += of_block(block)
        return square + sum(of_column(*three) for three in columns.values())

    def sensitivity(
        self,
        adjacency: Adjacency,
        *,
        unit: Unit = Unit.RECORD,
        records: int = 1,
        parties: int = 1,
        elsewhere: bool = False,
    ) -> float:
        """How far one unit moves the sum of all vectors, in L2; rounded up.

        A person has at most so many ``records``, each added as it is, at so many ``parties``. Where
        a person's records are averaged instead, ``records`` is 1: an average lies in the convex
        hull of single vectors, and of 0, over which a distance is largest at the corners. A person
        who is exchanged for another may have fewer records than that one, or more.

        ``elsewhere``: whether there are several such vectors, side by side, and a unit may leave
        one while its replacement joins another. They do not overlap: the squares of both add up,
        where 2·joining may be more or less than ``exchanging``. So do those of a person's
        ``parties``: of one at S for another at T, c of them common, they are at most
        c·max(exchanging, joining) + 2(p − c)·joining ≤ p·max(exchanging, 2·joining).
        """
        square = self.joining
        if adjacency is Adjacency.REPLACE_ONE:
            square = self.exchanging
            if unit is not Unit.RECORD:
                square = max(square, self.joining)
            if elsewhere:
                square = max(square, 2 * self.joining)
        together = sqrt(parties) if elsewhere else parties
        return nextafter(records * together * sqrt(square) * (1 + 2.0**-40), inf)


def weigh(
    items: Sequence[Sequence[Block]],
    shares: Mapping[int, float],
    *,
    adjacency: Adjacency,
    unit: Unit = Unit.RECORD,
) -> Design:
    """A design with weights: every item has its share of μ², and a record a norm of 1.

    Args:
        items: What the budget is split over: the blocks of one column, or one block across columns.
        shares: By index of an item, in proportion; 1 where not given.
        adjacency: Which data sets are compared.
        unit: Whose privacy is protected.

    Within an item all blocks have the same share, except the missing count, whose weight is as
    large as costs nothing, or a quarter of what the values may move, if that is more.
    """
    blocks: list[Block] = []
    for index, item in enumerate(items):
        share = shares.get(index, 1.0)
        require_positive(**{f"weights[{index}]": share})
        values = [replace(b, weight=1 / _alone(b, adjacency)) for b in item if b.kind != "missing"]
        counted = [block for block in item if block.kind == "missing"]
        if counted and values:
            exchanged, joined = sum(b.exchanging for b in values), sum(b.joining for b in values)
            free = min(exchanged - joined, joined)
            square = max(free, _LEAST_MISSING * exchanged)
            counted = [replace(block, weight=sqrt(square / len(counted))) for block in counted]
        part = Design(blocks=(*values, *counted))
        factor = sqrt(share) / part.sensitivity(adjacency, unit=_worst(unit, part))
        blocks += [replace(block, weight=factor * block.weight) for block in part.blocks]
    whole = Design(blocks=tuple(blocks))
    factor = (1 - 2.0**-40) / sqrt(whole.joining)  # so that rounding leaves it at 1, or below
    return Design(blocks=tuple(replace(b, weight=factor * b.weight) for b in whole.blocks))


def _alone(block: Block, adjacency: Adjacency) -> float:
    exchanged = adjacency is Adjacency.REPLACE_ONE and block.exchanging > 0
    return sqrt(block.exchanging if exchanged else block.joining)


def _worst(unit: Unit, part: Design) -> Unit:
    """An exchange of records does not move a total; one of persons moves it as joining does."""
    return Unit.PERSON if part.exchanging == 0 else unit
