"""docs/scale.md: its commands run, and what they train is the model of the table itself."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv._toml import to_toml
from fedpriv.simulations.engines import sharded
from tests.federation.engines.workforces import Workers
from tests.simulations.experiment.records.test_sharding import table

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

PAGE = Path(__file__).parents[3] / "docs" / "scale.md"
__all__ = ["table"]  # a fixture


def test_the_commands_of_the_page_run_and_agree(
    fedpriv: Callable[..., Any],
    table: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    asked: list[dict[str, Any]] = []

    def hire(**options: Any) -> Workers:
        asked.append(options)
        return Workers(workers=options["workers"] or 2)

    monkeypatch.setattr(sharded, "RaySession", hire)
    study = {
        "data": {"path": "visits.csv", "schema": "visits.toml"},
        "strategy": {"name": "gradient-perturbation", "rounds": 2},
    }
    Path("study.toml").write_text(to_toml(study))
    assert fedpriv("run", "study.toml", "--out", "table").code == 0
    models = [np.load("table/model.npz")["theta"]]
    lines = [line.partition("#")[0] for line in PAGE.read_text().splitlines()]
    commands = [shlex.split(line) for line in lines if line.startswith("    fedpriv ")]
    assert len(commands) == 8
    for number, (_program, *arguments) in enumerate(commands):
        out = ["--out", f"run-{number}"] if arguments[0] == "run" else []
        done = fedpriv(*arguments, *out)
        assert done.code == 0, done.err
        if out:
            models.append(np.load(f"run-{number}/model.npz")["theta"])
        elif Path("study.store").exists() and not Path("shared").exists():
            shutil.copytree("study.store", "shared/study.store")
    assert len(models) == 4
    for model in models[1:]:
        np.testing.assert_array_equal(model, models[0])
    assert asked == [{"address": None, "workers": 8}, {"address": "auto", "workers": None}]
