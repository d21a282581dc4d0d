"""Writing off a ledger: nothing is left, by whatever rule it adds up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget, BudgetExceeded
from fedpriv.privacy.events import ApproximateEvent, GaussianEvent, PureEvent
from fedpriv.privacy.ledger import Ledger
from fedpriv.privacy.ledger.write_off import write_off

if TYPE_CHECKING:
    from pathlib import Path

    from fedpriv.privacy.events import Event

REPLACE_ONE = Adjacency.REPLACE_ONE
SMALL: dict[str, tuple[Event, ...]] = {
    "gdp": (GaussianEvent(relative_noise=1e4, adjacency=REPLACE_ONE),),
    "rdp": (GaussianEvent(relative_noise=1e4, adjacency=REPLACE_ONE),),
    "basic": (
        PureEvent(epsilon=1e-4, adjacency=REPLACE_ONE),
        ApproximateEvent(epsilon=1e-12, delta=1e-9, adjacency=REPLACE_ONE),
    ),
}
PURE = PureEvent(epsilon=1e-4, adjacency=REPLACE_ONE)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 50.0])
@pytest.mark.parametrize(
    ("composition", "delta"),
    [("gdp", 1e-6), ("rdp", 1e-6), ("basic", 1e-6), ("basic", 0.0), ("auto", 1e-6)],
)
@pytest.mark.parametrize("used", [True, False], ids=["used", "unused"])
def test_no_release_is_admitted_after_it(
    tmp_path: Path, composition: str, delta: float, epsilon: float, used: bool
) -> None:
    budget = Budget(epsilon=epsilon, delta=delta)
    with Ledger.create(
        tmp_path / "clinic.ledger",
        data_name="clinic",
        budget=budget,
        adjacency="replace-one",
        composition=composition,
    ) as ledger:
        small = SMALL.get(composition, (PURE,))[: 1 if delta == 0 else None]
        for number, event in enumerate(small if used else ()):
            ledger.reserve(event, run="earlier", round=number)
        spent = write_off(ledger, run="written-off")
        assert spent.left.share <= 1e-11
        assert ledger.verify().spent == spent
        for event in small:
            with pytest.raises(BudgetExceeded):
                ledger.reserve(event, run="later", round=0)
        assert write_off(ledger, run="again") == spent  # and twice is once
