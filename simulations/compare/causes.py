"""Noise, or too little training? What a strategy loses to the exact joint model, taken apart.

Its twin without noise (ε = ∞) lies between the two: the loss of the twin against the exact model is
not due to noise; the loss of a private run against its twin is due to noise alone. Settings that a
rule derives from the budget (`fedpriv.strategies.common.auto`) are the same in the twin as in the
private run. So there is one twin for each budget, and the cost of settings made for noise does not
count as noise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedpriv.simulations.compare.intervals import paired_difference
from fedpriv.simulations.compare.words import CLOSE, above, at, below, budgets, percent, points
from fedpriv.simulations.experiment.catalogue import EXACT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fedpriv.simulations.compare.intervals import Interval
    from fedpriv.simulations.compare.rows import Row
    from fedpriv.simulations.compare.study import Study

_NONE_CLIPPED = 0.0005  # a share of gradients that a table prints as 0.0 %


def noise_or_training(study: Study) -> Iterator[str]:
    """Of every strategy with a twin: what its noise costs, what the rest, and which explains it.

    Where settings follow from the budget there is a twin for every budget, and a sentence.
    """
    exact = study.frame.get(EXACT)
    noisy = {setting.label: setting.rows for setting in study.settings}
    for label, twins in study.twins.items():
        for budget, twin in twins.items():
            private = _compared(noisy.get(label, {}), budget)
            if private or exact is not None:
                yield _sentence(label, twin, exact, private)


def _compared(rows: dict[float, Row], budget: float | None) -> dict[float, Row]:
    """The private rows that a twin is the twin of."""
    return {e: row for e, row in rows.items() if budget in (None, e)}


def _sentence(label: str, twin: Row, exact: Row | None, noisy: dict[float, Row]) -> str:
    prices = {e: paired_difference(twin.values, row.values) for e, row in noisy.items()}
    settings = "" if twin.twin_of is None else f", with its settings of ε = {twin.twin_of:g},"
    if exact is None:
        return f"Noise costs {label} {_price(prices)}, against its twin without noise."
    rest = paired_difference(exact.values, twin.values)
    parts = [f"{label} without noise{settings} {_rest(rest, exact, twin)}"]
    if prices:
        parts.append(f"noise costs it {_price(prices)}: {_verdict(rest, prices)}")
    return f"{'; '.join(parts)}."


def _rest(rest: Interval, exact: Row, twin: Row) -> str:
    """What is lost without any noise, and to what."""
    whom = f"the exact joint model ({percent(exact)})"
    if above(rest, 0):
        return f"is below {whom} by {points(rest)} ({_why(twin)})"
    if below(rest, 0):
        return f"is above {whom} by {points(-rest)}"
    return f"cannot be distinguished from {whom}"


def _why(twin: Row) -> str:
    clipped = twin.mean("clip_fraction")
    if clipped is None and twin.twin_of is not None:
        return "λ is made for noise, or models are averaged, instead of one being fitted"
    if clipped is None:
        return "models are averaged, instead of one being fitted"
    if clipped < _NONE_CLIPPED:
        return "too little training: nothing was clipped"
    return f"too little training, or clipping: {100 * clipped:.1f} % was clipped"


def _price(prices: dict[float, Interval]) -> str:
    dear = [e for e, price in prices.items() if above(price, 0)]
    if not dear:
        return f"nothing that the seeds can show at {_any(prices)}"
    most = max(dear, key=lambda e: prices[e].mean)
    text = f"accuracy at {budgets(dear, prices)} ({at(most, dear)}{points(prices[most])})"
    free = [e for e in prices if e not in dear]
    return text + (
        f" and nothing that the seeds can show at {budgets(free, prices)}" if free else ""
    )


def _any(prices: dict[float, Interval]) -> str:
    return "any ε" if len(prices) > 1 else budgets(list(prices), prices)


def _verdict(rest: Interval, prices: dict[float, Interval]) -> str:
    """Which of the two it is; a loss of less than a point counts as none."""
    noisy, untrained = any(above(price, 0) for price in prices.values()), above(rest, 0)
    quiet = all(below(price, CLOSE) for price in prices.values())
    trained = below(rest, CLOSE)
    if noisy and untrained:
        return "it loses by both"
    if noisy and trained:
        return "it loses by noise"
    if quiet and untrained:
        return "it does not lose by noise"
    if quiet and trained:
        return "it loses less than a point"
    return "the seeds leave open how much of what it loses is noise"
