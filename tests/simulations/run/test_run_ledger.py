"""A run and its ledger: none is made unasked, none is exchanged, and a run has its price."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fedpriv.privacy.ledger import Kind, Ledger
from fedpriv.simulations.run.files import read_checkpoint
from tests.simulations.run.clinic import ROUNDS, Command, released, rows


def stopped(fedpriv: Command, study: Path, book: Path, out: Path, *more: object) -> None:
    """A release that was interrupted after some of its rounds."""
    from fedpriv.federation.strategy.base import SumStrategy

    learn, rounds = SumStrategy.learn, 0

    def few(self: SumStrategy, answer: Any) -> None:
        nonlocal rounds
        if rounds == 2:
            raise ValueError("power cut")
        rounds += 1
        learn(self, answer)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SumStrategy, "learn", few)
        done = released(fedpriv, study, book, out.name, *more)
    assert "power cut" in done.message
    assert (out / "private" / "checkpoint.npz").exists()


# None is made unasked.


def test_a_mistyped_ledger_is_no_fresh_budget(fedpriv: Command, study: Path, book: Path) -> None:
    """It once made one, full."""
    wrong = book.with_name("clinc.ledger")
    done = released(fedpriv, study, wrong, "out")
    assert done.code == 2
    assert "does not exist" in done.message
    assert "Did you mean" in done.message
    assert "clinic.ledger" in "".join(done.err.split())  # a line may end in the path
    assert not wrong.exists()
    assert not (study.parent / "out").exists()


def test_a_new_ledger_is_made_when_told_and_never_over_another(
    fedpriv: Command, study: Path, tmp_path: Path
) -> None:
    path = tmp_path / "new.ledger"
    assert released(fedpriv, study, path, "one", "--new-ledger").code == 0
    with Ledger.open(path, read_only=True) as ledger:
        assert ledger.settings.budget.epsilon == 0.3
        assert ledger.settings.adjacency == "replace-one"
        assert ledger.settings.unit == "record"
        assert ledger.left().share < 1e-6
    before = rows(path)
    done = released(fedpriv, study, path, "more", "--set", "privacy.epsilon=0.2")
    assert done.code == 2
    assert "the ledger is used up" in done.message
    assert "Plan for less" not in done.message  # no plan is small enough
    done = released(fedpriv, study, path, "two", "--new-ledger")
    assert done.code == 2
    assert "exists already" in done.message
    assert rows(path) == before


def test_a_ledger_of_another_unit_is_not_charged(
    fedpriv: Command, study: Path, tmp_path: Path
) -> None:
    path = tmp_path / "parties.ledger"
    done = fedpriv("ledger", "init", path, "--data-name", "clinic", "--epsilon", 2,
                   "--delta", 1e-6, "--unit", "party")  # fmt: skip
    assert done.code == 0, done.err
    before = rows(path)
    done = released(fedpriv, study, path, "out")
    assert done.code == 2
    assert "unit of this ledger is 'party', not 'record'" in done.message
    assert rows(path) == before
    assert not (study.parent / "out").exists()


def test_all_terms_of_a_ledger_that_do_not_fit_are_named_with_the_one_that_would(
    fedpriv: Command, study: Path, tmp_path: Path
) -> None:
    path = tmp_path / "other.ledger"
    made = fedpriv("ledger", "init", path, "--data-name", "clinic", "--epsilon", 2, "--delta", 1e-6,
                   "--unit", "person", "--adjacency", "add-remove")  # fmt: skip
    assert made.code == 0, made.err
    done = released(fedpriv, study, path, "out")
    assert done.code == 2
    for words in (
        "unit of this ledger is 'person', not 'record', and adjacency of this ledger is 'add-rem",
        "Let privacy.unit = 'person' and privacy.adjacency = 'add-remove'",
        "`fedpriv ledger init --unit record --adjacency replace-one`",
    ):
        assert words in done.message


@pytest.mark.parametrize(
    "arguments",
    [("--new-ledger",), ("--release", "--new-ledger"), ("--ledger", "x", "--new-ledger"),
     ("--resume", "out", "--new-ledger")],
)  # fmt: skip
def test_a_new_ledger_is_for_a_first_release(
    fedpriv: Command, study: Path, arguments: tuple[str, ...]
) -> None:
    done = fedpriv("run", study, *arguments)
    assert done.code == 2
    assert "--new-ledger is for the first --release" in done.message


def test_a_link_to_nothing_is_a_ledger_that_was_moved_away(
    fedpriv: Command, study: Path, tmp_path: Path
) -> None:
    link = tmp_path / "link.ledger"
    link.symlink_to(tmp_path / "disk" / "clinic.ledger")
    for more in ((), ("--new-ledger",)):
        done = released(fedpriv, study, link, "out", *more)
        assert done.code == 2
        assert "is a link to" in done.message
    assert not (tmp_path / "disk").exists()


def test_a_run_that_died_before_it_began_leaves_a_ledger_to_use(
    fedpriv: Command, study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object, **__: object) -> None:
        raise ValueError("power cut")

    path = tmp_path / "new.ledger"
    with monkeypatch.context() as patch:
        patch.setattr("fedpriv.simulations.run.session.start", die)
        assert "power cut" in released(fedpriv, study, path, "out", "--new-ledger").message
    assert Kind.RESERVED not in rows(path)
    done = released(fedpriv, study, path, "out", "--new-ledger")
    assert "Leave --new-ledger out" in done.message
    assert released(fedpriv, study, path, "out").code == 0


@pytest.mark.deep
def test_of_two_that_make_one_ledger_one_is_refused(study: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from fedpriv.simulations.cli import main; main()",
               "run", str(study), "--release", "--new-ledger",
               "--ledger", str(tmp_path / "new.ledger")]  # fmt: skip
    runs = [
        subprocess.Popen([*command, "--out", str(tmp_path / name)], stderr=subprocess.PIPE)
        for name in ("one", "two")
    ]
    codes = []
    for run in runs:
        _, error = run.communicate(timeout=300)
        codes.append(run.returncode)
        assert run.returncode == 0 or b"exists already" in error
    assert sorted(codes) == [0, 2]
    assert rows(tmp_path / "new.ledger").count(Kind.COMMITTED) == ROUNDS


# None is exchanged.


def test_a_resumed_run_needs_the_ledger_it_began_with(
    fedpriv: Command, study: Path, book: Path, tmp_path: Path
) -> None:
    """It once made a new one, and the statement said that nothing was spent before."""
    assert released(fedpriv, study, book, "earlier").code == 0
    out = tmp_path / "out"
    stopped(fedpriv, study, book, out)
    moved = book.rename(tmp_path / "moved.ledger")
    done = fedpriv("run", "--resume", out, "--json")
    assert done.code == 2
    assert "with which this run began, is not there" in done.message
    assert not book.exists()
    assert not (out / "result.json").exists()

    fedpriv("ledger", "init", book, "--data-name", "clinic", "--epsilon", 2, "--delta", 1e-6)
    done = fedpriv("run", "--resume", out, "--json")
    assert done.code == 2
    assert "not the ledger with which the run began" in done.message
    assert rows(book) == [Kind.CREATED, Kind.COMPOSITION]
    done = fedpriv("run", "--resume", out, "--ledger", moved, "--json")
    assert "--ledger must be" in done.message  # two ledgers that claim to be this one
    book.unlink()

    assert fedpriv("run", "--resume", out, "--ledger", moved, "--json").code == 0
    statement = json.loads((out / "statement.json").read_text())
    assert statement["ledger"]["spent_before_epsilon"] == pytest.approx(0.3, rel=1e-6)
    with Ledger.open(moved) as ledger:
        ledger.verify()
        assert [row.kind for row in ledger.rows()].count(Kind.COMMITTED) == 2 * ROUNDS


def test_a_moved_ledger_stays_where_it_was_found(
    fedpriv: Command, study: Path, book: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    stopped(fedpriv, study, book, out)
    other = tmp_path / "other.ledger"
    fedpriv("ledger", "init", other, "--data-name", "clinic", "--epsilon", 2, "--delta", 1e-6)
    moved = book.rename(tmp_path / "moved.ledger")
    done = fedpriv("run", "--resume", out, "--ledger", other, "--json")
    assert "not the ledger with which the run began" in done.message
    assert json.loads((out / "private" / "run.json").read_text())["ledger"] == str(book)
    (tmp_path / "link.ledger").symlink_to(moved)
    assert fedpriv("run", "--resume", out, "--ledger", tmp_path / "link.ledger").code == 0
    assert json.loads((out / "private" / "run.json").read_text())["ledger"] == str(moved)


def test_an_older_copy_of_the_ledger_is_not_gone_on_with(
    fedpriv: Command, study: Path, book: Path, tmp_path: Path
) -> None:
    """Whether from before the run, or from before its last release."""
    before = Path(shutil.copy(book, tmp_path / "before"))
    assert released(fedpriv, study, book, "earlier").code == 0
    out = tmp_path / "out"
    stopped(fedpriv, study, book, out)
    newest = book.rename(tmp_path / "newest")
    shutil.copy(before, book)
    done = fedpriv("run", "--resume", out)
    assert "or a copy from before its last release" in done.message
    # One that has the start of the run, and not its second round.
    book.unlink()
    checkpoint = read_checkpoint(out / "private" / "checkpoint.npz")
    identity = json.loads((out / "private" / "run.json").read_text())
    with Ledger.open(newest, read_only=True) as ledger:
        for mark in (checkpoint, identity):
            assert ledger.hash_of(mark["ledger_rows"]) == mark["ledger_head"]
    cut(newest, book)
    done = fedpriv("run", "--resume", out)
    assert "or a copy from before its last release" in done.message
    book.unlink()
    newest.rename(book)
    assert fedpriv("run", "--resume", out).code == 0


def cut(newest: Path, older: Path) -> None:
    """The ledger as it was a few rows ago: what a backup would be."""
    import sqlite3
    from contextlib import closing

    shutil.copy(newest, older)
    with closing(sqlite3.connect(older, isolation_level=None)) as connection:
        (count,) = connection.execute("SELECT COUNT(*) FROM rows").fetchone()
        connection.execute("DROP TRIGGER keep")
        connection.execute("DELETE FROM rows WHERE rowid > ?", (count - 3,))
        connection.execute(
            "UPDATE head SET rows = ?, hash = (SELECT hash FROM rows WHERE rowid = ?)",
            (count - 3, count - 3),
        )


def test_a_finished_run_needs_no_ledger(fedpriv: Command, study: Path, book: Path) -> None:
    done = released(fedpriv, study, book, "out")
    book.unlink()
    assert fedpriv("run", "--resume", study.parent / "out", "--json").json() == done.json()
    assert not book.exists()


# What a ledger has no price for.


def test_a_run_without_a_price_is_refused_before_anything_is_written(
    fedpriv: Command, study: Path, book: Path
) -> None:
    study.write_text(
        study.read_text().replace("[privacy]", "[model]\nl2 = 0.1\n[privacy]")
        .replace("gradient-perturbation", "objective-perturbation")
        .replace(f"rounds = {ROUNDS}\n", "")
    )  # fmt: skip
    before = rows(book)
    done = released(fedpriv, study, book, "out")
    assert done.code == 2
    assert "gdp composition cannot price approximate releases" in done.message
    assert rows(book) == before == [Kind.CREATED, Kind.COMPOSITION]
    assert not (study.parent / "out").exists()
    # A ledger that is made for the run has the rule that the run fits.
    assert released(fedpriv, study, book.with_name("n.ledger"), "new", "--new-ledger").code == 0
