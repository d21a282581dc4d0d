"""Findings of a comparison in plain words, each sentence computed from the numbers beside it.

A finding is stated only if the seeds support it: the 95 % interval of the difference, paired by
seed, lies on one side of the claimed value. The intervals are not widened for the number of
findings. Questions that the seeds cannot decide are reported as undecided.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from fedpriv.simulations.compare.causes import noise_or_training
from fedpriv.simulations.compare.leaders import leaders
from fedpriv.simulations.compare.over import best_points
from fedpriv.simulations.compare.published import against_curves, against_paper
from fedpriv.simulations.compare.served import against_guessing, fairness
from fedpriv.simulations.compare.study import Study
from fedpriv.simulations.compare.words import (
    CLOSE,
    above,
    at,
    below,
    budgets,
    change,
    percent,
    points,
)
from fedpriv.simulations.counted import parties_in_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from fedpriv.simulations.compare.rows import Row

LOCAL = "local-"


def findings(
    rows: Sequence[Row],
    published: Mapping[str, float] | None = None,
    curves: Mapping[str, Mapping[float, float]] | None = None,
) -> list[str]:
    """All that can be said, one sentence each, number of parties by number of parties.

    Of regressions that is who leads; the other sentences are about accuracy.

    ``published`` are losses that a paper reports, by label: is their order ours? ``curves`` are
    accuracies, by label and budget: are ours above them?
    """
    if any(len(row.results) == 1 for row in rows):
        return ["One seed has no confidence interval: give compare.seeds at least 2 for findings."]
    accuracy = all(row.metric == "accuracy" for row in rows)
    if any(row.point for row in rows):  # a curve has one thing to say: where it is highest
        return best_points(rows) if accuracy else []
    everything: list[str] = []
    several = len({_parties(row) for row in rows}) > 1
    for parties, group in groupby(sorted(rows, key=_parties), key=_parties):
        study = Study.of(tuple(group))
        sentences = list(leaders(study))
        if accuracy:
            sentences += [
                *against_non_private(study),
                *noise_or_training(study),
                *against_local(study),
                *weights(study),
                *against_alone(study),
                *against_guessing(study),
                *fairness(study),
                *against_paper(study, published or {}),
                *against_curves(study, curves or {}),
            ]
        everything += [
            f"With {parties_in_words(parties)}: {s}" if several else s for s in sentences
        ]
    return everything


def against_non_private(study: Study) -> Iterator[str]:
    """Where each strategy is within a point of the average without noise, and where not."""
    reference = study.frame.get("non-private")
    if reference is None:
        return
    for setting in study.settings:
        if setting.any["strategy"].startswith(LOCAL):
            continue  # its aggregated form speaks for it
        gaps = setting.minus(reference)
        near = [e for e, gap in gaps.items() if above(gap, -CLOSE)]
        far = [e for e, gap in gaps.items() if below(gap, -CLOSE)]
        parts = []
        if near:
            parts.append(
                f"is within 1 point of non-private averaging ({percent(reference)}) at "
                f"{budgets(near, gaps)} ({at(near[0], near)}it "
                f"{change(gaps[near[0]])})"
            )
        if far:
            whom = "it" if near else f"non-private averaging ({percent(reference)})"
            parts.append(
                f"loses more than 1 point to {whom} at {budgets(far, gaps)} "
                f"({at(far[-1], far)}it loses {points(-gaps[far[-1]])})"
            )
        if parts:
            yield f"{setting.label} {' and '.join(parts)}."


def against_local(study: Study) -> Iterator[str]:
    """What noise added once, to the sum, gains over noise at every party."""
    for setting in study.settings:
        for local in study.settings:
            if not _is_local(setting.any, local.any):
                continue
            gains = setting.minus(local)
            higher = [e for e, gain in gains.items() if above(gain, 0)]
            lower = [e for e, gain in gains.items() if below(gain, 0)]
            parts = []
            if higher:
                most = max(higher, key=lambda e: gains[e].mean)
                parts.append(
                    f"is above {local.label} at {budgets(higher, gains)} "
                    f"({at(most, higher)}by {points(gains[most])})"
                )
            if lower:
                most = min(lower, key=lambda e: gains[e].mean)
                parts.append(
                    f"is below {local.label} at {budgets(lower, gains)} "
                    f"({at(most, lower)}by {points(-gains[most])})"
                )
            undecided = [e for e in gains if e not in higher and e not in lower]
            if undecided:
                parts.append(
                    f"cannot be distinguished from {local.label} at {budgets(undecided, gains)}"
                )
            yield f"{setting.label} {', '.join(parts)}."


def weights(study: Study) -> Iterator[str]:
    """The cost of equal weights, caused by the smallest party."""
    for even in study.settings:
        for fair in study.settings:
            if not _only_weights_differ(even.any, fair.any):
                continue
            costs = fair.minus(even)
            dear = [e for e, cost in costs.items() if above(cost, 0)]
            row = even.any
            why = (
                f"the smallest of {row['parties']} parties has {row['smallest_party']} of "
                f"{row['records']} records, which {_price_of_smallest(row, fair.any)}"
            )
            if dear:
                most = max(dear, key=lambda e: costs[e].mean)
                yield (
                    f"Equal weights cost {row['strategy']} accuracy at {budgets(dear, costs)} "
                    f"({at(most, dear)}they cost {points(costs[most])}): {why}."
                )
            else:
                yield (
                    f"Equal and proportional weights of {row['strategy']} cannot be "
                    f"distinguished, though {why}."
                )


def _price_of_smallest(even: Row, fair: Row) -> str:
    """More noise, or with a λ that follows from noise a larger one."""

    def ratio(key: str) -> float:
        return (even.mean(key) or 1) / (fair.mean(key) or 1)

    if even["options"].get("regulariser") == "auto":
        return f"asks for a λ that is {ratio('regulariser'):.3g} times as large"
    return f"makes the noise {ratio('noise_stddev'):.3g} times as large"


def against_alone(study: Study) -> Iterator[str]:
    """What a party gains by joining, against the model that it could have without anybody."""
    alone = study.frame.get("party-alone")
    if alone is None:
        return
    gains = {setting.label: setting.minus(alone) for setting in study.settings}
    for verdict, decided in (("better", above), ("worse", below)):
        decisive = {
            label: [e for e, gain in own.items() if decided(gain, 0)]
            for label, own in gains.items()
        }
        named = [f"{label} ({budgets(e, gains[label])})" for label, e in decisive.items() if e]
        if named:
            yield (
                f"A party does {verdict} than by training alone ({percent(alone)} on average "
                f"over the parties) with: {'; '.join(named)}."
            )


def _is_local(aggregated: Row, local: Row) -> bool:
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
