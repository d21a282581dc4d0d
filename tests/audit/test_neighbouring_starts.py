"""A release that begins with a pretrained model: its start, and its frozen layers, are public.

What is published, what a record moves and the law of the noise, as in `test_neighbouring_files`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv.simulations.run.start import Beginning
from tests.audit.examination import findings
from tests.audit.neighbours import GRADIENTS, Case, table

if TYPE_CHECKING:
    from pathlib import Path

    from tests.audit.laboratory import Laboratory

MLP = {"name": "mlp", "hidden": [3]}
STEPS = {**GRADIENTS, "learning_rate": 0.1}


def _start(laboratory: Laboratory, folder: Path) -> dict[str, Any]:
    """The model section of a run that begins with what was learned from another table."""
    public = Case(name="public", strategy=STEPS, model=MLP)
    watch = laboratory.run(public, table("binary", seed=9), folder)
    assert watch.code == 0
    return {**MLP, "start": str(watch.directory / "model.npz")}


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("frozen", [[], ["dense1"]], ids=["all trained", "frozen"])
def test_a_start_shows_no_record(
    adjacency: str, frozen: list[str], laboratory: Laboratory, tmp_path: Path
) -> None:
    model = {**_start(laboratory, tmp_path / "public"), "frozen": frozen}
    case = Case(name="start", strategy=STEPS, model=model, adjacency=adjacency)
    assert findings(case, laboratory, tmp_path / "runs") == []
    assert (tmp_path / "runs" / "one" / "out" / "result.json").exists()


def test_a_start_that_follows_from_the_records_is_found(
    laboratory: Laboratory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frozen weights by the records, of which there is no noise: the shape alone would not tell."""
    model = {**_start(laboratory, tmp_path / "public"), "frozen": ["dense1"]}
    case = Case(name="start", strategy=STEPS, model=model)
    one = laboratory.run(case, table("binary"), tmp_path / "one")
    with np.load(model["start"]) as start, np.load(one.directory / "model.npz") as released:
        same = start["theta"] == released["theta"]
    assert same.sum() == 3 * 5 + 3  # four features and the intercept, and a bias each
    # A model file without the frozen values at their places could not be used, and is found.
    monkeypatch.setattr(Beginning, "whole", lambda _self, theta: theta)
    other = laboratory.run(case, table("binary"), tmp_path / "other")
    with np.load(other.directory / "model.npz") as released:
        assert released["theta"].size == (~same).sum()
