"""Bounds, describe, fit, sign: what a consortium does first, in real processes on one federation.

Three parties, TLS, node keys, answers masked in active mode: a description of their tables, then a
linear regression with intervals, each paid for by every party, signed, and verified offline. It is
linear because that is one exchange; a logistic fit, of a dozen, is in `test_deployed_inference`.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv._toml import to_toml
from fedpriv.federation.deployed.policy import read_party
from fedpriv.simulations.deploy.run.jobs.statement_file import read_statement
from fedpriv.simulations.run.release_outcome import DESCRIBED_FILES, FILES, SIGNED
from fedpriv.simulations.server_app import FAILURE
from tests.federation.deployed.prices import charged
from tests.simulations.deploy import fates
from tests.simulations.deploy.conftest import NAMES
from tests.simulations.deploy.standing import Standing, standing, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fedpriv.simulations.experiment.file import Experiment
    from tests.simulations.conftest import Command

SCHEMA = """\
label = "stay"
[columns.stay]
kind = "number"
min = 0
max = 20
[columns.age]
kind = "number"
min = 0
max = 100
[columns.dose]
kind = "number"
min = 0
max = 10
"""
SLOPES = {"age": 0.1, "dose": 0.5}  # days per year, days per unit
SPREAD = 0.3
ONLY = {"rounds": None, "clip": None, "learning_rate": None}


def write(path: Path, size: int, seed: int) -> None:
    """How long somebody stays follows from age and dose, nearly; no schema describes a weight."""
    rng = np.random.default_rng(seed)
    age, dose = rng.uniform(0, 100, size), rng.uniform(0, 10, size)
    stay = SLOPES["age"] * age + SLOPES["dose"] * dose + 2 + rng.normal(0, SPREAD, size)
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["age", "dose", "stay", "weight"])
        weight = rng.uniform(40, 120, size)
        rows.writerows(np.stack([age, dose, stay, weight], axis=1).round(3).tolist())


@pytest.fixture(scope="module")
def live() -> Iterator[Standing]:
    with standing(
        NAMES,
        schema=SCHEMA,
        write=write,
        strategies=["describe", "inference"],
        queries=["statistics", "moments"],
        max_clip=2.0,
        min_noise=1e-6,
        by_party=True,
        suggest_bounds=["weight"],
    ) as made:
        fates.patience(made.server.root, attempts=3, seconds=60.0)
        yield made


def own_tables(live: Standing) -> list[Any]:
    """What the parties hold, which only a test sees together."""
    paths = [folder.root / "records.csv" for folder in live.parties]
    return [np.genfromtxt(path, delimiter=",", names=True) for path in paths]


def paid(live: Standing) -> list[int]:
    """How many releases each party has paid for."""
    return [len(live.reserved(folder)) for folder in live.parties]


def signed_run(live: Standing, experiment: Experiment) -> Path:
    """The directory of a run that every party signed."""
    directory = live.begin(experiment).directory
    assert live.end(directory) is not None, (directory / FAILURE).read_text()
    wait_until(
        lambda: (
            (directory / SIGNED).exists() and len(read_statement(directory).parties) == len(NAMES)
        ),
        what="signatures of all parties",
    )
    return directory


def test_describe_then_fit_then_a_statement_that_holds(live: Standing, fedpriv: Command) -> None:
    """Of all parties, and of each by itself, with noise of its own."""
    described = signed_run(
        live,
        live.written(
            "clinics",
            strategy={"name": "describe", "bins": 16, "by_party": True, **ONLY},
            privacy={"noise_at": "parties"},
            model={"l2": None},
        ),
    )
    told = json.loads((described / "statistics.json").read_text())
    assert set(told["columns"]) == {"age", "dose", "stay"}
    held = own_tables(live)
    assert list(told["by_party"]) == list(NAMES)
    parts = [told, *told["by_party"].values()]
    for part, table in zip(parts, (np.concatenate(held), *held), strict=True):
        assert part["total"]["count"] == len(table)
        for name, column in part["columns"].items():
            assert abs(column["mean"] - table[name].mean()) < 5 * column["mean_error"] + 1e-5

    fitted = signed_run(
        live,
        live.written(
            "clinics",
            data={"scaling": "divide"},
            strategy={"name": "inference", **ONLY},
            model={"name": "squared", "l2": None},
        ),
    )
    table = json.loads((fitted / "result.json").read_text())["coefficients"]
    rows = {row["name"]: row for row in table["rows"]}
    for name, slope in SLOPES.items():
        # Beyond five standard errors once in 1.7 million times.
        assert abs(rows[name]["estimate"] - slope) < 5 * rows[name]["stderr"]
        assert rows[name]["stderr"] < slope / 5

    for directory, files in ((described, DESCRIBED_FILES), (fitted, FILES)):
        assert {path.name for path in directory.iterdir()} - {"private"} <= {*files, SIGNED}
        verified = fedpriv("verify", directory, "--roster", live.server.roster, "--complete")
        assert verified.code == 0, verified.out
    for folder in live.parties:
        assert len(charged(read_party(folder.policy).ledger)) == 2


@pytest.mark.deep
def test_the_command_tells_of_parties_and_bounds_that_each_of_them_allows(
    live: Standing, fedpriv: Command
) -> None:
    """`fedpriv describe --server`: refused by one party, then of each; and bounds of a column."""
    study = live.root / "study.toml"
    (live.root / "study-schema.toml").write_text(SCHEMA)
    tables: dict[str, Any] = {
        "data": {"schema": "study-schema.toml"},
        "privacy": {"epsilon": 100000.0, "noise_at": "parties"},
        "describe": {"by_party": True, "bins": 16},
        "run": {"secure_aggregation": "active"},
    }
    study.write_text(to_toml(tables))
    described = ("describe", study, "--server", live.server.root)
    before = paid(live)
    live.change(live.parties[-1], policy={"by_party": False})
    refused = fedpriv(*described)
    assert refused.code != 0
    assert "policy.by_party of its own file is false" in refused.message
    assert paid(live) == before

    live.change(live.parties[-1], policy={"by_party": True})
    done = fedpriv(*described, "--json", "--pictures")
    assert done.code == 0, done.message
    told = json.loads(done.out)
    assert list(told["statistics"]["by_party"]) == list(NAMES)
    assert f"{NAMES[-1]}: age" in (Path(told["directory"]) / "statistics.svg").read_text()
    assert paid(live) == [count + 1 for count in before]

    bounds = fedpriv(*described, "--suggest-bounds", "weight")
    assert bounds.code == 0, bounds.message
    assert "[columns.weight]" in bounds.out
    assert "max = 128" in bounds.out
    assert "Tolerates 1 party colluding" in bounds.out
    assert paid(live) == [count + 2 for count in before]
