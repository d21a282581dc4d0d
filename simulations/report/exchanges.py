"""Cost of secure aggregation: exchanges, seconds and bytes, step by step; for simulations."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Any

from fedpriv.simulations.compare.report import bytes_text
from fedpriv.simulations.report.parts import Cell, Section, Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_UNITS = ("exchanges", "seconds", "sent", "received")


def exchange_section(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> Section:
    """What the exchanges of each setting cost, in the mean over its results.

    Args:
        runs: By setting, its results; those without real exchanges say so in words.
    """
    rows, rejected = [], []
    for name, results in runs.items():
        reports = [result["exchanges"] for result in results if result.get("exchanges")]
        if not reports:
            continue
        steps = dict.fromkeys(step for report in reports for step in report["traffic"])
        for step in steps:
            told = [report["traffic"].get(step, {}) for report in reports]
            means = [fmean(float(each.get(unit, 0)) for each in told) for unit in _UNITS]
            rows.append(
                (
                    Cell(text=name, value=name),
                    Cell(text=step, value=step),
                    Cell(text=f"{means[0]:g}", value=means[0]),
                    Cell(text=f"{means[1]:.3g}", value=means[1]),
                    *(Cell(text=bytes_text(mean), value=mean) for mean in means[2:]),
                )
            )
        for report in reports:
            rejected += [f"{name}: {count} × {why}" for why, count in report["rejected"].items()]
    level = dict.fromkeys(
        str(result["secure_aggregation"]) for results in runs.values() for result in results
    )
    words = [f"Secure aggregation: {', '.join(level)}."]
    if not rows:
        words.append(
            "The parties were computed in one process, by the ideal sum: there were no messages to "
            "measure. run.engine = 'local' runs the real protocol."
        )
        return Section(id="secure-aggregation", title="Secure aggregation", words=tuple(words))
    words.append(
        "By step of the protocol, all parties and rounds together; seconds include what the "
        "parties compute. Means over the seeds, where there are several."
    )
    if rejected:
        words.append(f"Rejected: {'; '.join(rejected)}.")
    table = Table(
        id="exchanges",
        title="What the exchanges cost",
        columns=("setting", "step", "exchanges", "seconds", "to the parties", "to the server"),
        numeric=(False, False, True, True, True, True),
        rows=tuple(rows),
    )
    return Section(
        id="secure-aggregation", title="Secure aggregation", words=tuple(words), tables=(table,)
    )
