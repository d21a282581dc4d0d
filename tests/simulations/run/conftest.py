"""Studies to run: with trials, in a moment, or of a clinic that has a ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.simulations.run.clinic import ROUNDS, SCHEMA, Command
from tests.simulations.run.paid_trials import TRIALS
from tests.simulations.run.short_study import SHORT

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def trials_file(tmp_path: Path) -> Path:
    path = tmp_path / "study.toml"
    path.write_text(TRIALS)
    return path


@pytest.fixture
def short_file(tmp_path: Path) -> Path:
    path = tmp_path / "study.toml"
    path.write_text(SHORT)
    return path


@pytest.fixture
def study(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    lines = [
        f"{rng.integers(20, 90)},{('yes', 'no')[i % 3 == 0]},{'ab'[i % 2]},{rng.integers(9)}"
        for i in range(400)
    ]
    (tmp_path / "records.csv").write_text("\n".join(["age,ill,clinic,shoe", *lines]) + "\n")
    (tmp_path / "schema.toml").write_text(SCHEMA)
    path = tmp_path / "study.toml"
    path.write_text(
        '[data]\npath = "records.csv"\nschema = "schema.toml"\n'
        f'[strategy]\nname = "gradient-perturbation"\nrounds = {ROUNDS}\n'
        "[privacy]\nepsilon = 0.3\n"
    )
    return path


@pytest.fixture
def book(fedpriv: Command, tmp_path: Path) -> Path:
    path = tmp_path / "clinic.ledger"
    done = fedpriv("ledger", "init", path, "--data-name", "clinic", "--epsilon", 2,
                   "--delta", 1e-6)  # fmt: skip
    assert done.code == 0, done.err
    return path
