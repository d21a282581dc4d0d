"""The guarantee of a report in plain words: what (ε, δ) means for one who is in the data.

An attacker who knows everything but whether the unit is one way or the other, and sees the whole
release, says "yes" at most e^ε times as often, plus δ, when it is so as when it is not. Hence the
rate of right accusations is above that of false ones by at most (e^ε − 1 + 2δ)/(e^ε + 1) (Kairouz,
Oh and Viswanath 2015). Both are rounded up.
"""

from __future__ import annotations

from math import exp
from typing import TYPE_CHECKING

from fedpriv.privacy.rounding import rounded_up
from fedpriv.privacy.tradeoff import attack_advantage
from fedpriv.privacy.unit import neighbours_in_words
from fedpriv.simulations.report.parts import Cell, Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedpriv.privacy.adjacency import Adjacency
    from fedpriv.privacy.unit import Unit

_LARGEST = 50.0  # of ε: beyond it a factor e^ε tells nobody anything


def meaning(
    epsilon: float,
    *,
    delta: float,
    unit: Unit,
    adjacency: Adjacency,
    proved: float | None = None,
) -> str:
    """What (ε, δ) bounds, for a reader who has never met it.

    ``proved`` is a smaller bound on an attacker's advantage, where the law of the noise has one.
    """
    most = advantage(epsilon, delta) if proved is None else rounded_up(proved)
    so = (
        "So" if proved is None else "By the distribution of the noise, which gives a tighter bound,"
    )
    return (
        f"Suppose that an attacker sees everything that is released, and knows all the data except "
        f"for this: "
        f"{neighbours_in_words(unit, adjacency)}. Whatever they look for is at most "
        f"{factor(epsilon)} times as likely with one data set as with the other, plus a "
        f"probability of {rounded_up(delta)}. {so} their rate of true accusations exceeds their "
        f"rate of false ones by at most {most}, where 0 is "
        "blind guessing and 1 is certainty."
    )


def factor(epsilon: float) -> str:
    """e^ε, rounded up.

    >>> factor(1.0)
    '2.719'
    """
    return rounded_up(exp(epsilon)) if epsilon <= _LARGEST else f"e^{rounded_up(epsilon)}"


def advantage(epsilon: float, delta: float) -> str:
    """The advantage of any attacker, rounded up; 1 at most.

    >>> advantage(1.0, 1e-6)
    '0.4622'
    """
    return rounded_up(min(1.0, attack_advantage(epsilon=epsilon, delta=delta)))


def budget_table(budgets: Sequence[tuple[float, float]]) -> Table:
    """What each (ε, δ) of a comparison means."""
    rows = tuple(
        (
            Cell(text=rounded_up(epsilon), value=epsilon),
            Cell(text=rounded_up(delta), value=delta),
            Cell(text=factor(epsilon), value=exp(min(epsilon, _LARGEST))),
            Cell(
                text=advantage(epsilon, delta), value=attack_advantage(epsilon=epsilon, delta=delta)
            ),
        )
        for epsilon, delta in budgets
    )
    return Table(
        id="budgets",
        title="What a budget means; smaller is better",
        columns=("ε", "δ", "times as likely, at most", "attacker's advantage, at most"),
        numeric=(True,) * 4,
        rows=rows,
    )
