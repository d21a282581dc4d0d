"""Budget terms of a deployment, the table ``[budget]``: a party's own, and the federation's.

    [budget]
    epsilon = 2.0
    delta = 1e-6
    adjacency = "replace-one"
    unit = "record"
    composition = "rdp"

The same table stands in a party's file, for the ledger of that party, and in the federation file,
for the ledger of the server.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.ledger import Ledger, deployed_composition, fixed_composition
from fedpriv.privacy.unit import DEFAULT_UNIT, Unit

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

KEYS = ("epsilon", "delta", "adjacency", "unit", "composition")


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetTerms:
    """What a ledger is made with, for good.

    Attributes:
        budget: (ε, δ) for all runs that ever use the records.
        adjacency: Which data sets the budget compares.
        unit: Whose privacy the budget is for; a record's, if the table names none.
        composition: By which rule the ledger adds up; if the table names none, that of
            `deployed_composition`, which prices noise at the server, shares at the parties and
            samples alike.
    """

    budget: Budget
    adjacency: Adjacency
    unit: Unit
    composition: str

    def new_ledger(self, path: Path, *, name: str) -> Ledger:
        """A ledger with these terms, of which nothing is spent."""
        return Ledger.create(
            path,
            data_name=name,
            budget=self.budget,
            adjacency=self.adjacency,
            unit=self.unit,
            composition=self.composition,
        )

    def open_ledger(self, path: Path, *, read_only: bool = False) -> Ledger:
        """The ledger at ``path``; `LedgerMismatch` if it was made with other terms."""
        return Ledger.open(
            path,
            budget=self.budget,
            adjacency=self.adjacency,
            unit=self.unit,
            read_only=read_only,
        )


def parse_budget(values: Mapping[str, Any]) -> BudgetTerms:
    """Check a table ``[budget]`` that has every key, but for ``unit`` and ``composition``.

    Raises:
        ValueError: names the key, its value, the rule and the remedy.
    """
    try:
        adjacency = Adjacency(values["adjacency"])
    except ValueError:
        known = " or ".join(repr(each.value) for each in Adjacency)
        raise ValueError(
            f"budget.adjacency must be {known}, got {values['adjacency']!r}."
        ) from None
    stated = values.get("composition")
    if stated is not None and not isinstance(stated, str):
        raise ValueError(f"budget.composition must be text, as in 'rdp', got {stated!r}.")
    try:
        unit = Unit(values.get("unit", DEFAULT_UNIT))
        budget = Budget(epsilon=values["epsilon"], delta=values["delta"])
        chosen = deployed_composition(budget) if stated is None else stated
        fixed_composition(chosen, budget=budget, adjacency=adjacency, unit=unit)
    except (ValueError, TypeError) as error:
        raise ValueError(f"budget.{error}") from None
    return BudgetTerms(budget=budget, adjacency=adjacency, unit=unit, composition=chosen)
