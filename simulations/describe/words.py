"""A description in a terminal: one line per column, small histograms, and what was refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedpriv.privacy.rounding import rounded_up
from fedpriv.privacy.unit import Unit
from fedpriv.simulations.counted import parties_in_words
from fedpriv.simulations.describe.suggested import schema_lines

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_BLOCKS = " ▁▂▃▄▅▆▇█"
_WIDE = 24  # of a category's bar


def in_words(result: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """The lines of a description; numbers to the digits that the noise leaves."""
    counted = found["counted"]
    lines = [
        (
            f"{result['data']}: {parties_in_words(result['parties'])}, "
            f"{_count_of(found)} {counted}, "
            f"{'simulated' if result['simulated'] else 'released'}"
        ),
        _price(result),
        "± is the standard error of the noise; [ ] is where the noise leaves it, to 95 %",
        *_told(found),
    ]
    for name, own in (found.get("by_party") or {}).items():
        lines += ["", f"--- {name}: {_count_of(own)} {counted}", *_told(own)]
    return lines


def _count_of(found: Mapping[str, Any]) -> str:
    total = found["total"]
    how = "" if total["public"] else f" ± {total['noise']:.1f}"
    return f"{total['count']:.0f}{how}"


def _told(found: Mapping[str, Any]) -> list[str]:
    """The statistics of all parties, or of one."""
    lines = []
    for name, column in found["columns"].items():
        lines += ["", *_column(name, column)]
    for table in found["tables"]:
        lines += ["", *_table(table)]
    if found["correlation"] is not None:
        lines += ["", *_correlation(found["correlation"])]
    if found["survival"] is not None:
        lines += ["", *_survival(found["survival"])]
    return lines


def _price(result: Mapping[str, Any]) -> str:
    if result["epsilon"] is None:
        return "no privacy: epsilon = ∞, no noise was added; for study alone"
    return (
        f"epsilon <= {rounded_up(result['epsilon'])} at delta = {rounded_up(result['delta'])}   "
        f"({Unit(result['unit']).words}, {result['adjacency']}), one release"
    )


def spark(counts: Sequence[float]) -> str:
    """Counts as a line of bars.

    >>> spark([0, 1, 2, 4])
    ' ▂▄█'
    """
    most = max(counts, default=0.0)
    if most <= 0:
        return " " * len(counts)
    return "".join(_BLOCKS[round(8 * max(count, 0.0) / most)] for count in counts)


def _column(name: str, column: Mapping[str, Any]) -> list[str]:
    missing = column.get("missing")
    if column["kind"] == "bounds":
        lines = [] if "min" not in column else schema_lines(name, column).splitlines()
        return [*lines, *_refused(column)]
    absent = "" if missing is None else f"missing {_counted(missing)}"
    if column["kind"] == "category":
        rows = [f"{name}   {absent}"]
        counts = dict(zip(column["values"], column["counts"], strict=True))
        counts["(other)"] = column["other"]
        most, whole = max(*counts.values(), 1e-09), max(sum(counts.values()), 1e-9)
        width = max(map(len, counts))
        rows += [
            f"  {value:<{width}} {count:10.0f} ± {column['noise']:.1f}  "
            f"{100 * count / whole:5.1f} %  {'█' * round(_WIDE * count / most)}"
            for value, count in counts.items()
        ]
        return rows
    rows = [f"{name}   [{column['min']:g}, {column['max']:g}]   {absent}"]
    if "mean" in column:
        told = f"  mean {column['mean']:.5g} ± {column['mean_error']:.2g}"
        if "stddev" in column:
            told += f"   standard deviation {column['stddev']:.4g}"
        if "variance_error" in column:
            told += f"   variance {column['variance']:.4g} ± {column['variance_error']:.2g}"
        if "moments_of" in column:
            told += f"   (of {column['moments_of']})"
        rows.append(told)
    for one in column.get("quantiles", ()):
        rows.append(
            f"  {100 * one['chance']:g} % quantile {one['value']:.5g}"
            f"   [{one['low']:.5g}, {one['high']:.5g}]"
        )
    histogram = column.get("histogram")
    if histogram is not None:
        edges = histogram["edges"]
        rows.append(f"  {edges[0]:g} |{spark(histogram['counts'])}| {edges[-1]:g}")
        if "noisy" in histogram:
            rows += [
                f"  {low:g} to {high:g}: {count:.0f} ± {histogram['noise']:.1f}"
                for low, high, count in zip(edges, edges[1:], histogram["counts"], strict=False)
            ]
    return rows + _refused(column)


def _counted(count: Mapping[str, float]) -> str:
    return f"{count['count']:.0f} ± {count['noise']:.1f}"


def _refused(part: Mapping[str, Any]) -> list[str]:
    return [f"  not told: {why}" for why in part.get("refused", ())]


def _table(table: Mapping[str, Any]) -> list[str]:
    heads, names = table["column_values"], table["row_values"]
    width = max(map(len, names))
    rows = [f"{table['rows']} × {table['columns']}   (± {table['noise']:.1f} on each cell)"]
    rows.append("  " + " " * width + "".join(f"{head:>12}" for head in heads))
    for name, counts in zip(names, table["counts"], strict=True):
        rows.append(f"  {name:<{width}}" + "".join(f"{count:12.0f}" for count in counts))
    if "odds_ratio" in table:
        rows.append(
            f"  odds ratio {table['odds_ratio']:.3g}   [{table['odds_ratio_low']:.3g}, "
            f"{table['odds_ratio_high']:.3g}]   log {table['log_odds_ratio']:.3g} ± "
            f"{table['log_odds_ratio_error']:.2g}, sampling and noise"
        )
    return rows + _refused(table)


def _correlation(found: Mapping[str, Any]) -> list[str]:
    names = found["columns"]
    rows = [f"correlation   complete {_counted(found['complete'])}"]
    if "correlation" in found:
        width = max(map(len, names))
        errors = found["correlation_error"]
        for i, name in enumerate(names):
            told = "".join(
                f"{value:7.3f} ± {errors[i][j]:.3f}"
                for j, value in enumerate(found["correlation"][i])
            )
            rows.append(f"  {name:<{width}}{told}")
    return rows + _refused(found)


def _survival(found: Mapping[str, Any]) -> list[str]:
    rows = [f"survival by {found['time']}   incomplete {_counted(found['incomplete'])}"]
    for name, curve in found["curves"].items():
        told = "  ".join(
            f"{edge:g}: {value:.3f} ± {error:.3f}"
            for edge, value, error in zip(
                found["edges"][1:], curve["survival"], curve["survival_error"], strict=False
            )
        )
        rows += [f"  {name}   {told}", *_refused(curve)]
    return rows
