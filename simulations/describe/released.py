"""Released sums by block: without weights, with the standard deviation of their noise."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.privacy.planning.statistics.statistics_blocks import (
    MEAN_RATIO,
    Block,
    complete_ratio,
    mean_ratio,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fedpriv.data.tables.columns import ColumnFacts
    from fedpriv.privacy.planning.statistics.statistics_design import Design

    Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Noisy:
    """A number with the standard deviation of its noise; 0 for a public one."""

    value: float
    stddev: float

    def minus(self, other: Noisy) -> Noisy:
        """The difference of two numbers with independent noise."""
        return Noisy(value=self.value - other.value, stddev=sqrt(self.stddev**2 + other.stddev**2))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Released:
    """All released numbers of a description, and the public facts that give them a meaning.

    Attributes:
        design: What was asked for.
        sums: The noisy vector.
        stddev: Of the noise on each of its numbers.
        columns: Of the table.
        records: The public number of records; None where it is private, and was paid for.
    """

    design: Design
    sums: Numbers
    stddev: float
    columns: Sequence[ColumnFacts]
    records: int | None

    def find(self, kind: str, column: int | None = None) -> tuple[Block, Numbers, float] | None:
        """The first block of a kind, its sums, and their deviation, without the weight."""
        for block, place in zip(self.design.blocks, self.design.places(), strict=True):
            if block.kind == kind and (column is None or block.columns[0] == column):
                return block, self.sums[place] / block.weight, self.stddev / block.weight
        return None

    def every(self, kind: str) -> list[tuple[Block, Numbers, float]]:
        """All blocks of a kind, as in `find`."""
        return [
            (block, self.sums[place] / block.weight, self.stddev / block.weight)
            for block, place in zip(self.design.blocks, self.design.places(), strict=True)
            if block.kind == kind
        ]

    @property
    def total(self) -> Noisy:
        """How many records, or persons, there are: public, or noisy."""
        if self.records is not None:
            return Noisy(value=float(self.records), stddev=0.0)
        found = self.find("total")
        if found is None:
            raise ValueError("a design must count the total where it is not public.")
        return Noisy(value=float(found[1][0]), stddev=found[2])

    def missing(self, column: int) -> Noisy:
        """How many have no value in a column of numbers."""
        found = self.find("missing", column)
        if found is None:
            return Noisy(value=0.0, stddev=0.0)
        return Noisy(value=float(found[1][0]), stddev=found[2])

    def present(self, column: int) -> Noisy:
        """How many have one."""
        return self.total.minus(self.missing(column))

    def moments(self, column: int) -> tuple[Noisy, Noisy] | None:
        """Σx and Σx² of a column of numbers, in units of half its range, from its middle."""
        found = self.find("moments", column)
        if found is None:
            return None
        _, (first, second), stddev = found
        return (
            Noisy(value=float(first) / MEAN_RATIO, stddev=stddev / MEAN_RATIO),
            Noisy(value=float(second), stddev=stddev),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Products:
    """Count, sums and products of complete records: a covariance block without its scales.

    Attributes:
        count: Complete records.
        sums: Σx, (d,).
        products: Σxxᵀ, symmetric (d, d).
        sum_stddev: Of the noise on each sum.
        stddev: On a diagonal product; off the diagonal 1/√2 of it.
    """

    count: Noisy
    sums: Numbers
    products: Numbers
    sum_stddev: float
    stddev: float


def products_of(block: Block, numbers: Numbers, stddev: float) -> Products:
    """Read a covariance block."""
    d = len(block.columns)
    ratio, complete = mean_ratio(d), complete_ratio(d)
    triangle = np.zeros((d, d))
    triangle[np.triu_indices(d)] = numbers[1 + d :]
    diagonal = np.diag(np.diag(triangle))
    upper = (triangle - diagonal) / sqrt(2.0)
    return Products(
        count=Noisy(value=float(numbers[0]) / complete, stddev=stddev / complete),
        sums=numbers[1 : 1 + d] / ratio,
        products=upper + upper.T + diagonal,
        sum_stddev=stddev / ratio,
        stddev=stddev,
    )
