"""A folder in which somebody has left packages with the names of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

OURS = ("simulations", "fedpriv", "strategies", "flwr", "ray", "numpy", "torch", "multiprocessing")
MARK = "planted-code-ran"


def plant(folder: Path) -> Path:
    """Plant packages that leave a mark in the folder when they are imported; where the mark is."""
    folder.mkdir(parents=True, exist_ok=True)
    mark = folder / MARK
    for name in OURS:
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(
            f"import sys\nwith open({str(mark)!r}, 'a') as mark:\n"
            f"    mark.write({name!r} + ' in ' + ' '.join(sys.orig_argv) + '\\n')\n"
        )
    return mark


def ran(mark: Path) -> str:
    """What was imported by whom; empty if nothing was."""
    return mark.read_text() if mark.exists() else ""
