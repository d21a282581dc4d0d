"""Coding: from the coordinates that records are summed in to coefficients that people read.

Records are summed as x = (all levels of every category, numbers on [-1, 1], a constant)·c.
Published is one coefficient per number, in its own unit, and one per level of a category except the
reference level, whose effect is in the intercept: with all levels and a constant, none would be
identified. The map is linear and public, and costs no privacy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from fedpriv.inference.estimate import Estimate
    from fedpriv.inference.noisy_matrix import NoisyMatrix

    Array = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Coding:
    """How an estimate in the coordinates of a sum becomes one in the units of a table.

    Attributes:
        names: Of the coefficients that are published, in order.
        kept: The coordinates that are estimated, of the d that records are summed in.
        levels: W, (d, k): the coordinates of any record are W times those that are kept.
        exclusive: Pairs of coordinates of which one is always 0: the levels of one category.
        constant: The coordinate that is the same number in every record, and that number; None
            without an intercept.
        matrix: T, (n, k): coefficients in the units of the table are T·β + t.
        offset: t, (n,).
        references: The level of every category that its other levels are compared with.
    """

    names: tuple[str, ...]
    kept: tuple[int, ...]
    levels: Array
    exclusive: tuple[tuple[int, int], ...]
    constant: tuple[int, float] | None
    matrix: Array
    offset: Array
    references: Mapping[str, str]

    @classmethod
    def plain(cls, dimension: int) -> Coding:
        """Every coordinate is a coefficient."""
        eye = np.eye(dimension)
        return cls(
            names=tuple(f"x{i}" for i in range(dimension)),
            kept=tuple(range(dimension)),
            levels=eye,
            exclusive=(),
            constant=None,
            matrix=eye,
            offset=np.zeros(dimension),
            references={},
        )

    def known(self, matrix: NoisyMatrix) -> NoisyMatrix:
        """The moments of all coordinates, with the products that are zero by construction."""
        rows, columns = np.array(self.exclusive, dtype=np.intp).reshape(-1, 2).T
        return matrix.with_known(rows, columns, 0.0)

    def in_units(self, estimate: Estimate) -> Estimate:
        """The estimate of the coefficients that are published."""
        return estimate.mapped(self.matrix, self.offset)
