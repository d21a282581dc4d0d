"""Durable files: after a crash or a power failure there is the old content or the new, whole."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

OWNER_ONLY = 0o600


def replace_file(
    path: Path, content: bytes | str, *, mode: int | None = None, locked: bool = False
) -> None:
    """Replace a file atomically and durably: its content and its name are on the disk on return.

    Args:
        path: of the file; its folder must exist.
        content: text is written as UTF-8.
        mode: who may read it, at no moment anyone else; None for what the umask says.
        locked: whether the caller keeps all other writers of the file out. Then what a crash left
            half-written is removed by the next write; else every process has a name of its own
            for it, and two writers cannot mix their bytes.
    """
    temporary = path.with_name(f".{path.name}.{'new' if locked else os.getpid()}")
    temporary.unlink(missing_ok=True)
    try:
        create_file(temporary, content, mode=mode)
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    synchronise(path.parent)  # the new name itself must survive


def create_file(path: Path, content: bytes | str, *, mode: int | None = None) -> None:
    """Write a file that is not there yet; its content is on the disk on return.

    Raises:
        FileExistsError: It is there.
    """
    data = content.encode() if isinstance(content, str) else content
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    descriptor = os.open(path, flags, 0o666 if mode is None else mode)
    with os.fdopen(descriptor, "wb") as file:
        if mode is not None:
            os.fchmod(descriptor, mode)  # whatever the umask
        file.write(data)
        file.flush()
        os.fsync(descriptor)


def synchronise(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
