"""What an audit measured goes into the statement of a run of the same experiment, and no other."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from fedpriv.simulations.audit.audit import audit_experiment
from fedpriv.simulations.experiment.file import read_experiment

if TYPE_CHECKING:
    from pathlib import Path

    from tests.simulations.conftest import Command

EXPERIMENT = """
[data]
name = "synthetic"
parties = 4

[strategy]
name = "gradient-perturbation"
rounds = 1
clip = 0.1

[privacy]
epsilon = 8.0
delta = 1e-5
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "study.toml"
    path.write_text(EXPERIMENT)
    return path


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("audited") / "study.toml"
    path.write_text(EXPERIMENT)
    return audit_experiment(read_experiment(path), runs=30).to_dict()


def written(tmp_path: Path, audit: dict[str, Any]) -> Path:
    path = tmp_path / "audit.json"
    path.write_text(json.dumps(audit))
    return path


def test_a_simulation_and_a_release_state_what_was_measured(
    fedpriv: Command, file: Path, found: dict[str, Any], tmp_path: Path
) -> None:
    audit, bound = written(tmp_path, found), found["epsilon"]
    paid = ("--release", "--ledger", tmp_path / "book.ledger", "--new-ledger")
    for name, more in (("simulated", ()), ("released", paid)):
        out = tmp_path / name
        done = fedpriv("run", file, "--audit", audit, "--out", out, *more)
        assert done.code == 0, done.err
        statement = json.loads((out / "statement.json").read_text())
        told = statement["run"]["audit_epsilon"]
        assert bound - 1e-3 <= told <= bound < statement["guarantee"]["epsilon"]
        assert f"found epsilon >= {told:g}, with a confidence of 95" in " ".join(
            (out / "statement.txt").read_text().split()
        )
        assert (out / "audit.json").exists() == (name == "simulated")
    sections = json.loads((tmp_path / "simulated" / "report.json").read_text())["sections"]
    assert any(section["id"] == "audit" and section["tables"] for section in sections)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"config_hash": "0" * 64}, "is of another experiment"),
        ({"fedpriv": "0.0.0"}, "another version of fedpriv"),
        ({"claimed": {"epsilon": 9.0}}, "is of another experiment"),
        ({"passed": False}, "contradicts the claim"),
        ({"epsilon": None}, "contradicts the claim"),
        ({"confidence": 0.5}, "must have a confidence of 0.95"),
        ({"confidence": "much"}, "is not what `fedpriv audit` wrote"),
        ({"claimed": None}, "is not what `fedpriv audit` wrote"),
    ],
)
def test_an_audit_of_something_else_or_of_a_fault_is_refused(
    fedpriv: Command,
    file: Path,
    found: dict[str, Any],
    tmp_path: Path,
    changed: dict[str, Any],
    message: str,
) -> None:
    audit = written(tmp_path, {**found, **changed})
    done = fedpriv("run", file, "--audit", audit, "--out", tmp_path / "out")
    assert done.code == 2
    assert message in done.message
    assert not (tmp_path / "out").exists()


def test_a_run_that_is_resumed_has_the_audit_it_began_with(
    fedpriv: Command, file: Path, found: dict[str, Any], tmp_path: Path
) -> None:
    audit = written(tmp_path, found)
    assert fedpriv("run", file, "--out", tmp_path / "out").code == 0
    done = fedpriv("run", "--resume", tmp_path / "out", "--audit", audit)
    assert done.code == 2
    assert "--audit is for a new run" in done.message
