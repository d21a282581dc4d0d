"""Records from a function of a user's own: in simulations, and in no release."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv.data import Dataset
from fedpriv.simulations.experiment.file import parse_experiment
from fedpriv.simulations.experiment.records.own_data import own_data
from fedpriv.simulations.run.prepare import prepare
from fedpriv.simulations.run.release_rules import require_releasable
from fedpriv.simulations.run.summary import simulate

if TYPE_CHECKING:
    from pathlib import Path

    from tests.simulations.conftest import Command

CODE = """
import numpy as np
from fedpriv.data import load

def blobs():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 400)
    X = rng.normal(size=(400, 3)) / 4
    X[:, 0] += y - 0.5
    return {"X": X, "y": y, "party": np.repeat(["north", "south"], 200), "max_norm": 5.0}

def ready():
    return load("synthetic")

def digits_of_three():
    rng = np.random.default_rng(0)
    return {"X": rng.normal(size=(60, 2)), "y": rng.integers(4, 7, 60)}

def numbers():
    rng = np.random.default_rng(0)
    return {"X": rng.normal(size=(60, 2)), "y": rng.normal(size=60)}

def wrong():
    return [1, 2]

def failing():
    return {}["X"]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "own.py"
    path.write_text(CODE)
    return path


def experiment(file: Path, name: str, **data: Any) -> Any:
    return parse_experiment(
        {
            "data": {"name": f"{file}:{name}", **data},
            "model": {"l2": 0.01},
            "strategy": {"name": "gradient-perturbation", "rounds": 3},
        }
    )


def test_arrays_become_a_data_set_with_their_parties(file: Path) -> None:
    result = simulate(experiment(file, "blobs"))
    assert result["data"] == "own.py:blobs"
    assert (result["parties"], result["records"] > 250) == (2, True)
    assert result["accuracy"] > 0.8
    assert [guest["kind"] for guest in result["guests"]] == ["data"]


@pytest.mark.parametrize(
    ("name", "task", "classes"),
    [
        ("blobs", "binary", ("0", "1")),
        ("digits_of_three", "multiclass", ("4", "5", "6")),
        ("numbers", "regression", ()),
    ],
)
def test_the_task_follows_from_the_labels(
    file: Path, name: str, task: str, classes: tuple[str, ...]
) -> None:
    found = own_data(f"{file}:{name}", None)
    assert (found.task, found.classes) == (task, classes)


def test_a_data_set_is_taken_as_it_is(file: Path) -> None:
    found = own_data(f"{file}:ready", None)
    assert isinstance(found, Dataset)
    assert found.name == "synthetic:logistic"
    assert prepare(experiment(file, "ready", partition="iid", parties=5)).task.parties == 5


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("wrong", "must return a Dataset of fedpriv.data, or a dictionary"),
        ("failing", r"own.py:failing, line \d+ .*KeyError"),
        ("np", "must be a function"),
    ],
)
def test_what_is_no_data_set_is_refused(file: Path, name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        own_data(f"{file}:{name}", None)


def test_a_release_takes_no_records_from_a_function(
    fedpriv: Command, file: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=r"--release takes no records from a function.*a schema"):
        require_releasable(experiment(file, "blobs"))
    (tmp_path / "own.toml").write_text(
        '[data]\nname = "own.py:blobs"\n[strategy]\nname = "gradient-perturbation"\nrounds = 2\n'
    )
    ledger = tmp_path / "l.ledger"
    done = fedpriv("run", tmp_path / "own.toml", "--release", "--ledger", ledger, "--new-ledger")
    assert done.code == 2
    assert not ledger.exists()


def test_changed_code_is_not_answered_from_what_was_kept(file: Path) -> None:
    first = prepare(experiment(file, "blobs"), keep=True)
    file.write_text(CODE.replace("/ 4", "/ 8"))
    second = prepare(experiment(file, "blobs"), keep=True)
    assert not np.array_equal(first.data.dataset.train.X[:5], second.data.dataset.train.X[:5])
