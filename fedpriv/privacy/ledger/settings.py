"""Settings of a ledger: fixed when it is created, recorded in its first row."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.ledger.choice import require_composition
from fedpriv.privacy.ledger.errors import LedgerMismatch
from fedpriv.privacy.unit import Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The data set, its budget, and how spend adds up.

    Attributes:
        data_name: what the owner calls the data set.
        budget: of the data set, over all runs.
        adjacency: of every event that the ledger charges.
        unit: of every event that the ledger charges: whose privacy the budget is for.
        composition: gdp, basic or rdp, in full in the next row; or auto: left to the first charge.
        salt_hash: SHA-256 of the secret salt of the data's fingerprint.
        version: of the fedpriv that created the ledger.
    """

    data_name: str
    budget: Budget
    adjacency: Adjacency
    unit: Unit
    composition: str
    salt_hash: str
    version: str

    def __post_init__(self) -> None:
        require_name(data_name=self.data_name)
        object.__setattr__(self, "adjacency", Adjacency(self.adjacency))
        object.__setattr__(self, "unit", Unit(self.unit))
        require_composition(self.composition, self.budget)

    @property
    def terms(self) -> str:
        """What the budget protects, and which data sets it compares, in words."""
        return f"{self.unit.words}, {self.adjacency.value}"

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values; `settings_from_dict` inverts it."""
        return asdict(self)


def settings_from_dict(values: dict[str, Any]) -> Settings:
    """Read back what `Settings.to_dict` wrote.

    A ledger created before units existed names none, and is for records: no other release could be
    made then. The same holds for the events in its rows.
    """
    return Settings(**{"unit": Unit.RECORD, **values, "budget": Budget(**values["budget"])})


def require_terms(
    own: Settings, *, adjacency: Adjacency | str | None, unit: Unit | str | None
) -> None:
    """Refuse a ledger whose unit or adjacency is not that of a run; names all differences."""
    whose = own.unit if unit is None else Unit(unit)
    relation = own.adjacency if adjacency is None else Adjacency(adjacency)
    asked = {"unit": (own.unit, whose), "adjacency": (own.adjacency, relation)}
    wrong = {key: pair for key, pair in asked.items() if pair[0] != pair[1]}
    if not wrong:
        return
    differing = ", and ".join(
        f"{key} of this ledger is {had.value!r}, not {wanted.value!r}"
        for key, (had, wanted) in wrong.items()
    )
    keys = " and ".join(f"privacy.{key} = {had.value!r}" for key, (had, _) in wrong.items())
    both = (
        "whoever is in the data then loses at most what both ledgers say together, of a guarantee "
        f"for {own.unit.words} and one for {whose.words}"
        if own.adjacency is relation
        else "neither of the two then tells the whole loss of whoever is in the data"
    )
    raise LedgerMismatch(
        f"{differing}: fixed for the life of a data set, because guarantees of two kinds do not "
        f"add up. Let {keys} (in a deployment, of its budget); or make a ledger of its own, with "
        f"`fedpriv ledger init --unit {whose.value} --adjacency {relation.value}`: {both}."
    )


def require_name(**parameters: object) -> None:
    """Refuse a name that is not 1 to 200 printable characters."""
    for name, value in parameters.items():
        if not (isinstance(value, str) and 1 <= len(value) <= 200 and value.isprintable()):
            raise ValueError(f"{name} must be 1 to 200 printable characters, got {value!r}.")
