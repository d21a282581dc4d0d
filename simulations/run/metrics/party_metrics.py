"""Metrics per party: for whom a common model works well, and for whom it does not.

For simulations: how good a model is for one party's records tells about these records, and nobody
pays for that in a release.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fedpriv.learning.classes import classifies

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedpriv.simulations.run.prepare import Prepared

LEAST = 10
"""Parties of fewer records are left out: their accuracy is luck."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartyMetrics:
    """How good one model is for each party's own records.

    Attributes:
        metric: "accuracy"; of a regression "rmse", in the unit of the table.
        on: Which records of a party: those of the "test" set, where the data say whose these are;
            else those that it has for "training".
        values: One per party, in their order; None for one of fewer than `LEAST` such records.
    """

    metric: Literal["accuracy", "rmse"]
    on: Literal["test", "training"]
    values: tuple[float | None, ...]

    @property
    def known(self) -> tuple[float, ...]:
        """Of the parties that were measured."""
        return tuple(value for value in self.values if value is not None)

    @property
    def worst(self) -> float | None:
        """Of the party that the model serves least."""
        choose = min if self.metric == "accuracy" else max
        return choose(self.known, default=None)

    @property
    def gap(self) -> float | None:
        """Fairness gap: the largest minus the smallest; 0 if all are served alike."""
        return max(self.known) - min(self.known) if self.known else None

    def to_dict(self) -> dict[str, Any]:
        """As a result holds it."""
        values = {"metric": self.metric, "on": self.on, "values": list(self.values)}
        return {"worst_party": self.worst, "fairness_gap": self.gap, "per_party": values}


def party_metrics(prepared: Prepared, theta: NDArray[np.float64]) -> PartyMetrics:
    """The metrics of the model ``theta`` for each party."""
    dataset, parties = prepared.data.dataset, prepared.data.parties
    tested = dataset.test.party is not None and len(dataset.test) > 0
    records = dataset.test if tested else dataset.train
    evaluator = prepared.evaluator.on(records)
    wrong, holder = evaluator.wrong(theta), records.party
    counts = np.bincount(holder, minlength=parties)  # type: ignore[arg-type]
    totals = np.bincount(holder, weights=wrong, minlength=parties)  # type: ignore[arg-type]
    means = totals / np.maximum(counts, 1)
    right = classifies(evaluator.loss)
    values = 1 - means if right else np.sqrt(means)
    return PartyMetrics(
        metric="accuracy" if right else "rmse",
        on="test" if tested else "training",
        values=tuple(
            float(value) if count >= LEAST else None
            for value, count in zip(values, counts, strict=True)
        ),
    )
