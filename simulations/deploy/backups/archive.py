"""Archive of a backup: one file, a tar of named parts, each with its SHA-256.

It is readable by its owner alone. A part is read by its name and held against its hash; nothing is
unpacked, so that no name in an archive is a place on the disk until somebody has chosen one for it.
"""

from __future__ import annotations

import io
import json
import tarfile
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Literal

from fedpriv._durable import OWNER_ONLY, create_file, synchronise
from fedpriv._json import parse_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

Role = Literal["party", "server"]
VERSION = 1
_CONTENTS = "backup.json"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Archive:
    """What a backup holds.

    Attributes:
        role: Of the member.
        name: Of the party, or of the federation whose server it is.
        facts: JSON-ready values, for whoever puts it back.
        parts: Bytes by name, a relative path.
        time: When it was made.
    """

    role: Role
    name: str
    facts: Mapping[str, Any]
    parts: Mapping[str, bytes]
    time: str = ""

    def under(self, folder: str) -> Iterator[tuple[str, bytes]]:
        """The parts in a folder, with their names within it."""
        for name, data in self.parts.items():
            if name.startswith(f"{folder}/"):
                yield name.removeprefix(f"{folder}/"), data


def write_archive(path: Path, archive: Archive) -> None:
    """Write a file that is not there yet; whole and durable on return.

    Raises:
        ValueError: There is a file: a backup replaces none, which may be the newer one.
    """
    contents = {
        "version": VERSION,
        "role": archive.role,
        "name": archive.name,
        "time": datetime.now(tz=UTC).isoformat(timespec="seconds"),
        "facts": dict(archive.facts),
        "parts": {name: sha256(data).hexdigest() for name, data in archive.parts.items()},
    }
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, data in {_CONTENTS: json.dumps(contents).encode(), **archive.parts}.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), OWNER_ONLY
            tar.addfile(entry, io.BytesIO(data))
    try:
        create_file(path, buffer.getvalue(), mode=OWNER_ONLY)
    except FileExistsError:
        raise ValueError(
            f"--output {str(path)!r} exists: a backup replaces no other. Name a new file."
        ) from None
    except OSError as error:
        raise ValueError(f"--output {str(path)!r} cannot be written: {error.strerror}.") from None
    synchronise(path.absolute().parent)


def read_archive(path: Path) -> Archive:
    """Read back what `write_archive` wrote.

    Raises:
        ValueError: It cannot be read, is damaged, or is no backup.
    """
    try:
        with tarfile.open(path, mode="r:") as tar:
            found = {entry.name: _bytes(tar, entry) for entry in tar if entry.isreg()}
        contents = parse_json(found.pop(_CONTENTS))
        hashes, version = contents["parts"], contents["version"]
        archive = Archive(
            role=contents["role"],
            name=contents["name"],
            facts=contents["facts"],
            parts=found,
            time=contents["time"],
        )
    except OSError as error:
        raise ValueError(f"backup {str(path)!r} cannot be read: {error.strerror}.") from None
    except (tarfile.TarError, ValueError, KeyError, TypeError):
        raise ValueError(f"{str(path)!r} is no backup of fedpriv, or is cut short.") from None
    if version != VERSION:
        raise ValueError(
            f"backup {str(path)!r} is of version {version!r}; this fedpriv knows {VERSION}."
        )
    if hashes != {name: sha256(data).hexdigest() for name, data in found.items()}:
        raise ValueError(f"backup {str(path)!r} is damaged or was changed: take another one.")
    for name in found:
        _require_inside(name)
    return archive


def _bytes(tar: tarfile.TarFile, entry: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(entry)
    return b"" if file is None else file.read()


def _require_inside(name: str) -> None:
    """Refuse a name that would be a place outside of the folder that it is written to."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or str(path) != name:
        raise ValueError(f"a backup must not have a part of the name {name!r}.")
