"""Plots of a metric against ε, or a key of the experiment: on the terminal, as PNG and SVG."""

from __future__ import annotations

from math import log10
from typing import TYPE_CHECKING

from fedpriv.simulations.run.metrics.training_metrics import TRAINING

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

    from fedpriv.simulations.compare.panels import Panel

_MARKS = "●■▲◆○□△◇✚✖★✦"
_DASHES = "─┄┈╌"
_HEIGHT = 16
_FINEST = 0.001  # of an accuracy, from row to row
TITLES = {
    "accuracy": "accuracy on the test set",
    "loss": "loss on the test set",
    "auc": "AUC on the test set",
    "rmse": "RMSE on the test set",
    "worst_party": "the worst-served party",
    "objective": "training objective",
    "excess_risk": "excess empirical risk",
    "optimality_gap": "distance from the minimiser",
}
PLAIN = ("auc", "loss", *TRAINING)
"""Metrics that are not printed in percent."""


def text_plot(panel: Panel, *, key: str | None = None, width: int = 64) -> str:
    """The means over seeds, one mark per curve, and what is the same everywhere as lines.

    One column for each place; ∞, if it is among the budgets, is the last. ``key`` names another
    metric than that which settings are compared by.
    """
    metric = key or panel.rows[0].metric
    known = [
        (mean, name, tick)
        for row, name, tick in zip(panel.rows, panel.names, panel.ticks, strict=True)
        if (mean := row.mean(metric)) is not None
    ]
    placed = [(mean, name, tick) for mean, name, tick in known if tick is not None]
    if not placed:
        return ""
    names = list(dict.fromkeys(name for _, name, _ in placed))
    means = [mean for mean, _, _ in known]
    low, high = min(means), max(means)
    if metric == "accuracy":  # no two rows with the same number beside them
        lacking = max(0.0, _FINEST * (_HEIGHT - 1) - (high - low))
        high = max(high, min(1.0, high + lacking / 2))
        low = min(low, high - _FINEST * (_HEIGHT - 1))
    span = (high - low) or 1.0
    grid = [[" "] * width for _ in range(_HEIGHT)]

    def line(value: float) -> int:
        return round((high - value) / span * (_HEIGHT - 1))

    spots = {tick: 2 + round(share * (width - 5)) for tick, share in _shares(panel).items()}
    lines = [(mean, name) for mean, name, tick in known if tick is None]
    dashes: dict[int, str] = {}
    for (mean, _), dash in zip(lines, _DASHES, strict=False):
        dashes[line(mean)] = dashes.get(line(mean), "") + dash
    for row, several in dashes.items():  # lines that fall together take turns
        grid[row] = [several[i % len(several)] for i in range(width)]
    taken: set[tuple[int, int]] = set()
    for mean, name, tick in placed:
        row, column = line(mean), spots[tick]
        while (row, column) in taken and column < width - 1:
            column += 1  # marks that fall together stand side by side
        taken.add((row, column))
        grid[row][column] = _MARKS[names.index(name) % len(_MARKS)]
    scaled = [
        f"{_tick(high - span * i / (_HEIGHT - 1), metric):>8} ┤{''.join(cells)}"
        for i, cells in enumerate(grid)
    ]
    longest = max(map(len, spots))
    axis = [" "] * (width + longest + 3)
    for tick, spot in spots.items():
        for offset, character in enumerate(tick):
            axis[spot + offset] = character
    legend = [f"{_MARKS[i % len(_MARKS)]} {name}" for i, name in enumerate(names)]
    legend += [f"{dash} {name}" for (_, name), dash in zip(lines, _DASHES, strict=False)]
    axis_name = panel.against if len(panel.against) <= 1 else " "
    return "\n".join(
        [
            *scaled,
            " " * 9 + "└" + "─" * width,
            f"   {axis_name}      " + "".join(axis).rstrip(),
            *([] if panel.key is None else [" " * 12 + panel.key]),
            *_columns(legend),
        ]
    )


def _shares(panel: Panel) -> dict[str, float]:
    """Where each tick stands between the first, 0, and the last, 1; the middle if there is one."""
    places = {tick: log10(x) if panel.logarithmic else x for tick, x in panel.places.items()}
    first, last = min(places.values()), max(places.values())
    return {
        tick: (place - first) / (last - first) if last > first else 0.5
        for tick, place in places.items()
    }


def _tick(value: float, metric: str) -> str:
    if metric in TRAINING:  # over many powers of ten
        return f"{value:.3g}"
    return f"{100 * value:.1f} %" if metric == "accuracy" else f"{value:.4g}"


def _columns(legend: list[str]) -> list[str]:
    wide = max(map(len, legend)) + 3
    return [
        "   " + "".join(entry.ljust(wide) for entry in legend[i : i + 2]).rstrip()
        for i in range(0, len(legend), 2)
    ]


def save_plot(panel: Panel, stem: Path, *, key: str | None = None) -> list[Path]:
    """Write PNG and SVG with 95 % intervals; nothing if matplotlib is not installed.

    ``key`` names another metric than that which settings are compared by.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        return []
    figure = Figure(figsize=(9, 5), layout="constrained")
    draw(figure.add_subplot(), panel, key=key)
    figure.legend(loc="outside right upper", fontsize=8)
    paths = [stem.with_suffix(suffix) for suffix in (".png", ".svg")]
    with rc_context({"svg.hashsalt": panel.title}):  # the same numbers make the same file
        for path in paths:
            metadata = {"Date": None} if path.suffix == ".svg" else None
            figure.savefig(path, dpi=150, metadata=metadata)
    return paths


def draw(axes: Axes, panel: Panel, *, key: str | None = None) -> None:
    """The metric with 95 % intervals; what is the same everywhere is a line."""
    metric = key or panel.rows[0].metric
    scale = 1 if metric in PLAIN or panel.rows[0].metric != "accuracy" else 100
    curves: dict[str, list[int]] = {}
    for place, (name, row) in enumerate(zip(panel.names, panel.rows, strict=True)):
        if row.interval_of(metric) is not None:
            curves.setdefault(name, []).append(place)
    spread = max(panel.places.values(), default=1.0) - min(panel.places.values(), default=1.0)
    for number, (name, rows) in enumerate(curves.items()):
        known = [interval for i in rows if (interval := panel.rows[i].interval_of(metric))]
        mean = [scale * interval.mean for interval in known]
        half = [scale * (interval.half_width or 0.0) for interval in known]
        ticks = [tick for i in rows if (tick := panel.ticks[i]) is not None]
        if len(ticks) < len(rows):
            style = "--" if number % 2 else "-"
            axes.axhline(mean[0], linestyle=style, color="0.4", label=name)
            axes.axhspan(mean[0] - half[0], mean[0] + half[0], color="0.4", alpha=0.1, linewidth=0)
        else:
            # A little aside, so that intervals at one place do not hide one another.
            aside = number - len(curves) / 2
            shift, move = (1 + 0.015 * aside, 0.0) if panel.logarithmic else (1, 0.003 * aside)
            spots = [shift * panel.places[tick] + move * spread for tick in ticks]
            style = "--" if panel.rows[rows[0]]["strategy"].startswith("local-") else "-"
            axes.errorbar(spots, mean, half, fmt=f"o{style}", ms=4, capsize=2, label=name)
    if panel.logarithmic:
        axes.set_xscale("log")
    axes.set_xticks(list(panel.places.values()), list(panel.places))
    axes.minorticks_off()
    axes.set_xlabel(panel.against)
    axes.set_ylabel(TITLES[metric] + (" (%)" if scale == 100 else ""))
    axes.set_title(panel.title, fontsize=10)
    axes.grid(alpha=0.3)
