"""Schema and table files, read from disk, or kept in memory while the files are unchanged.

For a process that forks a copy of itself for every task: no copy needs to read the files again.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import get_context
from time import time_ns
from typing import TYPE_CHECKING

from fedpriv.data.errors import DataError
from fedpriv.data.tables.columns import read_columns
from fedpriv.data.tables.magnitudes import read_magnitudes
from fedpriv.data.tables.schema import read_schema
from fedpriv.data.tables.table import read_table

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from pathlib import Path

    from fedpriv.data.dataset import Dataset
    from fedpriv.data.tables.schema import Schema

_TICK = 2 * 10**9  # ns: the coarsest clock of a file system that is in use


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """The version of a file: once it is `settled`, any later edit changes one of these fields.

    Not covered: a program that changes the file in memory (mmap), until the system writes it back;
    a network disk that shows an old state of the file.

    Attributes:
        path: Its path.
        device: Its disk.
        inode: Changes if the file is replaced.
        size: In bytes.
        modified: The time of the last write, in ns; the writer may set it back.
        changed: The time of the last change of any kind, in ns; nobody can set this.
    """

    path: Path
    device: int
    inode: int
    size: int
    modified: int
    changed: int

    @classmethod
    def of(cls, path: Path) -> Version | None:
        """The current version of a file; None if the file is not accessible."""
        try:
            status = path.stat()
        except OSError:
            return None
        return cls(
            path=path,
            device=status.st_dev,
            inode=status.st_ino,
            size=status.st_size,
            modified=status.st_mtime_ns,
            changed=status.st_ctime_ns,
        )

    @property
    def settled(self) -> bool:
        """Whether the next edit is certain to get a later timestamp, on any file system."""
        return time_ns() - self.changed > _TICK


class Files:
    """Reads schema and table files anew on every call."""

    __slots__ = ()

    def schema(self, path: Path) -> Schema:
        """The schema in a file; `DataError` says what is wrong with it."""
        return read_schema(path)

    def table(self, path: Path, *, schema: Path) -> Dataset:
        """All records of a table, or none; `DataError` says what is wrong with it."""
        return read_table(path, self.schema(schema), empty=True)[0]

    def columns(self, path: Path, *, schema: Path) -> Dataset:
        """The columns of a table as codes, to describe the records that a roster counts.

        Read anew on every call.
        """
        return read_columns(path, self.schema(schema), empty=True, tested=False)

    def magnitudes(self, path: Path, *, schema: Path, names: tuple[str, ...]) -> Dataset:
        """Columns of numbers without bounds as codes, of the same records. Read on every call."""
        return read_magnitudes(path, self.schema(schema), names, empty=True, tested=False)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class KeptFiles(Files):
    """Schema and table kept in memory; read anew when their files have changed.

    Attributes:
        data: The version of the table when it was read; None if there was none.
        layout: The version of its schema.
        kept_schema: The schema; None if it could not be read.
        kept_table: The records; None if they could not be read.
    """

    data: Version | None = None
    layout: Version | None = None
    kept_schema: Schema | None = None
    kept_table: Dataset | None = None

    def schema(self, path: Path) -> Schema:
        """The schema in a file."""
        if self.kept_schema is not None and Version.of(path) == self.layout:
            return self.kept_schema
        return Files.schema(self, path)

    def table(self, path: Path, *, schema: Path) -> Dataset:
        """All records of a table."""
        if self.kept_table is not None and self.holds(path, schema=schema):
            return self.kept_table
        return Files.table(self, path, schema=schema)

    def holds(self, path: Path, *, schema: Path) -> bool:
        """Whether these files are unchanged since they were read, or could not be."""
        return (Version.of(path), Version.of(schema)) == (self.data, self.layout)


def keep(path: Path, *, schema: Path) -> KeptFiles:
    """Keep a table, read by another process, and its schema. What cannot be read is not kept.

    Nor is a file that was edited a moment ago: its next edit might go undetected.

    Readers start threads, and a fork of a process with threads may wait for a lock that none of its
    own threads will ever release. Here no threads are started.
    """
    data, layout = Version.of(path), Version.of(schema)
    if not all(version is None or version.settled for version in (data, layout)):
        return KeptFiles()
    description = None
    with suppress(DataError, OSError):
        description = read_schema(schema)
    table = None if description is None else _read_elsewhere(path, description)
    if (data, layout) != (Version.of(path), Version.of(schema)):
        return KeptFiles()  # edited meanwhile: it is unknown which version was read
    return KeptFiles(data=data, layout=layout, kept_schema=description, kept_table=table)


def _read_elsewhere(path: Path, schema: Schema) -> Dataset | None:
    """The records of a table, or None; a later reader gets the error."""
    fork = get_context("fork")
    receiver, sender = fork.Pipe(duplex=False)
    reader = fork.Process(target=_send, args=(sender, path, schema))
    reader.start()
    sender.close()
    dataset: Dataset | None = None
    with receiver, suppress(EOFError, OSError):  # the other process was killed, or halfway through
        dataset = receiver.recv()
    reader.join()
    reader.close()
    if dataset is None:
        return None
    # Made again: arrays that come out of a pipe are not read-only.
    return replace(dataset, train=replace(dataset.train), test=replace(dataset.test))


def _send(sender: Connection, path: Path, schema: Schema) -> None:
    dataset = None
    with suppress(DataError, OSError, MemoryError):
        dataset = read_table(path, schema, empty=True)[0]
    sender.send(dataset)
