"""What is on a disk: the modes of files, the secrets among them, and all bytes."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def secrets_of(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.suffix in (".key", ".secret")]
