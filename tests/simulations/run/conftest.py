"""Studies to run: with trials, in a moment, or of a clinic that has a ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

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
