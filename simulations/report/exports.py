"""Figures and tables for papers, from the document of a report: SVG and PDF, LaTeX and CSV.

The same numbers as the page and `report.json`: these are drawn from the document, too.
"""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

from fedpriv._durable import replace_file
from fedpriv.data.errors import import_optional

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from matplotlib.axes import Axes

# As on the page, in its light colours.
PALETTE = (
    "#0b63b5", "#c04a00", "#00795a", "#9c3587", "#8a6500", "#2b7f9e", "#7a4a2a", "#5f6670",
)  # fmt: skip
_MARKS = ("o", "s", "^", "D", "v", "P")
_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "ε": r"$\varepsilon$", "δ": r"$\delta$", "±": r"$\pm$", "–": "--", "∞": r"$\infty$",
    "≤": r"$\le$", "λ": r"$\lambda$", "θ": r"$\theta$", "‖": r"$\|$", "−": "$-$",
    "²": r"\textsuperscript{2}",     "×": r"$\times$", "<": r"\textless{}", ">": r"\textgreater{}",
}  # fmt: skip


def write_figures(document: Mapping[str, Any], folder: Path) -> list[Path]:
    """Every figure as SVG and PDF; the extra `report` brings matplotlib."""
    matplotlib = import_optional("matplotlib", extra="report")
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    settings = {"svg.hashsalt": "fedpriv", "pdf.fonttype": 42, "font.size": 9}
    paths = []
    for values in _parts(document, "figures"):
        with matplotlib.rc_context(settings):  # the same numbers make the same file
            figure = Figure(figsize=(6.4, 3.8), layout="constrained")
            draw(figure.add_subplot(), values)
            if len(values["curves"]) > 1:
                figure.legend(loc="outside lower center", ncols=2, fontsize=7, frameon=False)
            for suffix, metadata in ((".svg", {"Date": None}), (".pdf", {"CreationDate": None})):
                buffer = io.BytesIO()
                figure.savefig(buffer, format=suffix[1:], metadata=metadata)
                path = folder / f"{values['id']}{suffix}"
                replace_file(path, buffer.getvalue())
                paths.append(path)
    return paths


def draw(axes: Axes, values: Mapping[str, Any]) -> None:
    """One figure of a document."""
    x_axis, y_axis = values["x"], values["y"]
    scale = 100 if y_axis["percent"] else 1
    for curve in values["curves"]:
        points, colour = curve["points"], PALETTE[curve["colour"] % len(PALETTE)]
        line = "--" if curve["dashed"] else "-"
        heights = [scale * point["y"] for point in points]
        low = [scale * (point["y"] if point["low"] is None else point["low"]) for point in points]
        high = [
            scale * (point["y"] if point["high"] is None else point["high"]) for point in points
        ]
        if curve["level"]:
            axes.axhline(heights[0], color=colour, linestyle=line, label=curve["name"])
            axes.axhspan(low[0], high[0], color=colour, alpha=0.12, linewidth=0)
            continue
        places = [point["x"] for point in points]
        axes.plot(
            places,
            heights,
            line if curve["joined"] else "",
            color=colour,
            marker=_MARKS[curve["mark"] % len(_MARKS)] if len(points) <= 40 else None,
            markersize=4,
            markerfacecolor="white" if curve["dashed"] else colour,
            label=curve["name"],
        )
        axes.fill_between(places, low, high, color=colour, alpha=0.12, linewidth=0)
    for name, axis in (("x", x_axis), ("y", y_axis)):
        if axis["logarithmic"]:
            axes.set(**{f"{name}scale": "log"})
    if x_axis["ticks"]:
        axes.set_xticks([place for _, place in x_axis["ticks"]], [t for t, _ in x_axis["ticks"]])
        axes.minorticks_off()
    axes.set_xlabel(x_axis["title"])
    axes.set_ylabel(y_axis["title"] + (" (%)" if scale == 100 else ""))
    axes.grid(alpha=0.25)


def write_tables(document: Mapping[str, Any], folder: Path) -> list[Path]:
    """Every table as CSV, with full values, and as LaTeX for booktabs, as the page prints it."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for values in _parts(document, "tables"):
        for suffix, text in ((".csv", as_csv(values)), (".tex", as_latex(values))):
            path = folder / f"{values['id']}{suffix}"
            replace_file(path, text)
            paths.append(path)
    return paths


def as_csv(table: Mapping[str, Any]) -> str:
    """A table as CSV: what stands behind each cell, or its text."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table["columns"])
    for row in table["rows"]:
        writer.writerow([c["text"] if c["value"] is None else c["value"] for c in row])
    return text.getvalue()


def as_latex(table: Mapping[str, Any]) -> str:
    """A table as LaTeX, for the package booktabs."""
    columns = "".join("r" if numeric else "l" for numeric in table["numeric"])
    lines = [
        rf"% {table['title']}".replace("\n", " "),
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        " & ".join(map(latex, table["columns"])) + r" \\",
        r"\midrule",
        *(" & ".join(latex(cell["text"]) for cell in row) + r" \\" for row in table["rows"]),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def latex(text: str) -> str:
    r"""Text whose every letter LaTeX prints as it is.

    >>> print(latex("5 % of ε"))
    5 \% of $\varepsilon$
    """
    return "".join(_LATEX.get(letter, letter) for letter in text)


def _parts(document: Mapping[str, Any], kind: str) -> Iterator[Mapping[str, Any]]:
    for section in document["sections"]:
        yield from section[kind]
