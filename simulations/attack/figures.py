"""Pictures of attacks: ROC curves beside what a guarantee allows, and records off gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedpriv.privacy.rounding import rounded_up
from fedpriv.simulations.attack.inversion import STAGES, Inversion
from fedpriv.simulations.figures import new_figure

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from fedpriv.audit.membership import Roc
    from fedpriv.simulations.attack.attack import Attacks

    Curves = dict[tuple[str, str], Roc]

_STYLES = {
    ("none", "loss"): ("C3", "--", "loss, no noise"),
    ("none", "lira"): ("C3", "-", "LiRA, no noise"),
    ("planned", "loss"): ("C0", "--", "loss, noise of the plan"),
    ("planned", "lira"): ("C0", "-", "LiRA, noise of the plan"),
}
_LEAST = 1e-3


def save_figures(found: Attacks, directory: Path) -> list[Path]:
    """Write membership, attribute and, if there is any, inversion, as PNG and SVG."""
    terms = f"ε = {rounded_up(found.epsilon, 3)}, δ = {found.delta:g}"
    member, told = found.membership, found.attribute
    figures = {
        "membership": _pair(
            f"membership inference, {member.records} records a model: {terms}",
            member.curves,
            found.bound,
        ),
        "attribute": _pair(
            f"attribute inference of {told.feature!r}, {told.records} records a model: {terms}",
            told.curves,
            found.attribute_bound,
        ),
    }
    if isinstance(found.inversion, Inversion):
        figures["inversion"] = _inversion(found.inversion)
    paths = []
    for name, each in figures.items():
        for ending in ("png", "svg"):
            path = directory / f"{name}.{ending}"
            each.savefig(path, dpi=120)
            paths.append(path)
    return paths


def _pair(title: str, curves: Curves, bound: Roc | None) -> Figure:
    """Curves with linear axes, and with logarithmic ones."""
    figure = new_figure(width=10, height=4.8)
    linear, logarithmic = figure.subplots(1, 2)
    for axes in (linear, logarithmic):
        _curves(axes, curves, bound)
    logarithmic.set(xscale="log", yscale="log", xlim=(_LEAST, 1), ylim=(_LEAST, 1))
    linear.legend(loc="lower right", fontsize=8)
    figure.suptitle(title)
    return figure


def _curves(axes: Axes, curves: Curves, bound: Roc | None) -> None:
    if bound is not None:
        axes.fill_between(
            bound.false_positives,
            bound.true_positives,
            1,
            color="0.92",
            label="ruled out by the guarantee",
        )
        axes.plot(bound.false_positives, bound.true_positives, color="0.4", lw=1)
    axes.plot([_LEAST / 10, 1], [_LEAST / 10, 1], color="0.7", lw=1, ls=":", label="guessing")
    for key, curve in curves.items():
        color, dash, label = _STYLES[key]
        axes.plot(
            curve.false_positives,
            curve.true_positives,
            color=color,
            ls=dash,
            label=f"{label} (AUC {curve.area:.2f})",
        )
    axes.set(xlabel="false positives", ylabel="true positives", xlim=(0, 1), ylim=(0, 1))


def _inversion(found: Inversion) -> Figure:
    """Records as pictures, if they are; else bars of their likeness."""
    if found.image_shape is None:
        figure = new_figure(width=7, height=3.5)
        axes = figure.subplots()
        axes.bar(STAGES, [float(np.median(found.likeness[stage])) for stage in STAGES])
        axes.set(ylim=(0, 1), ylabel="cosine with the record, median")
        return figure
    rows = ("record", *STAGES)
    count = len(found.truth)
    figure = new_figure(width=1.5 * count + 1.2, height=1.5 * len(rows))
    grid = figure.subplots(len(rows), count, squeeze=False)
    for place, name in enumerate(rows):
        pictures = found.truth if name == "record" else found.found[name]
        for column, picture in enumerate(pictures):
            axes = grid[place, column]
            axes.imshow(_picture(picture, found.image_shape), cmap="gray")
            axes.set_xticks([])
            axes.set_yticks([])
            if name != "record":
                axes.set_xlabel(f"{found.likeness[name][column]:.2f}", fontsize=8)
        grid[place, 0].set_ylabel(name)
    return figure


def _picture(row: NDArray[np.float64], shape: tuple[int, int, int]) -> NDArray[np.float64]:
    pixels = row[: int(np.prod(shape))].reshape(shape)
    return np.asarray(np.moveaxis(pixels, 0, -1).mean(axis=-1))
