"""Hostile resumes: what was edited between the start of a release and its end."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from fedpriv._toml import to_toml
from fedpriv.data import DataError, read_table
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.ledger import Ledger
from fedpriv.simulations.experiment.file import read_experiment
from fedpriv.simulations.experiment.records import data
from fedpriv.simulations.run.launch import carry_through, open_session
from fedpriv.simulations.run.ledgers import open_ledger
from fedpriv.simulations.run.session import carry_on
from tests.audit.neighbours import GRADIENTS, Case, table, write

if TYPE_CHECKING:
    from pathlib import Path

HIDDEN = {**GRADIENTS, "sampling_rate": 0.5}


@pytest.mark.parametrize(
    ("said", "instead"),
    [
        ("public_test = false", "public_test = true"),
        ('engine = "vectorized"', 'engine = "local"'),
        ('engine = "vectorized"', 'engine = "sharded"'),
        ("public_test = false", 'public_test = false\nstore = "/other/records"'),
        ('name = "audit"', 'name = "audit"\ntuning = { on = "synthetic" }'),
    ],
    ids=[
        "metrics on records of the table",
        "samples by the seed",
        "sums on their way through Ray",
        "records of another store",
        "a claim about tuning",
    ],
)
def test_a_release_goes_on_with_the_experiment_that_it_began_with(
    said: str, instead: str, tmp_path: Path
) -> None:
    """Keys that its hash leaves out could be edited: what no release may have was published."""
    case = Case(name="edited", strategy=HIDDEN, adjacency="add-remove")
    out, book = tmp_path / "out", tmp_path / "own.ledger"
    study = write(case, table("binary"), tmp_path / "data")
    begun = open_session(
        read_experiment(study), out=out, release=True, ledger=book, new_ledger=True
    )
    with open_ledger(begun) as ledger:
        assert carry_on(begun, ledger=ledger, stop=lambda: True) is None
    config = out / "config.toml"
    written = config.read_text()
    assert said in written
    config.write_text(written.replace(said, instead))
    with pytest.raises(ValueError, match="was changed since the run"):
        carry_through(open_session(None, resume=out, release=True))
    config.write_text("# the same\n" + written)
    done = carry_through(open_session(None, resume=out, release=True))
    assert done is not None
    assert done["accuracy"] is None
    assert "tuning" not in json.loads((out / "result.json").read_text())


@pytest.mark.parametrize("whose", ["another release", "a simulation"])
def test_a_release_goes_on_from_no_round_of_another_run(whose: str, tmp_path: Path) -> None:
    """From such a checkpoint it went on: it paid for the last rounds alone, and stated all."""
    study = write(Case(name="taken", strategy=GRADIENTS), table("binary"), tmp_path / "data")
    book, experiment = tmp_path / "own.ledger", read_experiment(study)
    wide = Budget(epsilon=10, delta=1e-5)
    Ledger.create(book, data_name="clinic", budget=wide, adjacency="replace-one").close()
    real: dict[str, Any] = {"release": True, "ledger": book} if whose == "another release" else {}
    other = open_session(experiment, out=tmp_path / "other", **real)
    with open_ledger(other) as ledger:
        assert carry_on(other, ledger=ledger, stop=lambda: True) is None
    own = open_session(experiment, out=tmp_path / "own", release=True, ledger=book)
    place = tmp_path / "own" / "private" / "checkpoint.npz"
    shutil.copy(tmp_path / "other" / "private" / "checkpoint.npz", place)
    with pytest.raises(ValueError, match="is that of another run"):
        carry_through(own)
    with Ledger.open(book) as ledger:
        assert own.identity.run not in {row.run for row in ledger.rows()}
    place.unlink()
    done = carry_through(own)
    assert done is not None
    with Ledger.open(book) as ledger:
        paid = [row.round for row in ledger.rows() if row.run == done["run"]]
    assert len(paid) == 2 * done["rounds"]  # each reserved and committed


def test_a_schema_that_changes_while_a_release_starts_is_held_to_the_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was checked once and read again: by the second one, a row with a gap was dropped."""
    case = Case(name="raced", strategy=GRADIENTS, data={"test_fraction": 0.0})
    study, known = write(case, table("binary"), tmp_path / "data"), case.schema()

    def edited(path: Any, schema: Any, **options: Any) -> Any:
        return read_table(path, schema.model_copy(update={"missing": "drop"}), **options)

    monkeypatch.setattr(data, "read_table", edited)
    with pytest.raises(DataError, match="missing must not be 'drop'"):
        open_session(
            read_experiment(study),
            out=tmp_path / "out",
            release=True,
            ledger=tmp_path / "own.ledger",
            new_ledger=True,
        )
    assert (tmp_path / "data" / "schema.toml").read_text() == to_toml(known)
