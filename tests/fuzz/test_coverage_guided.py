"""Coverage-guided fuzzing of every reader, by atheris, where it is installed: `make stress`.

`FEDPRIV_FUZZ_SECONDS` says for how long each.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.readers import READERS

ROOT = Path(__file__).parents[2]
SECONDS = int(os.environ.get("FEDPRIV_FUZZ_SECONDS", "20"))

pytestmark = [
    pytest.mark.deep,
    pytest.mark.skipif(
        importlib.util.find_spec("atheris") is None,
        reason="atheris is not installed: pip install fedpriv[fuzz]",
    ),
]


def _fuzzed(name: str, folder: Path, seconds: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.fuzz.driver", name, folder, str(seconds)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=10 * seconds + 300,
        check=False,
    )


@pytest.mark.parametrize("name", READERS)
def test_no_bytes_break_a_reader(name: str, tmp_path: Path) -> None:
    done = _fuzzed(name, tmp_path, SECONDS)
    found = [each.read_bytes() for each in tmp_path.glob("finding-*")]
    assert done.returncode == 0, f"{found!r}\n{done.stderr[-3000:]}"
    assert found == []
    assert "number_of_executed_units" in done.stderr


def test_a_reader_that_breaks_is_found(tmp_path: Path) -> None:
    """The driver has teeth: of a roster it is told to allow nothing, and says which bytes."""
    code = (
        "import sys; from dataclasses import replace; from pathlib import Path\n"
        "from tests.fuzz import driver, readers\n"
        "readers.READERS['roster'] = replace(readers.READERS['roster'], errors=())\n"
        "driver.main('roster', Path(sys.argv[1]), 30)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=600,
        check=False,
    )
    assert done.returncode != 0
    assert list(tmp_path.glob("finding-*"))
