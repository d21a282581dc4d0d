"""A clinic: its schema, a release of its study, and the rows of its ledger."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedpriv.privacy.ledger import Ledger

Command = Callable[..., Any]

ROUNDS = 4
SCHEMA = """
label = "ill"
positive = "yes"
party = "clinic"

[columns.age]
kind = "number"
min = 0
max = 120

[columns.ill]
kind = "category"
values = ["yes", "no"]

[columns.clinic]
kind = "category"
values = ["a", "b"]
"""


def released(fedpriv: Command, study: Path, book: Path, name: str, *more: object) -> Any:
    out = study.parent / name
    return fedpriv("run", study, "--release", "--ledger", book, "--out", out, "--json", *more)


def rows(path: Path) -> list[str]:
    with Ledger.open(path, read_only=True) as ledger:
        return [row.kind for row in ledger.rows()]
