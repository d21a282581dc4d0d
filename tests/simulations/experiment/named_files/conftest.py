"""A user's own file, with a strategy in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.simulations.experiment.named_files.guests import EXPERIMENT, STRATEGY

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(STRATEGY)
    path = tmp_path / "study.toml"
    path.write_text(EXPERIMENT)
    return path
