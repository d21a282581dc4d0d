"""What a run leaves behind at its end: the row of a simulation in a ledger tells of no record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedpriv.privacy.budget import Budget
from fedpriv.privacy.ledger import Kind, Ledger
from fedpriv.simulations.experiment.file import read_experiment
from fedpriv.simulations.run.launch import carry_through, open_session
from tests.audit.neighbours import OBJECTIVE, Case, table, write

if TYPE_CHECKING:
    from pathlib import Path

    from tests.audit.neighbours import Row


def noted(case: Case, rows: list[Row], folder: Path) -> tuple[dict[str, Any], int]:
    """What the ledger has of a simulation, and how many rounds that had."""
    study, book = write(case, rows, folder), folder / "own.ledger"
    Ledger.create(
        book,
        data_name="clinic",
        budget=Budget(epsilon=1.0, delta=1e-5),
        adjacency=case.adjacency,
    ).close()
    result = carry_through(open_session(read_experiment(study), out=folder / "out", ledger=book))
    assert result is not None
    with Ledger.open(book, read_only=True) as ledger:
        (row,) = (row for row in ledger.export()["rows"] if row["kind"] == Kind.SIMULATED)
    return row["detail"], result["rounds"]


def test_the_row_of_a_simulation_tells_no_number_that_follows_from_records(tmp_path: Path) -> None:
    case, rows = Case(name="fit", strategy=OBJECTIVE, adjacency="add-remove"), table("binary")
    whole, rounds = noted(case, rows, tmp_path / "whole")
    for number in range(len(rows)):  # until a record that leaves changes the number of rounds
        rest = [*rows[:number], *rows[number + 1 :]]
        left, others = noted(case, rest, tmp_path / str(number))
        assert left == whole
        if others != rounds:
            return
    raise AssertionError("no record decides how many rounds there are: the test shows nothing")
