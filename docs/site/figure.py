"""Figure and table of the README, from a comparison: `make figure` runs it and puts both in place.

    python docs/site/figure.py build/chem97

The figure is drawn as on the page of the report, with the names beside the curves; light or dark as
the reader's system is.
"""

from __future__ import annotations

import json
import re
import sys
from html import escape
from pathlib import Path
from typing import Any

from fedpriv.simulations.report import svg
from fedpriv.simulations.report.exports import PALETTE

ROOT = Path(__file__).parents[2]
MARKS = ("<!-- from `make figure`: -->", "<!-- until here -->")
_DARK = (
    "#62b0f4", "#ff9457", "#3fcfa3", "#e592d2", "#e3bd4f", "#8cd3ea", "#d3a07c", "#a8b0ba",
)  # fmt: skip
_STYLE = """
svg { color: #1b1f24; --line: #dfe2e6; background: #ffffff; font: 13px system-ui, sans-serif }
text { fill: currentColor } .tick { opacity: .75; font-size: 12px }
path { fill: none; stroke-width: 1 } .grid { stroke: var(--line) } .axis { stroke: currentColor }
.band { fill: currentColor; opacity: .13 } .line { stroke: currentColor; stroke-width: 2.2 }
.dashed .line { stroke-dasharray: 6 4 } .unjoined { stroke: none } .name { font-weight: 600 }
.mark { fill: currentColor; stroke: currentColor } .hollow { fill: #ffffff; stroke-width: 1.6 }
"""
_NAMES = 262  # the room beside the curves
_APART = 17.0


def figure(document: dict[str, Any]) -> str:
    """The first figure of a report's document, with a style of its own and names beside it."""
    (section,) = (s for s in document["sections"] if s["id"] == "figures")
    values = section["figures"][0]
    drawing = re.sub(r' data-\w+="[^"]*"', "", svg.drawn(values, path=""))
    ends = [_end(drawing, curve) for curve in values["curves"]]
    width = svg.WIDTH + _NAMES
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{svg.HEIGHT}" '
        f'viewBox="0 0 {width} {svg.HEIGHT}"'
    )
    drawing = re.sub(r"^<svg viewBox=\"[^\"]*\"", head, drawing)
    names = "\n".join(_named(values["curves"], ends))
    return drawing.replace("</title>", f"</title>\n<style>{_style()}</style>", 1).replace(
        "\n</svg>", f"\n{names}\n</svg>\n"
    )


def _end(drawing: str, curve: dict[str, Any]) -> float:
    """How high a curve ends, where its name belongs."""
    place = drawing.index(f'<g class="curve c{curve["colour"]}{" dashed" * curve["dashed"]}"')
    line = re.search(r'class="line[^"]*" d="[^"]*?([\d.]+)"', drawing[place:])
    if line is None:
        raise ValueError(f"{curve['name']!r} has no line in the figure.")
    return float(line[1])


def _named(curves: list[dict[str, Any]], ends: list[float]) -> list[str]:
    """The names, each near the end of its curve, and no two on top of each other."""
    order = sorted(range(len(curves)), key=lambda i: ends[i])
    places: dict[int, float] = {}
    free = 0.0
    for i in order:
        places[i] = max(ends[i], free)
        free = places[i] + _APART
    return [
        f'<text class="name c{curves[i]["colour"]}" x="{svg.WIDTH - 16}" y="{y + 4:.1f}">'
        f"{escape(curves[i]['name'])}</text>"
        for i, y in places.items()
    ]


def _style() -> str:
    light = " ".join(f".c{i} {{ color: {colour} }}" for i, colour in enumerate(PALETTE))
    dark = " ".join(f".c{i} {{ color: {colour} }}" for i, colour in enumerate(_DARK))
    return (
        f"{_STYLE}{light}\n@media (prefers-color-scheme: dark) {{\n"
        "svg { color: #e9ecef; --line: #363c44; background: #14171b } .hollow { fill: #14171b }\n"
        f"{dark}\n}}\n"
    )


def table(rows: list[dict[str, Any]]) -> str:
    """Accuracy in percent, a line for each strategy and a column for each ε, from `rows.json`."""
    budgets = sorted({row["epsilon_budget"] for row in rows if row["epsilon_budget"]})
    lines = [
        "| accuracy in % | " + " | ".join(f"ε = {budget:g}" for budget in budgets) + " |",
        "|---|" + "---|" * len(budgets),
    ]
    for label in dict.fromkeys(row["label"] for row in rows):
        cells = {row["epsilon_budget"]: _cell(row) for row in rows if row["label"] == label}
        shown = [cells.get(budget, cells.get(None, "")) for budget in budgets]
        lines.append(f"| {label} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def _cell(row: dict[str, Any]) -> str:
    low, high = row["confidence_interval"]
    return f"{100 * row['mean']:.1f} ± {50 * (high - low):.1f}"


def with_table(readme: str, numbers: str) -> str:
    """The README with these numbers between its two marks."""
    start, end = (readme.index(mark) for mark in MARKS)
    return f"{readme[: start + len(MARKS[0])]}\n{numbers}\n{readme[end:]}"


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    report, rows = (json.loads((folder / f"{n}.json").read_text()) for n in ("report", "rows"))
    (ROOT / "docs" / "chem97.svg").write_text(figure(report), encoding="utf-8")
    page = ROOT / "README.md"
    page.write_text(with_table(page.read_text(), table(rows)), encoding="utf-8")
