"""Figures of a comparison: a metric against ε, or a key of the experiment, with 95 % bands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedpriv.simulations.compare.plots import PLAIN, TITLES
from fedpriv.simulations.report.parts import Axis, Curve, Figure, Point
from fedpriv.simulations.report.style import NEUTRAL, styles

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fedpriv.simulations.compare.intervals import Interval
    from fedpriv.simulations.compare.panels import Panel

_POSITIVE = ("loss", "rmse", "objective", "excess_risk", "optimality_gap")


def metric_title(metric: str) -> str:
    """What an axis calls a metric."""
    return TITLES.get(metric, metric.replace("_", " "))


def begun(words: str) -> str:
    """Words with a capital at their beginning, and the rest as it is: AUC stays AUC."""
    return words[:1].upper() + words[1:]


def metric_figure(panel: Panel, key: str) -> Figure:
    """One panel of a comparison, drawn by the metric ``key``."""
    metric = panel.rows[0].metric
    percent = key not in PLAIN and metric == "accuracy"
    drawn: dict[str, list[Point]] = {}
    level, strategies = set(), {}
    for row, name, tick in zip(panel.rows, panel.names, panel.ticks, strict=True):
        interval = row.interval_of(key)
        if interval is None:
            continue
        strategies[name] = str(row["strategy"])
        if tick is None:
            level.add(name)
        at = "" if tick is None else f", {panel.against} = {tick}"
        drawn.setdefault(name, []).append(
            _point(
                interval,
                x=0.0 if tick is None else panel.places[tick],
                text=f"{name}{at}: {said(interval, percent=percent)}",
            )
        )
    style = styles({name: strategies[name] for name in drawn if name not in level})
    curves = [
        _curve(name, points, level=name in level, style=style, levels=sorted(level))
        for name, points in drawn.items()
    ]
    values = [point.y for curve in curves for point in curve.points]
    spread = key in _POSITIVE and min(values, default=0) > 0 and max(values) > 30 * min(values)
    against = "ε (privacy budget)" if panel.key is None else panel.key
    return Figure(
        id=f"{key}-{panel.name}".replace("_", "-"),
        title=f"{begun(metric_title(key))} against {panel.against}{panel.words}",
        description=_in_words(curves, metric=metric_title(key), against=panel.against),
        x=Axis(
            title=against,
            ticks=tuple(panel.places.items()),
            logarithmic=panel.logarithmic,
            switch=panel.logarithmic and not spread and len(panel.places) > 1,
        ),
        y=Axis(title=metric_title(key), percent=percent, logarithmic=spread, switch=spread),
        curves=tuple(curves),
    )


def said(interval: Interval, *, percent: bool) -> str:
    """A mean with its interval in words.

    >>> from fedpriv.simulations.compare.intervals import Interval
    >>> said(Interval(mean=0.775, half_width=0.002), percent=True)
    '77.50 % (95 % CI 77.30 to 77.70)'
    """
    scale, digits, unit = (100, ".2f", " %") if percent else (1, ".4g", "")
    text = f"{scale * interval.mean:{digits}}{unit}"
    if interval.low is None or interval.high is None:
        return text
    return f"{text} (95 % CI {scale * interval.low:{digits}} to {scale * interval.high:{digits}})"


def _point(interval: Interval, *, x: float, text: str) -> Point:
    return Point(x=x, y=interval.mean, low=interval.low, high=interval.high, text=text)


def _curve(
    name: str,
    points: list[Point],
    *,
    level: bool,
    style: Mapping[str, tuple[int, int, bool]],
    levels: list[str],
) -> Curve:
    if level:
        dashed = levels.index(name) % 2 == 1
        return Curve(name=name, colour=NEUTRAL, dashed=dashed, level=True, points=tuple(points[:1]))
    colour, mark, dashed = style[name]
    ordered = sorted(points, key=lambda point: point.x)
    return Curve(name=name, colour=colour, mark=mark, dashed=dashed, points=tuple(ordered))


def _in_words(curves: list[Curve], *, metric: str, against: str) -> str:
    """What the figure shows, for who does not see it; the numbers are in a table below it."""
    placed = [curve for curve in curves if not curve.level]
    levels = [curve.points[0].text for curve in curves if curve.level]
    told = f"{len(placed)} curves of {metric} against {against}."
    if placed:
        best = max((p for c in placed for p in c.points[-1:]), key=lambda p: p.y, default=None)
        told += "" if best is None else f" Highest at the right end: {best.text}."
    if levels:
        told += f" The same everywhere: {'; '.join(levels)}."
    return told
