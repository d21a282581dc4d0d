"""Sizes of parties, what the smallest costs, and how well each is served; for simulations.

Output perturbation with equal weights averages m minimisers, and one record moves that of a party
of n records by 2G/(nλ). So the noise is made for the smallest, and is N/(m·n₍₁₎) times what it is
with weights in proportion to the records (Jayaraman et al. 2018): 1 if all parties are alike.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from fedpriv.simulations.compare.report import PARTIES
from fedpriv.simulations.report.parts import (
    Axis,
    Cell,
    Curve,
    Figure,
    Point,
    Section,
    Table,
    thinned,
)
from fedpriv.simulations.report.style import styles

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_LEFT_OUT = (0, 1, 2, 5, 10, 20)


def equal_weights_factor(sizes: Sequence[int]) -> float:
    """N/(m·n₍₁₎): how many times as large equal weights make the noise of an average.

    >>> equal_weights_factor([10, 10]), equal_weights_factor([30, 10])
    (1.0, 2.0)
    """
    return sum(sizes) / (len(sizes) * min(sizes))


def party_section(
    sizes: Sequence[int] | None,
    served: Mapping[str, Mapping[str, Any]],
    strategies: Mapping[str, str],
    *,
    counted: str,
    where: str = "",
    whose: str = "",
) -> Section:
    """All about the parties of a simulation.

    Args:
        sizes: How many records each has; None if that was not kept.
        served: By setting, ``per_party`` of its result.
        strategies: By setting, the name of its strategy.
        counted: What the sizes are numbers of.
        where: At which budget and seed it is told how well parties are served.
        whose: Of which run, or seed, the sizes are.
    """
    figures, tables, words = [], [], []
    if sizes and len(sizes) > 1:
        figures.append(size_figure(sizes, counted=counted))
        tables.append(cost_table(sizes, counted=counted))
        words.append(
            f"{whose}{len(sizes)} parties hold {sum(sizes)} {counted} to train on, the smallest "
            f"{min(sizes)}. Where an average of models gives every party the same weight, the "
            "noise must hide a record of the smallest party, which changes the average most."
        )
    figure = served_figure(served, strategies, where=where)
    if figure is not None:
        figures.append(figure)
        words.append(PARTIES)
    return Section(
        id="parties",
        title="Parties",
        words=tuple(words),
        figures=tuple(figures),
        tables=tuple(tables),
    )


def size_figure(sizes: Sequence[int], *, counted: str) -> Figure:
    """Parties from the largest to the smallest."""
    ordered = sorted(sizes, reverse=True)
    points = tuple(
        Point(
            x=float(place + 1),
            y=float(ordered[place]),
            text=f"party {place + 1} by size: {ordered[place]} {counted}",
        )
        for place in thinned(len(ordered))
    )
    wide = ordered[0] > 20 * ordered[-1]
    return Figure(
        id="party-sizes",
        title=f"{counted.capitalize()} of each party, largest first",
        description=f"{len(ordered)} parties, from {ordered[0]} to {ordered[-1]} {counted}; half "
        f"of them have no more than {median(ordered):g}.",
        x=Axis(title="party, by size", whole=True),
        y=Axis(title=counted, logarithmic=wide, switch=ordered[-1] > 0),
        curves=(Curve(name=counted, colour=0, points=points),),
    )


def cost_table(sizes: Sequence[int], *, counted: str) -> Table:
    """What equal weights pay for the smallest party, and what they would pay without it."""
    ordered = sorted(sizes)
    rows = []
    for left in _LEFT_OUT:
        kept = ordered[left:]
        if not kept:
            break
        factor = equal_weights_factor(kept)
        rows.append(
            (
                Cell(text=str(left), value=left),
                Cell(text=str(len(kept)), value=len(kept)),
                Cell(text=str(sum(kept)), value=sum(kept)),
                Cell(text=str(kept[0]), value=kept[0]),
                Cell(text=f"{factor:.3g}", value=factor),
            )
        )
    return Table(
        id="smallest-party",
        title="Noise of an average of models with equal weights, as a multiple of the noise with "
        "weights in proportion to the records",
        columns=("smallest parties left out", "parties", counted, "smallest", "times the noise"),
        numeric=(True,) * 5,
        rows=tuple(rows),
    )


def served_figure(
    served: Mapping[str, Mapping[str, Any]], strategies: Mapping[str, str], *, where: str
) -> Figure | None:
    """How well each party is served, worst first: one curve for every setting.

    Args:
        served: By setting, ``per_party`` of its result.
        strategies: By setting, the name of its strategy.
        where: At which budget and seed.
    """
    metric, on = next(((each["metric"], each["on"]) for each in served.values()), ("", ""))
    known = {
        name: sorted(value for value in each["values"] if value is not None)
        for name, each in served.items()
        if (each["metric"], each["on"]) == (metric, on)  # others are not to be compared
    }
    known = {name: values for name, values in known.items() if values}
    if not known:
        return None
    percent = metric == "accuracy"
    style = styles({name: strategies[name] for name in known})
    curves = []
    for name, values in known.items():
        colour, mark, dashed = style[name]
        points = tuple(
            Point(
                x=float(place + 1),
                y=values[place],
                text=f"{name}, party {place + 1} of {len(values)}: "
                f"{_value(values[place], percent)}",
            )
            for place in thinned(len(values), most=40)
        )
        curves.append(Curve(name=name, colour=colour, mark=mark, dashed=dashed, points=points))
    least = {name: values[0] for name, values in known.items()}
    return Figure(
        id="parties-served",
        title=f"{'Accuracy' if percent else 'RMSE'} of each party on its own {on} records{where}",
        description=f"Parties by {metric}, lowest first, one curve for each of {len(known)} "
        f"settings. The lowest value of each: "
        f"{'; '.join(f'{name} {_value(value, percent)}' for name, value in least.items())}.",
        x=Axis(title=f"party, by {metric}", whole=True),
        y=Axis(title=metric, percent=percent),
        curves=tuple(curves),
    )


def _value(value: float, percent: bool) -> str:
    return f"{100 * value:.1f} %" if percent else f"{value:.4g}"
