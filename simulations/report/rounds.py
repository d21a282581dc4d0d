"""Figures by round: metrics, budget spent, and the schedule of the noise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedpriv.privacy.rounding import rounded_up
from fedpriv.simulations.report.curves import begun, metric_title
from fedpriv.simulations.report.parts import Axis, Curve, Figure, Point, thinned
from fedpriv.simulations.report.style import styles

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from fedpriv.simulations.report.results import RunFiles

METRICS = ("accuracy", "loss", "objective", "excess_risk", "optimality_gap")
_WIDE = ("objective", "excess_risk", "optimality_gap")


def metric_figures(runs: Sequence[RunFiles]) -> list[Figure]:
    """Each metric that was computed on the way, round by round."""
    figures = []
    for key in METRICS:
        percent = key == "accuracy"
        values = {run.name: _column(run.rounds, key) for run in runs}
        figure = _figure(
            runs,
            values,
            id_=f"{key}-by-round".replace("_", "-"),
            title=f"{begun(metric_title(key))}, round by round",
            y=metric_title(key),
            said=(lambda v: f"{100 * v:.2f} %") if percent else (lambda v: f"{v:.4g}"),
            percent=percent,
            wide=key in _WIDE,
        )
        if figure is not None:
            figures.append(figure)
    return figures


def budget_figure(runs: Sequence[RunFiles]) -> Figure | None:
    """ε that was spent after every round, an upper bound."""
    values = {run.name: _column(run.rounds, "epsilon") for run in runs}
    return _figure(
        runs,
        values,
        id_="budget-by-round",
        title="Budget spent, round by round",
        y="ε spent so far, at most",
        said=lambda value: f"ε ≤ {rounded_up(value)}",
    )


def schedule_figure(runs: Sequence[RunFiles]) -> Figure | None:
    """The standard deviation of the noise on a coordinate of each release."""
    values = {run.name: _noise(run.plan) for run in runs}
    return _figure(
        runs,
        values,
        id_="schedule",
        title="Noise of each release, on a coordinate of the sum",
        y="noise (standard deviation)",
        said=lambda value: f"standard deviation {value:.4g}",
        unit="release",
        wide=True,
    )


def _noise(plan: Mapping[str, Any] | None) -> list[tuple[float, float]]:
    """The noise of the releases, in the order in which the plan lists them.

    Releases of several kinds, a matrix and gradients say, are on different scales, and stay apart.
    """
    if plan is None:
        return []
    listed = plan.get("made") or plan.get("mechanisms", [])
    main = [each for each in listed if not each.get("part")]
    scales = [
        float(each["stddev"])
        for each in main
        if each.get("stddev") is not None
        for _ in range(int(each.get("count", 1)))
    ]
    if len({each.get("name") for each in main}) > 1:
        return []
    return [(float(place), scale) for place, scale in enumerate(scales, start=1)]


def _column(rounds: Sequence[Mapping[str, Any]], key: str) -> list[tuple[float, float]]:
    return [
        (float(entry["round"]), float(entry[key])) for entry in rounds if entry.get(key) is not None
    ]


def _figure(
    runs: Sequence[RunFiles],
    values: Mapping[str, list[tuple[float, float]]],
    *,
    id_: str,
    title: str,
    y: str,
    said: Callable[[float], str],
    percent: bool = False,
    unit: str = "round",
    wide: bool = False,
) -> Figure | None:
    known = {name: pairs for name, pairs in values.items() if pairs}
    if not known or max(map(len, known.values())) < 2:
        return None  # one number is in the table
    style = styles({run.name: str(run.result["strategy"]) for run in runs if run.name in known})
    curves = []
    for name, pairs in known.items():
        colour, mark, dashed = style[name]
        points = tuple(
            Point(
                x=pairs[place][0],
                y=pairs[place][1],
                text=f"{name}, {unit} {pairs[place][0]:g}: {said(pairs[place][1])}",
            )
            for place in thinned(len(pairs))
        )
        curves.append(Curve(name=name, colour=colour, mark=mark, dashed=dashed, points=points))
    heights = [point.y for curve in curves for point in curve.points]
    positive = min(heights) > 0
    spread = wide and positive and max(heights) > 30 * min(heights)
    ends = "; ".join(curve.points[-1].text for curve in curves)
    longest = max(map(len, known.values()))
    some = " Only some of the points are drawn." if longest > len(curves[0].points) else ""
    return Figure(
        id=id_,
        title=title,
        description=f"{len(curves)} curve{'s' if len(curves) > 1 else ''} over {longest} "
        f"{unit}s. At the end: {ends}.{some}",
        x=Axis(title=unit, whole=True),
        y=Axis(title=y, percent=percent, logarithmic=spread, switch=wide and positive),
        curves=tuple(curves),
    )
