"""Rows of a comparison: one setting of one strategy, over all seeds."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, Any

from fedpriv.simulations.compare.intervals import Interval, mean_interval
from fedpriv.simulations.experiment.budgets import shown, stated
from fedpriv.simulations.run.metrics.scores import MEASURES
from fedpriv.simulations.run.metrics.training_metrics import TRAINING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Keys of a result that are the same for all seeds of a row.
_SHARED = (
    "label", "strategy", "options", "private", "delta", "adjacency", "unit", "parties",
    "records", "smallest_party", "data", "model", "simulated",
)  # fmt: skip
# Keys whose mean over the seeds a row reports.
_AVERAGED = (
    "loss", *MEASURES, "worst_party", "fairness_gap", "noise_stddev", "regulariser",
    "clip_fraction", "seconds", "bytes", "majority_accuracy", *TRAINING,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The results of one setting, seed by seed, all under one (ε, δ), unit and adjacency.

    Attributes:
        epsilon_budget: ε that was allowed; infinite for a twin without noise, and None for a
            strategy without noise, which is the same at every ε.
        twin_of: the ε whose settings a twin without noise has, if these follow from a budget.
        results: the result of every seed, in the order of the seeds.
        point: by key of `compare.over`, its value; without those that do not concern the strategy.
    """

    epsilon_budget: float | None
    results: tuple[Mapping[str, Any], ...]
    point: Mapping[str, Any] = field(default_factory=dict)
    twin_of: float | None = None

    @classmethod
    def of(
        cls, results: Sequence[Mapping[str, Any]], *, point: Mapping[str, Any] | None = None
    ) -> Row:
        """Results that differ by their seed only."""
        allowed = results[0]["epsilon_budget"]
        return cls(
            epsilon_budget=None if allowed is None else float(allowed),
            twin_of=results[0].get("twin_of"),
            results=tuple(sorted(results, key=lambda result: int(result["seed"]))),
            point=point or {},
        )

    def __getitem__(self, key: str) -> Any:
        """A key that all seeds share."""
        return self.results[0][key]

    @property
    def label(self) -> str:
        """What tables and plots call the setting."""
        return str(self["label"])

    @property
    def budget(self) -> str:
        """ε as tables have it; nothing for a strategy without noise."""
        if self.epsilon_budget is None:
            return ""
        settings = "" if self.twin_of is None else f", as at {self.twin_of:g}"
        return shown(self.epsilon_budget) + settings

    @property
    def metric(self) -> str:
        """What settings are compared by: accuracy, or the loss of a regression."""
        return "loss" if self["accuracy"] is None else "accuracy"

    @property
    def values(self) -> tuple[float, ...]:
        """The metric of every seed."""
        return tuple(float(result[self.metric]) for result in self.results)

    @property
    def interval(self) -> Interval:
        """The mean of the metric, with its confidence interval."""
        return mean_interval(self.values)

    def column(self, key: str) -> tuple[float, ...]:
        """A number of every seed that has it."""
        values = (result.get(key) for result in self.results)
        return tuple(float(value) for value in values if value is not None)

    def interval_of(self, key: str) -> Interval | None:
        """The mean of a number over the seeds, with its interval; None where there is none."""
        values = self.column(key)
        return mean_interval(values) if values else None

    def mean(self, key: str) -> float | None:
        """The mean of a number over the seeds; None where there is none."""
        values = self.column(key)
        return fmean(values) if values else None

    def to_dict(self) -> dict[str, Any]:
        """The row as JSON-ready values: the keys of a run, then mean and interval."""
        interval = self.interval
        return {
            **{key: self[key] for key in _SHARED},
            "epsilon": self["epsilon"],
            "epsilon_budget": stated(self.epsilon_budget),
            "twin_of": self.twin_of,
            "accuracy": self.mean("accuracy"),
            **{key: self.mean(key) for key in _AVERAGED},
            "rounds": round(self.mean("rounds") or 0),
            "over": dict(self.point),
            "metric": self.metric,
            "mean": interval.mean,
            "confidence_interval": interval.bounds,
            "seeds": [int(result["seed"]) for result in self.results],
            "values": list(self.values),
        }


def sorted_rows(rows: Sequence[Row], labels: Sequence[str]) -> list[Row]:
    """By parties, by ε (no noise first), then in the order of the experiment and of its axes."""
    order = {label: place for place, label in enumerate(labels)}
    return sorted(
        rows,
        key=lambda row: (
            0 if "data.parties" in row.point else row["parties"],
            row.epsilon_budget is not None,
            row.epsilon_budget or 0,
            row.twin_of or 0,
            order[row.label],
        ),
    )
