"""Result directories: whole files or none, and states that come back as they were."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedpriv.simulations.run.files import (
    new_directory,
    read_checkpoint,
    read_json,
    write_checkpoint,
    write_json,
    write_metrics,
)


def test_a_state_comes_back_to_the_bit(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    state: dict[str, Any] = {
        "theta": rng.normal(size=5),
        "round": np.int64(7),
        "nested": {"moments": [rng.integers(9, size=(2, 3)), 0.1 + 0.2], "none": None, "name": "ε"},
        "empty": np.empty(0),
    }
    write_checkpoint(tmp_path / "c.npz", state)
    back = read_checkpoint(tmp_path / "c.npz")
    np.testing.assert_array_equal(back["theta"], state["theta"])
    np.testing.assert_array_equal(back["nested"]["moments"][0], state["nested"]["moments"][0])
    assert back["nested"]["moments"][1] == 0.1 + 0.2
    assert back["round"] == 7
    assert back["nested"]["name"] == "ε"
    assert back["nested"]["none"] is None
    assert back["empty"].shape == (0,)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut short", b"not an archive"])
def test_a_damaged_checkpoint_is_refused_with_a_remedy(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "c.npz").write_bytes(content)
    with pytest.raises(ValueError, match="Remove it to start the run from its first round"):
        read_checkpoint(tmp_path / "c.npz")


def test_nothing_in_a_checkpoint_is_executed(tmp_path: Path) -> None:
    np.savez(tmp_path / "c.npz", state=np.array([print], dtype=object))
    with pytest.raises(ValueError, match="changed or damaged"):
        read_checkpoint(tmp_path / "c.npz")


def test_metrics_are_the_same_in_both_formats(tmp_path: Path) -> None:
    rows: list[dict[str, float | None]] = [
        {"round": 1, "loss": 0.1 + 0.2, "accuracy": None},
        {"round": 2, "loss": 1e-17},
    ]
    write_metrics(tmp_path, rows)
    assert json.loads((tmp_path / "metrics.json").read_text()) == rows
    with (tmp_path / "metrics.csv").open() as file:
        read = list(csv.DictReader(file))
    assert [float(row["loss"]) for row in read] == [0.1 + 0.2, 1e-17]
    assert read[0]["accuracy"] == ""


def test_not_a_number_is_never_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "x.json", {"accuracy": float("nan")})
    assert not (tmp_path / "x.json").exists()


def test_a_damaged_result_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(ValueError, match="changed or damaged"):
        read_json(tmp_path / "x.json")
    with pytest.raises(ValueError, match="cannot be read"):
        read_json(tmp_path / "missing.json")


def test_every_run_gets_a_directory_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = {new_directory("my/../study", "0123456789abcdef") for _ in range(3)}
    assert len(made) == 3
    assert all(path.is_dir() and path.parts[0] == "results" for path in made)
    assert all(path.resolve().is_relative_to(tmp_path / "results") for path in made)


def test_results_are_never_mixed_with_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    assert new_directory("x", "h", out=tmp_path / "old") == tmp_path / "old"
    (tmp_path / "old" / "result.json").write_text("{}")
    with pytest.raises(ValueError, match="--resume"):
        new_directory("x", "h", out=tmp_path / "old")
    with pytest.raises(ValueError, match="cannot be made"):
        new_directory("x", "h", out=tmp_path / "old" / "result.json" / "below")
