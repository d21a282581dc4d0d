"""Findings of a comparison in plain words, each sentence computed from the numbers beside it.

A finding is said only if the seeds support it: the 95 % interval of the difference, paired by seed,
lies on one side of what is claimed. The intervals are not widened for the number of findings. What
the seeds cannot decide is said to be undecided.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby, product
from math import inf
from typing import TYPE_CHECKING

from fedpriv.simulations.compare.intervals import Interval, paired_difference

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from fedpriv.simulations.compare.rows import Row

CLOSE = 0.01
"""Within one point of accuracy of a model without noise: close."""

LOCAL = "local-"


def findings(
    rows: Sequence[Row],
    published: Mapping[str, float] | None = None,
    curves: Mapping[str, Mapping[float, float]] | None = None,
) -> list[str]:
    """All that can be said, one sentence each, number of parties by number of parties.

    ``published`` are losses that a paper reports, by label: is their order ours? ``curves`` are
    accuracies, by label and budget: are ours above them?
    """
    if any(row.metric != "accuracy" for row in rows):
        return []
    if any(len(row.results) == 1 for row in rows):
        return ["One seed has no confidence interval: give compare.seeds at least 2 for findings."]
    everything: list[str] = []
    several = len({_parties(row) for row in rows}) > 1
    for parties, group in groupby(sorted(rows, key=_parties), key=_parties):
        study = Study.of(tuple(group))
        sentences = [
            *study.against_non_private(),
            *study.against_twins(),
            *study.weights(),
            *study.against_alone(),
            *study.against_guessing(),
            *study.against_paper(published or {}),
            *study.against_curves(curves or {}),
        ]
        everything += [f"With {parties} parties: {s}" if several else s for s in sentences]
    return everything


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting of one strategy with noise, over the budgets in ascending order."""

    label: str
    rows: dict[float, Row]

    @property
    def any(self) -> Row:
        """A row, for what all budgets share."""
        return next(iter(self.rows.values()))

    def minus(self, other: Setting | Row) -> dict[float, Interval]:
        """This accuracy minus the other, budget by budget."""
        if isinstance(other, Setting):
            pairs = {e: (row, other.rows[e]) for e, row in self.rows.items() if e in other.rows}
        else:
            pairs = {e: (row, other) for e, row in self.rows.items()}
        return {e: paired_difference(a.values, b.values) for e, (a, b) in pairs.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """The rows of one number of parties, and the questions that they can answer."""

    frame: dict[str, Row]
    settings: tuple[Setting, ...]

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Study:
        """Sort rows into those without noise and, by label and budget, those with it."""
        noisy: dict[str, dict[float, Row]] = {}
        for row in sorted(rows, key=lambda row: row.epsilon_budget or 0.0):
            if row.epsilon_budget is not None and row.epsilon_budget < inf:
                noisy.setdefault(row.label, {})[row.epsilon_budget] = row
        return cls(
            frame={row["strategy"]: row for row in rows if row.epsilon_budget is None},
            settings=tuple(Setting(label=label, rows=own) for label, own in noisy.items()),
        )

    def against_non_private(self) -> Iterator[str]:
        """Where each strategy is within a point of the average without noise, and where not."""
        reference = self.frame.get("non-private")
        if reference is None:
            return
        for setting in self.settings:
            if setting.any["strategy"].startswith(LOCAL):
                continue  # its aggregated twin speaks for it
            gaps = setting.minus(reference)
            near = [e for e, gap in gaps.items() if _above(gap, -CLOSE)]
            far = [e for e, gap in gaps.items() if _below(gap, -CLOSE)]
            parts = []
            if near:
                parts.append(
                    f"is within 1 point of non-private averaging ({_percent(reference)}) at "
                    f"{_budgets(near, gaps)} ({_at(near[0], near)}it loses "
                    f"{_points(-gaps[near[0]])})"
                )
            if far:
                whom = "it" if near else f"non-private averaging ({_percent(reference)})"
                parts.append(
                    f"loses more than 1 point to {whom} at {_budgets(far, gaps)} "
                    f"({_at(far[-1], far)}it loses {_points(-gaps[far[-1]])})"
                )
            if parts:
                yield f"{setting.label} {' and '.join(parts)}."

    def against_twins(self) -> Iterator[str]:
        """What noise added once, to the sum, gains over noise at every party."""
        for setting in self.settings:
            for twin in self.settings:
                if not _is_twin(setting.any, twin.any):
                    continue
                gains = setting.minus(twin)
                above = [e for e, gain in gains.items() if _above(gain, 0)]
                below = [e for e, gain in gains.items() if _below(gain, 0)]
                parts = []
                if above:
                    most = max(above, key=lambda e: gains[e].mean)
                    parts.append(
                        f"is above {twin.label} at {_budgets(above, gains)} "
                        f"({_at(most, above)}by {_points(gains[most])})"
                    )
                if below:
                    most = min(below, key=lambda e: gains[e].mean)
                    parts.append(
                        f"is below {twin.label} at {_budgets(below, gains)} "
                        f"({_at(most, below)}by {_points(-gains[most])})"
                    )
                undecided = [e for e in gains if e not in above and e not in below]
                if undecided:
                    parts.append(
                        f"cannot be distinguished from {twin.label} at {_budgets(undecided, gains)}"
                    )
                yield f"{setting.label} {', '.join(parts)}."

    def weights(self) -> Iterator[str]:
        """What equal weights cost because of the smallest party."""
        for even in self.settings:
            for fair in self.settings:
                if not _only_weights_differ(even.any, fair.any):
                    continue
                costs = fair.minus(even)
                dear = [e for e, cost in costs.items() if _above(cost, 0)]
                row = even.any
                ratio = (row.mean("noise_stddev") or 0) / (fair.any.mean("noise_stddev") or 1)
                why = (
                    f"the smallest of {row['parties']} parties has {row['smallest_party']} of "
                    f"{row['records']} records, which makes the noise {ratio:.3g} times as large"
                )
                if dear:
                    most = max(dear, key=lambda e: costs[e].mean)
                    yield (
                        f"Equal weights cost {row['strategy']} accuracy at {_budgets(dear, costs)} "
                        f"({_at(most, dear)}they cost {_points(costs[most])}): {why}."
                    )
                else:
                    yield (
                        f"Equal and proportional weights of {row['strategy']} cannot be "
                        f"distinguished, though {why}."
                    )

    def against_alone(self) -> Iterator[str]:
        """What a party gains by joining, against the model that it could have without anybody."""
        alone = self.frame.get("party-alone")
        if alone is None:
            return
        gains = {setting.label: setting.minus(alone) for setting in self.settings}
        for verdict, decided in (("better", _above), ("worse", _below)):
            decisive = {
                label: [e for e, gain in own.items() if decided(gain, 0)]
                for label, own in gains.items()
            }
            named = [f"{label} ({_budgets(e, gains[label])})" for label, e in decisive.items() if e]
            if named:
                yield (
                    f"A party does {verdict} than by training alone ({_percent(alone)} on average "
                    f"over the parties) with: {'; '.join(named)}."
                )

    def against_guessing(self) -> Iterator[str]:
        """Which settings are worse than always naming the majority class."""
        useless: dict[str, str] = {}
        guess = 0.0
        for setting in self.settings:
            guess = setting.any.mean("majority_accuracy") or 0.0
            low = [e for e, row in setting.rows.items() if _below(row.interval, guess)]
            if low:
                useless[setting.label] = _budgets(low, setting.rows)
        if useless:
            named = "; ".join(f"{label} ({budgets})" for label, budgets in useless.items())
            yield f"Worse than always naming the majority class ({100 * guess:.1f} %): {named}."

    def against_paper(self, published: Mapping[str, float]) -> Iterator[str]:
        """Whether strategies stand in the order that a paper reports."""
        known = [setting for setting in self.settings if setting.label in published]
        agreed = opposed = pairs = 0
        for worse, better in product(known, known):
            if published[worse.label] > published[better.label]:
                gains = better.minus(worse).values()
                pairs += len(gains)
                agreed += sum(_above(gain, 0) for gain in gains)
                opposed += sum(_below(gain, 0) for gain in gains)
        if pairs:
            yield (
                f"Of {pairs} pairs with different published losses, {agreed} stand in the "
                f"published order, {opposed} in the opposite one, {pairs - agreed - opposed} are "
                "undecided."
            )

    def against_curves(self, curves: Mapping[str, Mapping[float, float]]) -> Iterator[str]:
        """Whether accuracies are above published ones: a setting's own, and the best of all."""
        own = {setting.label: setting.rows for setting in self.settings}
        for label, curve in curves.items():
            rows = own.get(label) or self._best()
            who = label if label in own else "the best strategy at each ε"
            gaps = {
                e: replace(row.interval, mean=row.interval.mean - curve[e])
                for e, row in rows.items()
                if e in curve
            }
            above = [e for e, gap in gaps.items() if _above(gap, 0)]
            below = [e for e, gap in gaps.items() if _below(gap, 0)]
            parts = [
                f"{side} at {_budgets(budgets, gaps)}"
                for side, budgets in (("above", above), ("below", below))
                if budgets
            ]
            if gaps:
                mean = 100 * sum(gap.mean for gap in gaps.values()) / len(gaps)
                least = min(gaps, key=lambda e: gaps[e].mean)
                yield (
                    f"Against the published accuracy of {label}, {who} is "
                    f"{' and '.join(parts) or 'undecided at every ε'}; on average over ε by "
                    f"{mean:+.1f} points, least at ε = {least:g} ({_points(gaps[least])})."
                )

    def _best(self) -> dict[float, Row]:
        """The row of the highest mean, budget by budget."""
        best: dict[float, Row] = {}
        for setting in self.settings:
            for epsilon, row in setting.rows.items():
                if epsilon not in best or row.interval.mean > best[epsilon].interval.mean:
                    best[epsilon] = row
        return best


def _is_twin(aggregated: Row, local: Row) -> bool:
    """Whether ``local`` is the same strategy with noise at the parties, and else alike."""
    if local["strategy"] != LOCAL + aggregated["strategy"]:
        return False
    first, second = aggregated["options"], local["options"]
    return all(first[key] == second[key] for key in first.keys() & second.keys() - {"tolerance"})


def _only_weights_differ(even: Row, fair: Row) -> bool:
    first, second = dict(even["options"]), dict(fair["options"])
    weights = first.pop("weights", None), second.pop("weights", None)
    same = even["strategy"] == fair["strategy"] and first == second
    return same and weights == ("equal", "proportional")


def _parties(row: Row) -> int:
    return int(row["parties"])


def _above(interval: Interval, bound: float) -> bool:
    """Whether the whole interval is above the bound."""
    return interval.low is not None and interval.low > bound


def _below(interval: Interval, bound: float) -> bool:
    """Whether the whole interval is below the bound."""
    return interval.high is not None and interval.high < bound


def _points(interval: Interval) -> str:
    if interval.half_width == 0:
        return f"{100 * interval.mean:.2f} points"
    low, high = 100 * (interval.low or 0), 100 * (interval.high or 0)
    return f"{100 * interval.mean:.2f} points, 95 % CI {low:.2f} to {high:.2f}"


def _percent(row: Row) -> str:
    return f"{100 * row.interval.mean:.1f} %"


def _budgets(chosen: Sequence[float], of: dict[float, Interval] | dict[float, Row]) -> str:
    if len(chosen) == len(of) > 1:
        return "every ε"
    return "ε = " + ", ".join(f"{epsilon:g}" for epsilon in chosen)


def _at(epsilon: float, chosen: Sequence[float]) -> str:
    """Which of several budgets a number is for."""
    return f"at ε = {epsilon:g} " if len(chosen) > 1 else ""
