"""Describe, fit, sign: what a consortium does first, in real processes on one federation.

Three parties, TLS, node keys, answers masked in active mode: a description of their tables, then a
linear regression with intervals, each paid for by every party, signed, and verified offline. It is
linear because that is one exchange; a logistic fit, of a dozen, is in `test_deployed_inference`.
"""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

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
    from pathlib import Path

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
    """How long somebody stays follows from age and dose, nearly."""
    rng = np.random.default_rng(seed)
    age, dose = rng.uniform(0, 100, size), rng.uniform(0, 10, size)
    stay = SLOPES["age"] * age + SLOPES["dose"] * dose + 2 + rng.normal(0, SPREAD, size)
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["age", "dose", "stay"])
        rows.writerows(np.stack([age, dose, stay], axis=1).round(3).tolist())


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
    ) as made:
        fates.patience(made.server.root, attempts=3, seconds=60.0)
        yield made


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
    describe: dict[str, Any] = {"name": "describe", "bins": 16, **ONLY}
    described = signed_run(live, live.written("clinics", strategy=describe, model={"l2": None}))
    told = json.loads((described / "statistics.json").read_text())
    assert set(told["columns"]) == {"age", "dose", "stay"}
    held = [folder.root / "records.csv" for folder in live.parties]
    tables = np.concatenate([np.genfromtxt(path, delimiter=",", names=True) for path in held])
    for name in tables.dtype.names or ():
        column = told["columns"][name]
        assert abs(column["mean"] - tables[name].mean()) < 5 * column["mean_error"] + 1e-5

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
