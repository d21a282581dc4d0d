"""Leaders of a comparison: which strategy is best at each budget, and whether the seeds decide it.

Of classifiers by accuracy; of regressions by RMSE, in which models with different losses compare.
The leader is chosen on the same seeds that measure it: with many strategies a narrow lead may be
chance, which the interval of the difference to the next does not account for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedpriv.simulations.compare.intervals import Interval, paired_difference
from fedpriv.simulations.compare.words import above, points

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fedpriv.simulations.compare.rows import Row
    from fedpriv.simulations.compare.study import Study

_RMSE = "rmse"


def leaders(study: Study) -> Iterator[str]:
    """At each budget the best strategy, the next, and any that are as good."""
    for epsilon in sorted({e for setting in study.settings for e in setting.rows}):
        rivals = {s.label: s.rows[epsilon] for s in study.settings if epsilon in s.rows}
        scored = {label: values for label, row in rivals.items() if (values := _scores(row))}
        if len(scored) > 1 and len({len(values) for values in scored.values()}) == 1:
            yield f"At ε = {epsilon:g} {_verdict(scored, said=_said(next(iter(rivals.values()))))}."


def _scores(row: Row) -> tuple[float, ...]:
    """What is best when highest, of every seed; nothing if a run of them has no such number."""
    values = row.values if row.metric == "accuracy" else tuple(-v for v in row.column(_RMSE))
    return values if len(values) == len(row.results) else ()


def _said(row: Row) -> str:
    return "" if row.metric == "accuracy" else f" of {_RMSE.upper()}"


def _verdict(scored: dict[str, tuple[float, ...]], *, said: str) -> str:
    best, *others = sorted(scored, key=lambda label: -sum(scored[label]))
    leads = {label: paired_difference(scored[best], scored[label]) for label in others}
    alike = [label for label, lead in leads.items() if not above(lead, 0)]
    if not alike:
        lead = leads[others[0]]
        by = points(lead) if not said else _plain(lead) + said
        return f"{best} is ahead of {_next(others)}, by {by}"
    ahead = f"{_listed([best, *alike])} cannot be told apart"
    if len(alike) == len(others):
        return ahead
    behind = [label for label in others if label not in alike]
    rest = behind[0] if len(behind) == 1 else f"the other {len(behind)}"
    return f"{ahead}, and {best} is ahead of {rest}"


def _next(others: list[str]) -> str:
    return others[0] if len(others) == 1 else f"{others[0]}, the next of {len(others)}"


def _listed(labels: list[str]) -> str:
    return f"{', '.join(labels[:-1])} and {labels[-1]}"


def _plain(lead: Interval) -> str:
    if lead.half_width == 0:
        return f"{lead.mean:.3g}"
    return f"{lead.mean:.3g} (95 % CI {lead.low:.3g} to {lead.high:.3g})"
