"""Blocks of federated statistics: kinds of sums, and how far one record changes each.

Counts, histograms, moments, trees for quantiles, covariances, two-way tables and survival cells are
sums of a vector that every record adds to. A block's weight w scales it, so that noise of standard
deviation σ on the vector is σ/w on what the block counts.

**Sensitivity.** A number enters as x in [−1, 1], from its public range; a missing one adds only to
the block that counts it. Squares of how far one record moves each block, if it joins or leaves, and
if it is exchanged for another:

- total, missing: 1, and 1 between a value and none.
- moments (a·x, x²): a² + 1; max over t of (1 + t)²(a² + (1 − t)²), attained at x = 1, x′ = −t with
  a² = 2t(1 − t), or at t = 1.
- histogram, two-way table, survival cells (one of them): 1; 2.
- tree of h levels (one node per level, its root left out): h; 2h.
- covariance of d columns (κ, a·x, xxᵀ with off-diagonal entries times √2), ‖x‖² ≤ d: κ² + a²d + d²;
  2(d + a²/2)² if a² ≤ 2d, else 4a²d, and κ² + a²d + d² between a complete record and another.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, prod, sqrt

from fedpriv._validate import require_choice, require_count, require_positive

KINDS = (
    "total",
    "missing",
    "moments",
    "histogram",
    "tree",
    "covariance",
    "table",
    "survival",
)
MOST_NUMBERS = 1 << 22
"""The longest vector of a design."""

_LARGEST_WEIGHT = 2.0**256

MEAN_RATIO = 0.61
"""a of moments: the least for which a mean has no more noise than if it were released alone.

Then Δ² = 4a², that of a·x: the second moment costs the mean nothing (up to a = 0.602).
"""

_COLUMNS = {"total": 0, "missing": 1, "moments": 1, "histogram": 1, "tree": 1, "table": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One block of a design.

    Attributes:
        kind: One of `KINDS`.
        columns: Which columns of the table it is computed from. For ``survival`` the time, whether
            the event was seen, and the group, if there are groups.
        cells: How many: for a histogram; leaves of a tree, a power of two; of a table by row and by
            column; for ``survival`` intervals and groups.
        edges: For a number's histogram, or for times: the inner edges in [−1, 1], ascending.
        event: For ``survival``: the value of its column that says that the event was seen.
        weight: w.
    """

    kind: str
    columns: tuple[int, ...] = ()
    cells: tuple[int, ...] = ()
    edges: tuple[float, ...] = ()
    event: int = 0
    weight: float = 1.0

    def __post_init__(self) -> None:
        require_choice(KINDS, kind=self.kind)
        require_positive(weight=self.weight)
        if not 1 / _LARGEST_WEIGHT <= self.weight <= _LARGEST_WEIGHT:
            raise ValueError(f"weight must lie within 2^±256, got {self.weight!r}: it is squared.")
        for name in ("columns", "cells", "edges"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        for index in (*self.columns, self.event):
            if type(index) is not int or index < 0:
                raise ValueError(f"columns and event must count from 0, got {index!r}.")
        if len(set(self.columns)) != len(self.columns):
            raise ValueError(f"columns must differ from each other, got {self.columns}.")
        require_count(**{f"cells[{i}]": count for i, count in enumerate(self.cells)})
        wanted = {"histogram": 1, "tree": 1, "table": 2, "survival": 2}.get(self.kind, 0)
        if len(self.cells) != wanted:
            raise ValueError(f"cells must be {wanted} numbers for {self.kind!r}.")
        self._check_columns()
        inside = all(isfinite(edge) and -1 < edge < 1 for edge in self.edges)
        if not inside or any(b <= a for a, b in zip(self.edges, self.edges[1:], strict=False)):
            raise ValueError("edges must ascend between -1 and 1.")
        if self.kind == "survival" or (self.kind == "histogram" and self.edges):
            if len(self.edges) != self.cells[0] - 1:
                raise ValueError("edges must be one fewer than cells.")
        elif self.edges:
            raise ValueError(f"edges must be empty for {self.kind!r}.")
        if self.kind == "tree" and (self.cells[0] < 2 or self.cells[0] & (self.cells[0] - 1)):
            raise ValueError(f"cells of a tree must be a power of two, got {self.cells[0]}.")
        if self.width > MOST_NUMBERS:
            raise ValueError(f"a block must have at most {MOST_NUMBERS} numbers.")

    def _check_columns(self) -> None:
        count = len(self.columns)
        if self.kind == "covariance":
            wrong = count < 2
        elif self.kind == "survival":
            wrong = count != 2 + (self.cells[1] > 1)
        else:
            wrong = count != _COLUMNS[self.kind]
        if wrong:
            raise ValueError(f"columns must fit the kind {self.kind!r}, got {count} of them.")

    @property
    def levels(self) -> int:
        """h of a tree."""
        return self.cells[0].bit_length() - 1

    @property
    def width(self) -> int:
        """How many numbers it has."""
        d = len(self.columns)
        match self.kind:
            case "moments":
                return 2
            case "histogram" | "table":
                return prod(self.cells)
            case "tree":
                return 2 * self.cells[0] - 2
            case "covariance":
                return 1 + d + d * (d + 1) // 2
            case "survival":
                return 2 * prod(self.cells) + 1
        return 1

    @property
    def largest(self) -> float:
        """The most that a record adds to one number, before the weight."""
        match self.kind:
            case "covariance":
                return max(complete_ratio(len(self.columns)), sqrt(2.0))
        return 1.0

    @property
    def joining(self) -> float:
        """The square of the most that a record adds, weight included."""
        d = len(self.columns)
        match self.kind:
            case "moments":
                square = MEAN_RATIO**2 + 1
            case "tree":
                square = float(self.levels)
            case "covariance":
                square = complete_ratio(d) ** 2 + mean_ratio(d) ** 2 * d + d**2
            case _:
                square = 1.0
        return square * self.weight**2

    @property
    def exchanging(self) -> float:
        """The square of the most that exchanging one value for another moves, weight included."""
        match self.kind:
            case "total" | "missing":
                return 0.0  # between two values; `Design` handles missing ones
            case "moments":
                return moments_square(MEAN_RATIO) * self.weight**2
            case "covariance":
                d = len(self.columns)
                values = covariance_square(d, mean_ratio(d)) * self.weight**2
                return max(values, self.joining)
        return 2 * self.joining


def moments_square(ratio: float) -> float:
    """Δ² of (a·x, x²) over |x| ≤ 1, replace-one: the larger of g at its inner maximum and at 1.

    g(t) = (1 + t)²(a² + (1 − t)²), g′ ∝ a² − 2t(1 − t).
    """
    ends = [1.0]
    inner = 1 - 2 * ratio**2
    if inner >= 0:
        ends.append((1 - sqrt(inner)) / 2)
    return max((1 + t) ** 2 * (ratio**2 + (1 - t) ** 2) for t in ends)


def covariance_square(columns: int, ratio: float) -> float:
    """Δ² of (a·x, xxᵀ) in Frobenius norm over ‖x‖² ≤ d, replace-one; worst cosine −a²/(2d)."""
    bound = float(columns)
    if ratio**2 <= 2 * bound:
        return 2 * (bound + ratio**2 / 2) ** 2
    return 4 * ratio**2 * bound


def mean_ratio(columns: int) -> float:
    """a of a covariance: √(d/2). The mean has 1.25 times the noise that it would have alone."""
    return sqrt(columns / 2)


def complete_ratio(columns: int) -> float:
    """κ of a covariance: the most at which counting complete records is free under replace-one."""
    ratio = mean_ratio(columns)
    return sqrt(covariance_square(columns, ratio) - ratio**2 * columns - columns**2)
