"""Plots of accuracy against ε: on the terminal, and as PNG and SVG."""

from __future__ import annotations

from math import inf, log10, sqrt
from typing import TYPE_CHECKING

from fedpriv.simulations.experiment.budgets import shown

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from fedpriv.simulations.compare.rows import Row

_MARKS = "●■▲◆○□△◇✚✖★✦"
_HEIGHT = 16
_TITLES = {
    "accuracy": "accuracy on the test set",
    "loss": "loss on the test set",
    "auc": "AUC on the test set",
    "rmse": "RMSE on the test set",
    "worst_party": "the worst-served party",
}


def text_plot(rows: Sequence[Row], *, width: int = 64) -> str:
    """The means over seeds, one mark per strategy, and the strategies without noise as lines.

    ε is spaced logarithmically, one column for each budget; ∞, if it is among them, is the last.
    """
    noisy = [row for row in rows if row.epsilon_budget is not None]
    if not noisy:
        return ""
    places = _places(noisy)
    labels = list(dict.fromkeys(row.label for row in noisy))
    means = [row.interval.mean for row in rows]
    low, high = min(means), max(means)
    span = (high - low) or 1.0
    grid = [[" "] * width for _ in range(_HEIGHT)]

    def line(value: float) -> int:
        return round((high - value) / span * (_HEIGHT - 1))

    def column(epsilon: float) -> int:
        first, last = log10(min(places.values())), log10(max(places.values()))
        share = (log10(places[epsilon]) - first) / (last - first) if last > first else 0.5
        return 2 + round(share * (width - 5))

    frame = [row for row in rows if row.epsilon_budget is None]
    for row, dash in zip(frame, "─┄┈╌", strict=False):
        grid[line(row.interval.mean)] = [dash] * width
    for row in reversed(noisy):  # where marks fall together, the first strategy shows
        mark = _MARKS[labels.index(row.label) % len(_MARKS)]
        grid[line(row.interval.mean)][column(float(row.epsilon_budget or 0))] = mark
    lines = [
        f"{_tick(high - span * i / (_HEIGHT - 1), rows[0].metric):>8} ┤{''.join(cells)}"
        for i, cells in enumerate(grid)
    ]
    axis = [" "] * (width + 6)
    for epsilon in places:
        for offset, character in enumerate(shown(epsilon)):
            axis[column(epsilon) + offset] = character
    legend = [f"{_MARKS[i % len(_MARKS)]} {label}" for i, label in enumerate(labels)]
    legend += [f"{dash} {row.label}" for row, dash in zip(frame, "─┄┈╌", strict=False)]
    return "\n".join(
        [
            *lines,
            " " * 9 + "└" + "─" * width,
            "   ε      " + "".join(axis).rstrip(),
            *_columns(legend),
        ]
    )


def _places(rows: Sequence[Row]) -> dict[float, float]:
    """Where each budget stands on a logarithmic axis: ∞ half a decade after the last number."""
    budgets = sorted({row.epsilon_budget for row in rows if row.epsilon_budget is not None})
    largest = max((epsilon for epsilon in budgets if epsilon < inf), default=1.0)
    return {epsilon: min(epsilon, largest * sqrt(10)) for epsilon in budgets}


def _tick(value: float, metric: str) -> str:
    return f"{100 * value:.1f} %" if metric == "accuracy" else f"{value:.4g}"


def _columns(legend: list[str]) -> list[str]:
    wide = max(map(len, legend)) + 3
    return [
        "   " + "".join(entry.ljust(wide) for entry in legend[i : i + 2]).rstrip()
        for i in range(0, len(legend), 2)
    ]


def save_plot(rows: Sequence[Row], stem: Path, *, title: str, key: str | None = None) -> list[Path]:
    """Write PNG and SVG with 95 % intervals; nothing if matplotlib is not installed.

    ``key`` names another metric than that which settings are compared by.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        return []
    figure = Figure(figsize=(9, 5), layout="constrained")
    draw(figure.add_subplot(), rows, title=title, key=key)
    figure.legend(loc="outside right upper", fontsize=8)
    paths = [stem.with_suffix(suffix) for suffix in (".png", ".svg")]
    with rc_context({"svg.hashsalt": title}):  # the same numbers make the same file
        for path in paths:
            metadata = {"Date": None} if path.suffix == ".svg" else None
            figure.savefig(path, dpi=150, metadata=metadata)
    return paths


def draw(axes: Axes, rows: Sequence[Row], *, title: str, key: str | None = None) -> None:
    """The metric against ε with 95 % intervals; strategies without noise are lines."""
    metric = key or rows[0].metric
    scale = 1 if metric == "auc" or rows[0].metric != "accuracy" else 100
    by_label: dict[str, list[Row]] = {}
    places = _places(rows)
    for row in rows:
        if row.interval_of(metric) is not None:
            by_label.setdefault(row.label, []).append(row)
    for number, (label, group) in enumerate(by_label.items()):
        found = [interval for row in group if (interval := row.interval_of(metric))]
        mean = [scale * interval.mean for interval in found]
        half = [scale * (interval.half_width or 0.0) for interval in found]
        if group[0].epsilon_budget is None:
            style = "--" if number % 2 else "-"
            axes.axhline(mean[0], linestyle=style, color="0.4", label=label)
            axes.axhspan(mean[0] - half[0], mean[0] + half[0], color="0.4", alpha=0.1, linewidth=0)
        else:
            # A little aside, so that intervals at one ε do not hide one another.
            shift = 1 + 0.015 * (number - len(by_label) / 2)
            budgets = [shift * places[row.epsilon_budget or 0] for row in group]
            style = "--" if group[0]["strategy"].startswith("local-") else "-"
            axes.errorbar(budgets, mean, half, fmt=f"o{style}", ms=4, capsize=2, label=label)
    axes.set_xscale("log")
    axes.set_xticks(list(places.values()), [shown(epsilon) for epsilon in places])
    axes.minorticks_off()
    axes.set_xlabel("ε")
    axes.set_ylabel(_TITLES[metric] + (" (%)" if scale == 100 else ""))
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.3)
