"""The one interface between a strategy and the parties: a query goes in, a sum comes out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from fedpriv.federation.queries.kinds import Query


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Sum:
    """All that a strategy ever sees: the sum over some parties, in fixed point.

    >>> Sum(total=np.array([3, -1]), step=0.5, sizes=(100, 50)).value
    array([ 1.5, -0.5])

    Attributes:
        total: Σ of the quantised answers, decoded from the ring, int64 (d,). **Private** until
            noise is added.
        step: The grid step: the real sum is total·step.
        sizes: The public n_j of the parties in the sum.
        diagnostics: In a simulation, **private** facts such as the share of clipped gradients;
            empty in a deployment.
    """

    total: NDArray[np.int64]
    step: float
    sizes: tuple[int, ...]
    diagnostics: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.total.dtype != np.int64 or self.total.ndim != 1:
            raise ValueError(
                f"total must be a vector of int64, got {self.total.dtype} of shape "
                f"{self.total.shape}."
            )
        if not self.sizes:
            raise ValueError(
                "sizes must name at least one party in the sum, got none: nobody answered."
            )

    @property
    def value(self) -> NDArray[np.float64]:
        """The real sum; for answers that already carry their noise, or have no guarantee."""
        return self.total.astype(np.float64) * self.step

    def __repr__(self) -> str:
        return f"Sum({len(self.total)} coordinates of {len(self.sizes)} parties)"


class Federation(Protocol):
    """Anything that turns a query into a sum over the parties."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """The public number of records of every party."""
        ...

    def sum(self, query: Query) -> Sum:
        """The sum of all parties' answers."""
        ...
