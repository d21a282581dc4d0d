"""Durable files: after a crash or a power failure, the whole old content or the whole new one."""

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
    """Replace a file atomically and durably: content and name are on disk on return.

    Args:
        path: of the file; its folder must exist.
        content: text is written as UTF-8.
        mode: its permissions, from the first moment on; None for what the umask says.
        locked: whether the caller excludes all other writers of the file. Then the next write
            removes what a crash left half-written; otherwise every process uses its own temporary
            name, so that two writers cannot mix their bytes.
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
    """Write a file that does not exist yet; its content is on disk on return.

    Raises:
        FileExistsError: It exists.
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
    """Wait until a file, or the names in a folder, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
