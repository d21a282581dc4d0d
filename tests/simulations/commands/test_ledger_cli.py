"""`fedpriv ledger`, as a person and as a script would use it."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import typer
from click.testing import Result
from typer.testing import CliRunner

from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import GaussianEvent
from fedpriv.privacy.ledger import Cost, Kind, Ledger
from fedpriv.simulations.commands import ledger as command

EVENT = GaussianEvent(relative_noise=10.0, adjacency=Adjacency.REPLACE_ONE)


def fedpriv(*arguments: object) -> Result:
    app = typer.Typer()
    app.callback()(lambda: None)
    command.register(app)
    return CliRunner().invoke(app, ["ledger", *map(str, arguments)])


def fedpriv_json(*arguments: object) -> Any:
    done = fedpriv(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "clinic.ledger"
    done = fedpriv("init", path, "--data-name", "clinic", "--epsilon", 1, "--delta", 1e-6)
    assert done.exit_code == 0, done.output
    with Ledger.open(path) as ledger:
        ledger.commit(ledger.reserve(EVENT, run="first [run]", round=0), b"release")
        ledger.reserve(EVENT, run="first [run]", round=1)
        ledger.declare("second", [(EVENT, 1)])
        ledger.record_simulation("study", {"seed": 1})
    return path


def test_init_makes_a_ledger_as_asked(tmp_path: Path) -> None:
    path = tmp_path / "new.ledger"
    printed = fedpriv_json(
        "init", path, "--data-name", "clinic", "--epsilon", 2, "--delta", 1e-7,
        "--adjacency", "replace-one", "--composition", "gdp",
    )  # fmt: skip
    with Ledger.open(path, adjacency="replace-one") as ledger:
        assert printed["head"] == ledger.head
        assert ledger.settings.composition == "gdp"
    assert printed["budget"] == {"epsilon": 2.0, "delta": 1e-7}
    assert printed["unit"] == "record"
    assert printed["data"] == {"name": "clinic", "fingerprint": None}
    assert printed["left"]["share"] == 1.0


def test_show_lists_runs_and_what_is_left(path: Path) -> None:
    printed = fedpriv_json("show", path)
    assert [run["run"] for run in printed["runs"]] == ["first [run]", "second", "study"]
    assert [run["simulated"] for run in printed["runs"]] == [False, False, True]
    assert printed["composition"]["mode"] == "gdp"
    with Ledger.open(path) as ledger:
        assert printed["spent"]["epsilon"] == ledger.spent().guarantee.epsilon
        assert printed["left"]["share"] == ledger.left().share
    text = fedpriv("show", path).stdout
    for part in ("first [run]", "1 of 2", "as declared", "never: simulated", "gdp composition"):
        assert part in text
    assert f"{100 * printed['left']['share']:.1f} %" in text


def test_the_bar_shrinks_as_the_budget_is_spent(tmp_path: Path) -> None:
    path = tmp_path / "new.ledger"
    fedpriv("init", path, "--data-name", "clinic", "--epsilon", 1, "--delta", 1e-6)
    bars = []
    for number in range(6):
        (line,) = [x for x in fedpriv("show", path).stdout.splitlines() if x.startswith("left:")]
        bars.append(line.count("━"))
        with Ledger.open(path) as ledger:
            if number < 5:
                ledger.reserve(EVENT, run="run", round=number)
    assert bars[0] == command.BAR_WIDTH
    assert bars == sorted(bars, reverse=True)
    assert len(set(bars)) == 6


def test_verify_recomputes_the_spend_and_prints_the_head(path: Path) -> None:
    printed = fedpriv_json("verify", path)
    with Ledger.open(path) as ledger:
        assert printed["head"] == ledger.head
        assert printed["epsilon"] == pytest.approx(ledger.spent().guarantee.epsilon)
    again = fedpriv("verify", path, "--head", printed["head"])
    assert again.exit_code == 0
    assert f"row {printed['rows']}" in again.stdout


def test_verify_fails_with_status_1_and_names_the_row(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DROP TRIGGER fixed")
        connection.execute("UPDATE rows SET amount = 0 WHERE rowid = 3")
    done = fedpriv("verify", path, "--json")
    assert done.exit_code == 1
    printed = json.loads(done.stdout)
    assert (printed["valid"], printed["row"]) == (False, 3)
    text = fedpriv("verify", path)
    assert text.exit_code == 1
    assert "NOT VALID: row 3" in text.stdout


def test_verify_fails_if_the_expected_head_is_not_there(path: Path) -> None:
    done = fedpriv("verify", path, "--head", "00" * 32)
    assert done.exit_code == 1
    assert "rolled back" in done.stdout


def test_a_head_that_is_no_hash_is_bad_input(path: Path) -> None:
    assert isinstance(fedpriv("verify", path, "--head", "0dd3").exception, ValueError)


def test_verify_fails_with_status_1_for_a_damaged_file(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:8192])
    done = fedpriv("verify", path, "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["valid"] is False


def test_show_ends_with_status_1_if_more_than_the_budget_was_spent(path: Path) -> None:
    """It takes a forged file: a ledger never lets it happen."""
    assert fedpriv("show", path).exit_code == 0
    with Ledger.open(path) as ledger, ledger._store.writing():
        ledger._store.append(
            ledger._store.tail(), kind=Kind.SIMULATED, run="x", detail="{}", cost=Cost(amount=9.0)
        )
    assert fedpriv("show", path).exit_code == 1


def test_export_prints_every_row_and_no_secret(path: Path) -> None:
    printed = fedpriv_json("export", path)
    with Ledger.open(path) as ledger:
        salt = ledger._store.salt()
        assert printed == json.loads(json.dumps(ledger.export()))
    text = fedpriv("export", path).stdout
    assert len(text.splitlines()) == len(printed["rows"])
    assert printed["head"] in text
    assert salt.hex() not in json.dumps(printed) + text


@pytest.mark.parametrize("name", ["show", "verify", "export"])
def test_a_missing_or_foreign_file_is_bad_input(tmp_path: Path, name: str) -> None:
    """`fedpriv` turns a ValueError into its message and exit status 2."""
    foreign = tmp_path / "notes.txt"
    foreign.write_text("not a ledger " * 100)
    for path in (tmp_path / "none", foreign, tmp_path):
        assert isinstance(fedpriv(name, path).exception, ValueError)


@pytest.mark.parametrize(
    "options",
    [
        ("--epsilon", -1, "--delta", 1e-6),
        ("--epsilon", 1, "--delta", 1),
        ("--epsilon", 1, "--delta", 0, "--composition", "gdp"),
        ("--epsilon", 1, "--delta", 1e-6, "--composition", "gpd"),
    ],
)
def test_init_refuses_bad_budgets_and_makes_no_file(
    tmp_path: Path, options: tuple[object, ...]
) -> None:
    path = tmp_path / "new.ledger"
    done = fedpriv("init", path, "--data-name", "clinic", *options)
    assert isinstance(done.exception, ValueError)
    assert not path.exists()


def test_init_never_overwrites(path: Path) -> None:
    before = fedpriv_json("export", path)
    done = fedpriv("init", path, "--data-name", "other", "--epsilon", 9, "--delta", 1e-6)
    assert isinstance(done.exception, ValueError)
    assert fedpriv_json("export", path) == before


def test_a_ledger_is_made_for_a_unit_and_says_so_wherever_it_is_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "parties.ledger"
    made = fedpriv(
        "init", path, "--data-name", "clinics", "--epsilon", 2, "--delta", 1e-7, "--unit", "party"
    )
    assert "all records of one party, replace-one" in made.output
    assert fedpriv_json("show", path)["unit"] == "party"
    assert fedpriv_json("verify", path)["unit"] == "party"
    assert fedpriv_json("export", path)["settings"]["unit"] == "party"
    assert "all records of one party, replace-one" in " ".join(fedpriv("show", path).output.split())
    assert "(all records of one party, replace-one)" in fedpriv("verify", path).output
    wrong = fedpriv("init", tmp_path / "x", "--data-name", "x", "--epsilon", 1, "--delta", 0,
                    "--unit", "household")  # fmt: skip
    assert wrong.exit_code == 2
