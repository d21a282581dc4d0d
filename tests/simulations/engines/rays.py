"""A run on the real Ray engine, as the command line starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")


def on_ray(file: Path, out: Path, *, mark: str = "", folder: Path = ROOT) -> subprocess.Popen[str]:
    """The process of the run; a mark is in the environment of all that it starts."""
    return subprocess.Popen(
        [Path(sys.executable).parent / "fedpriv", "run", file, "--engine", "ray", "--out", out],
        cwd=folder,
        env={**os.environ, "FEDPRIV_MARK": mark},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
