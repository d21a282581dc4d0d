"""`fedpriv data shard`: a store by streaming is the store of records in memory, byte for byte.

And an experiment that names it is the same experiment, with the same model to the bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from typer.testing import CliRunner

from fedpriv.data.store.manifest import Manifest
from fedpriv.data.tables import batches
from fedpriv.simulations.cli import app
from fedpriv.simulations.experiment.file import read_experiment
from fedpriv.simulations.experiment.records import sharding
from fedpriv.simulations.experiment.records.data import party_records
from fedpriv.simulations.experiment.records.stores import write_holding
from fedpriv.simulations.run.launch import open_session
from fedpriv.simulations.run.prepare import person_bounds
from fedpriv.strategies import STRATEGIES
from tests.simulations.engines.shards import trained

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = """
label = "pay"
positive = "high"
party = "town"
person = "who"
[columns.age]
kind = "number"
min = 0
max = 90
[columns.job]
kind = "category"
values = ["clerk", "nurse"]
[columns.pay]
kind = "category"
values = ["low", "high"]
"""
HASHED: dict[str, Any] = {"partition": "hashed", "parties": 3}
FORMS: dict[str, dict[str, Any]] = {
    "natural": {},
    "some parties": {"parties": 3},
    "no test": {"test_fraction": 0.0, "intercept": 0.0},
    "hashed": {**HASHED, "feature_norm": 0.5},
    "iid": {"partition": "iid", "parties": 4, "scaling": "divide"},
    "dirichlet": {"partition": "dirichlet", "parties": 3, "alpha": 0.5, "min_records": 2},
}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """400 records of 90 persons in 4 towns; some are copies of others."""
    rng = np.random.default_rng(1)
    rows = [
        f"{rng.integers(0, 12) * 7},{rng.choice(['clerk', 'nurse'])},t{rng.integers(4)},"
        f"p{rng.integers(90)},{rng.choice(['low', 'high'])}"
        for _ in range(400)
    ]
    (tmp_path / "visits.csv").write_text("\n".join(["age,job,town,who,pay", *rows]) + "\n")
    (tmp_path / "visits.toml").write_text(SCHEMA)
    return tmp_path / "visits.csv"


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "CSV_BYTES", 900)
    monkeypatch.setattr(sharding, "BLOCK_BYTES", 1000)


def study(table: Path, *, named: bool = True, unit: str = "record", **data: Any) -> Any:
    if not named:
        schema = table.with_suffix(".toml")
        schema.write_text(schema.read_text().replace('person = "who"\n', ""))
    return read_experiment(
        {
            "data": {"path": str(table), "schema": str(table.with_suffix(".toml")), **data},
            "model": {"l2": 0.05},
            "strategy": {"name": "gradient-perturbation", "rounds": 3},
            "privacy": {"unit": unit},
            "run": {"seed": 3},
        }
    )


@pytest.mark.parametrize("unit", ["record", "record, no persons", "person"])
@pytest.mark.parametrize("form", FORMS)
def test_a_streamed_store_is_the_store_of_records_in_memory(
    table: Path, tmp_path: Path, form: str, unit: str
) -> None:
    experiment = study(
        table, named=unit != "record, no persons", unit=unit.partition(",")[0], **FORMS[form]
    )
    persons = person_bounds(experiment, STRATEGIES[experiment.strategy.name])
    whole = write_holding(
        tmp_path / "whole", experiment, party_records(experiment, persons=persons), persons
    )
    streamed = sharding.shard(experiment, tmp_path / "streamed")
    assert streamed.arrays == whole.arrays
    assert streamed.facts == whole.facts
    assert streamed.digest == whole.digest
    assert not list(tmp_path.glob(".spool-*"))


def test_an_experiment_that_names_a_store_is_the_same_one(table: Path, tmp_path: Path) -> None:
    experiment = study(table, **HASHED)
    sharding.shard(experiment, tmp_path / "my.store")
    rest = {key: experiment.to_dict()[key] for key in ("model", "strategy", "privacy", "run")}
    mapped = read_experiment({"data": {"path": str(tmp_path / "my.store")}, **rest})
    assert mapped.data.store == str(tmp_path / "my.store")
    assert mapped.config_hash == experiment.config_hash
    expected = trained(experiment.to_dict())
    np.testing.assert_array_equal(trained(mapped.to_dict()), expected)
    again = read_experiment(experiment.to_dict(), [f"data.path={tmp_path / 'my.store'}"])
    assert again.config_hash == experiment.config_hash
    assert again.data == mapped.data


def test_what_a_store_was_not_prepared_for_is_refused(table: Path, tmp_path: Path) -> None:
    experiment = study(table, **HASHED)
    sharding.shard(experiment, tmp_path / "store")
    tables = {**experiment.to_dict(), "data": {"path": str(tmp_path / "store")}}
    for change, reason in (
        ("data.feature_norm=2.0", r"data\.feature_norm must be 1\.0, as the records of the store"),
        ("data.parties=4", r"data\.parties must be 3"),
        ("run.seed=4", r"run\.seed must be 3"),
        ("privacy.unit=person", r"privacy\.unit must be 'record or party'"),
    ):
        with pytest.raises(ValueError, match=reason):
            party_records_of(tables, change)
    party_records_of(tables, "data.public_test=true")  # no record depends on it
    natural = study(table, test_fraction=0.0)
    sharding.shard(natural, tmp_path / "natural")
    tables["data"] = {"path": str(tmp_path / "natural")}
    party_records_of(tables, "run.seed=4")  # nor on the seed, if nothing is drawn


def party_records_of(tables: dict[str, Any], change: str) -> None:
    experiment = read_experiment(tables, [change])
    persons = person_bounds(experiment, STRATEGIES[experiment.strategy.name])
    party_records(experiment, persons=persons)


def test_a_run_is_resumed_with_its_store_and_no_other(table: Path, tmp_path: Path) -> None:
    experiment = study(table, test_fraction=0.0)
    sharding.shard(experiment, tmp_path / "store")
    mapped = read_experiment({**experiment.to_dict(), "data": {"path": str(tmp_path / "store")}})
    session = open_session(mapped, out=tmp_path / "run")
    assert session.identity.data == Manifest.read(tmp_path / "store").digest
    table.unlink()  # the store has all that is needed
    table.with_suffix(".toml").unlink()
    open_session(None, resume=tmp_path / "run")
    (tmp_path / "store").rename(tmp_path / "old")
    with pytest.raises(ValueError, match="is no store that can be read"):
        open_session(None, resume=tmp_path / "run")


def test_the_command_writes_and_checks(table: Path, tmp_path: Path) -> None:
    runner = CliRunner()
    out = str(tmp_path / "store")
    settings = ["--set", "data.partition=hashed", "--set", "data.parties=3"]
    done = runner.invoke(app, ["data", "shard", str(table), out, *settings, "--json"])
    assert done.exit_code == 0, done.output
    assert '"parties": 3' in done.output
    assert runner.invoke(app, ["data", "check", out]).exit_code == 0
    (tmp_path / "store" / "train_y.npy").write_bytes(b"")
    with pytest.raises(ValueError, match="was changed"):
        runner.invoke(app, ["data", "check", out], catch_exceptions=False, standalone_mode=False)
