"""Pictures of a description: histograms with quantiles, counts, tables and survival curves."""

from __future__ import annotations

from functools import partial
from itertools import accumulate
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.simulations.figures import new_figure
from fedpriv.simulations.run.release_outcome import DESCRIBED_FILES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PICTURES = "statistics.svg"
_ACROSS = 3


def picture(found: Mapping[str, Any]) -> Figure:
    """One figure of everything that was released; the extra `report` brings matplotlib.

    Where every party is told of by itself, its panels follow in rows of their own.
    """
    parts = [("", found), *(found.get("by_party") or {}).items()]
    drawn = [_panels(part, whose=name) for name, part in parts]
    rows = [max(1, ceil(len(panels) / _ACROSS)) for panels in drawn]
    figure = new_figure(width=4 * _ACROSS, height=2.8 * sum(rows))
    for before, panels in zip(accumulate(rows, initial=0), drawn, strict=False):
        for place, draw in enumerate(panels, start=1 + before * _ACROSS):
            draw(figure.add_subplot(sum(rows), _ACROSS, place))
    return figure


def _panels(found: Mapping[str, Any], *, whose: str) -> list[Callable[[Axes], None]]:
    """What there is to draw of all parties, or of the one that is named."""
    panels: list[Callable[[Axes], None]] = []
    for name, column in found["columns"].items():
        if column["kind"] == "category":
            panels.append(partial(_category, name=name, column=column))
        elif "histogram" in column:
            panels.append(partial(_number, name=name, column=column))
    if (found["correlation"] or {}).get("correlation"):
        panels.append(lambda axes: _correlation(axes, found["correlation"]))
    if found["survival"] is not None:
        panels.append(lambda axes: _survival(axes, found["survival"]))
    return [partial(_titled, draw=draw, whose=whose) for draw in panels]


def _titled(axes: Axes, *, draw: Callable[[Axes], None], whose: str) -> None:
    draw(axes)
    if whose:
        axes.set_title(f"{whose}: {axes.get_title()}", fontsize=9)


def write_pictures(directory: Path, found: Mapping[str, Any]) -> Path:
    """statistics.svg: the same file for the same statistics, without a date."""
    figure = picture(found)
    import matplotlib as mpl

    path = directory / PICTURES
    if path.name not in DESCRIBED_FILES:
        raise RuntimeError(f"{path.name} must be stated in simulations/run/release_outcome.py.")
    with mpl.rc_context({"svg.hashsalt": "fedpriv"}):
        figure.savefig(path, format="svg", metadata={"Date": None})
    return path


def _number(axes: Axes, name: str, column: Mapping[str, Any]) -> None:
    edges = np.array(column["histogram"]["edges"])
    counts = np.array(column["histogram"]["counts"])
    axes.bar(edges[:-1], counts / np.diff(edges), np.diff(edges), align="edge", alpha=0.6)
    for one in column.get("quantiles", ()):
        axes.axvspan(one["low"], one["high"], color="C1", alpha=0.25)
        axes.axvline(one["value"], color="C1", linewidth=1)
    if "mean" in column:
        axes.axvline(column["mean"], color="C3", linestyle="--", linewidth=1)
    axes.set_title(name, fontsize=9)
    axes.set_ylabel("per unit", fontsize=8)


def _category(axes: Axes, name: str, column: Mapping[str, Any]) -> None:
    counts = dict(zip(column["values"], column["counts"], strict=True))
    counts |= {"(other)": column["other"], "(missing)": column["missing"]["count"]}
    axes.barh(
        range(len(counts)),
        list(counts.values()),
        xerr=1.96 * column["noise"],
        alpha=0.6,
        tick_label=list(counts),
    )
    axes.invert_yaxis()
    axes.set_title(name, fontsize=9)


def _correlation(axes: Axes, found: Mapping[str, Any]) -> None:
    axes.imshow(found["correlation"], vmin=-1, vmax=1, cmap="RdBu_r")
    places = range(len(found["columns"]))
    axes.set_xticks(places, found["columns"], rotation=45, fontsize=7)
    axes.set_yticks(places, found["columns"], fontsize=7)
    axes.set_title("correlation", fontsize=9)


def _survival(axes: Axes, found: Mapping[str, Any]) -> None:
    for name, curve in found["curves"].items():
        told = len(curve["survival"])
        times = found["edges"][: told + 1]
        values = np.array([1.0, *curve["survival"]])
        errors = 1.96 * np.array([0.0, *curve["survival_error"]])
        (line,) = axes.plot(times, values, marker="o", markersize=2, label=name)
        axes.fill_between(
            times,
            np.clip(values - errors, 0, 1),
            np.clip(values + errors, 0, 1),
            color=line.get_color(),
            alpha=0.2,
        )
    axes.set_ylim(0, 1.02)
    axes.legend(fontsize=7)
    axes.set_title(f"survival by {found['time']}", fontsize=9)
