"""Figures as SVG, drawn in Python: what a reader without JavaScript sees, and a printer prints.

Colours are classes that the page's style sheet fills in, for light and dark. Everything that comes
from a result goes through `escape`.
"""

from __future__ import annotations

import json
from html import escape
from typing import TYPE_CHECKING, Any

from fedpriv.simulations.report.parts import Axis
from fedpriv.simulations.report.scales import Scale, scale_of, tick_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WIDTH, HEIGHT = 860, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 96, 26, 12, 58
COLOURS = 8
_MARKED = 40  # curves with more points than this have no marks

_SHAPES = (
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0",
    "M-3.6-3.6h7.2v7.2h-7.2z",
    "M0-4.8L4.6 3.4H-4.6z",
    "M0-5.2L4.4 0L0 5.2L-4.4 0z",
    "M0 4.8L4.6-3.4H-4.6z",
    "M-1.5-4.6h3v3.1h3.1v3h-3.1v3.1h-3v-3.1h-3.1v-3h3.1z",
)


def drawn(figure: Mapping[str, Any], *, path: str, logarithmic: bool | None = None) -> str:
    """One figure of a document as SVG.

    Args:
        figure: As `report.json` has it.
        path: Where in the document it is.
        logarithmic: How the axis with a switch is drawn; None for as it is at first.
    """
    x_axis, y_axis = _axis(figure["x"]), _axis(figure["y"])
    x_log = logarithmic if x_axis.switch and logarithmic is not None else x_axis.logarithmic
    y_log = logarithmic if y_axis.switch and logarithmic is not None else y_axis.logarithmic
    points = [point for curve in figure["curves"] for point in curve["points"]]
    placed = [p for curve in figure["curves"] if not curve["level"] for p in curve["points"]]
    heights = [
        value
        for point in points
        for value in (point["y"], point["low"], point["high"])
        if value is not None
    ]
    right, bottom = WIDTH - _RIGHT, HEIGHT - _BOTTOM
    across = scale_of(
        x_axis, [point["x"] for point in placed], start=_LEFT, end=right, logarithmic=x_log
    )
    up = scale_of(y_axis, heights, start=bottom, end=_TOP, logarithmic=y_log)
    names = f"{figure['id']}-{'log' if logarithmic else 'lin'}"
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="{names}-t {names}-d">',
        f'<title id="{names}-t">{escape(figure["title"])}</title>',
        f'<desc id="{names}-d">{escape(figure["description"])}</desc>',
        *_grid(across, up, x_axis, y_axis),
    ]
    # Bands first, so that no band hides another curve's line.
    for draw in (_band, _line):
        for place, curve in enumerate(figure["curves"]):
            parts.append(draw(curve, across, up, f"{path}.curves.{place}"))
    return "\n".join(filter(None, [*parts, "</svg>"]))


def swatch(curve: Mapping[str, Any]) -> str:
    """The sign of a curve in a legend."""
    line = '<path class="line" d="M1 8H31"/>' if curve["joined"] or curve["level"] else ""
    mark = "" if curve["level"] else _mark(curve, 16.0, 8.0)
    return (
        f'<svg class="swatch {_classes(curve)}" viewBox="0 0 32 16" aria-hidden="true">{line}'
        f"{mark}</svg>"
    )


def _axis(values: Mapping[str, Any]) -> Axis:
    ticks = tuple((str(text), float(place)) for text, place in values["ticks"])
    return Axis(**{**values, "ticks": ticks})


def _grid(across: Scale, up: Scale, x_axis: Axis, y_axis: Axis) -> list[str]:
    right, bottom = WIDTH - _RIGHT, HEIGHT - _BOTTOM
    parts = []
    for value in up.ticks():
        y = up(value)
        parts.append(f'<path class="grid" d="M{_LEFT} {y:.1f}H{right}"/>')
        text = tick_text(value, percent=y_axis.percent)
        parts.append(
            f'<text class="tick" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{text}</text>'
        )
    ticks = x_axis.ticks or tuple(
        (tick_text(value, percent=x_axis.percent), value) for value in across.ticks()
    )
    taken = 0.0
    for text, place in ticks:
        x = across(place)
        parts.append(f'<path class="grid" d="M{x:.1f} {_TOP}V{bottom}"/>')
        half = 4.2 * len(text)
        if x - half >= taken:  # a label that would cover the one before is left out
            taken = x + half + 6
            parts.append(
                f'<text class="tick" x="{x:.1f}" y="{bottom + 22}" text-anchor="middle">'
                f"{escape(text)}</text>"
            )
    middle = (_LEFT + right) / 2
    parts.append(f'<path class="axis" d="M{_LEFT} {_TOP}V{bottom}H{right}"/>')
    parts.append(
        f'<text class="label" x="{middle}" y="{HEIGHT - 10}" text-anchor="middle">'
        f"{escape(x_axis.title)}</text>"
    )
    parts.append(
        f'<text class="label" transform="translate(18 {(_TOP + bottom) / 2}) rotate(-90)" '
        f'text-anchor="middle">{escape(y_axis.title)}</text>'
    )
    return parts


def _band(curve: Mapping[str, Any], across: Scale, up: Scale, path: str) -> str:
    """The intervals of a curve, as an area behind it."""
    points = _drawable(curve, across, up)
    known = [p for p in points if p["low"] is not None]
    if not known or all(point["low"] == point["high"] for point in known):
        return ""
    upper = [(x, up(p["high"])) for p in known for x in _places(curve, p, across)]
    low = [(x, up(max(p["low"], up.low))) for p in known for x in _places(curve, p, across)]
    if len(upper) < 2:
        (x, top), (_, bottom) = upper[0], low[0]
        d = f"M{x - 5:.1f} {top:.1f}h10M{x:.1f} {top:.1f}V{bottom:.1f}M{x - 5:.1f} {bottom:.1f}h10"
        return f'<path class="whisker {_classes(curve)}" {_tag(curve)} d="{d}"/>'
    return (
        f'<path class="band {_classes(curve)}" {_tag(curve)} d="{_polyline(upper)}'
        f'L{_polyline(low[::-1])[1:]}z"/>'
    )


def _line(curve: Mapping[str, Any], across: Scale, up: Scale, path: str) -> str:
    """The line and the marks, with what each point says."""
    points = _drawable(curve, across, up)
    if not points:
        return ""
    places = [(x, up(p["y"])) for p in points for x in _places(curve, p, across)]
    texts = json.dumps([point["text"] for point in points], ensure_ascii=False)
    # The places are those of the points, also where no line joins them.
    lined = "" if curve["joined"] or curve["level"] else " unjoined"
    named = f'{_tag(curve)} data-path="{escape(path)}" data-texts="{escape(texts)}"'
    parts = [
        f'<g class="curve {_classes(curve)}" {named}>',
        f'<path class="line{lined}" d="{_polyline(places)}"/>',
    ]
    if not curve["level"] and (len(points) <= _MARKED or not curve["joined"]):
        parts += [_mark(curve, x, y) for x, y in places]
    return "".join([*parts, "</g>"])


def _drawable(curve: Mapping[str, Any], across: Scale, up: Scale) -> list[Mapping[str, Any]]:
    """Points that a logarithmic scale has a place for."""
    return [
        point
        for point in curve["points"]
        if not (up.logarithmic and point["y"] <= 0)
        and not (across.logarithmic and not curve["level"] and point["x"] <= 0)
    ]


def _places(curve: Mapping[str, Any], point: Mapping[str, Any], across: Scale) -> list[float]:
    return [across.start, across.end] if curve["level"] else [across(point["x"])]


def _polyline(places: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)


def _mark(curve: Mapping[str, Any], x: float, y: float) -> str:
    hollow = " hollow" if curve["dashed"] else ""
    shape = _SHAPES[curve["mark"] % len(_SHAPES)]
    return f'<path class="mark{hollow}" transform="translate({x:.1f} {y:.1f})" d="{shape}"/>'


def _classes(curve: Mapping[str, Any]) -> str:
    return f"c{curve['colour'] % COLOURS}{' dashed' if curve['dashed'] else ''}"


def _tag(curve: Mapping[str, Any]) -> str:
    return f'data-curve="{escape(curve["name"])}"'
