"""Backup of a member: a party's ledger and state, or the server's ledgers and runs, at one moment.

What is in it follows from what `restore` does with it: every run that was open is left for good. So
no protocol state is copied, no answer, no draw and no channel key, which would be secrets in a
second place. Of a party's state there is what it must not forget: which runs it has joined, and the
roster that it has accepted. Of the server's runs there are those with a result, whole, and of the
others that there were. With ``keys`` the member's keys, certificates and settings are copied as
well. Records never are.

A party is held while it is copied: no message is handled meanwhile. Its ledger is copied by SQLite,
log included, after its chain of hashes was checked, and its state keeps the head that was copied:
what the party answers later, it knows to be newer.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedpriv.federation.deployed.journal import Journal, LedgerMark
from fedpriv.federation.deployed.policy import read_party
from fedpriv.privacy.ledger import Ledger
from fedpriv.simulations.deploy.backups.archive import Archive, write_archive
from fedpriv.simulations.deploy.federation import read_federation
from fedpriv.simulations.deploy.folders import PartyFolder
from fedpriv.simulations.deploy.members.epochs import pinned_text
from fedpriv.simulations.deploy.run.submission import result_of
from fedpriv.simulations.run.files import PRIVATE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fedpriv.simulations.deploy.folders import ServerFolder

LEDGERS, RUNS, HOME = "ledgers", "runs", "home"
IDENTITY = f"{PRIVATE}/run.json"
_SETTINGS = (".toml", ".key", ".pub", ".crt", ".secret", ".json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """A ledger in a backup.

    Attributes:
        name: Of its file.
        rows: How many it has.
        head: The hash of the last one: kept elsewhere, it shows later which backup is the newest.
    """

    name: str
    rows: int
    head: str


def back_up(
    folder: ServerFolder | PartyFolder, output: Path, *, keys: bool = False
) -> tuple[Copied, ...]:
    """Write the backup of a member to a new file; which ledgers are in it.

    Raises:
        ValueError: There is nothing to back up, the file exists, or the ledger is older than the
            state beside it, so that it would be no backup.
        LedgerError: The ledger does not hold together.
    """
    if isinstance(folder, PartyFolder):
        archive, copied = _party(folder, keys=keys)
    else:
        archive, copied = _server(folder, keys=keys)
    write_archive(output, archive)
    return copied


def _party(folder: PartyFolder, *, keys: bool) -> tuple[Archive, tuple[Copied, ...]]:
    file = read_party(folder.policy)
    journal = Journal(file.state)
    if not file.ledger.exists():
        raise ValueError(
            f"{str(file.ledger)!r} is not there: a party without answers has nothing to back up, "
            "and one with answers must put it back first."
        )
    with journal.held(), _opened(file.ledger) as ledger:
        mark = journal.ledger
        if mark is not None and ledger.hash_of(mark.rows) != mark.head.hex():
            raise ValueError(
                f"{str(file.ledger)!r} is older than the state directory beside it, or another "
                "one: such a backup would have forgotten what was spent."
            )
        data, copied = _copied(ledger, file.ledger)
        journal.mark(LedgerMark.of(ledger))
        joined = journal.joined
    archive = Archive(
        role="party",
        name=file.name,
        facts={"joined": joined, "roster": pinned_text(file.state)},
        parts={
            f"{LEDGERS}/{copied.name}": data,
            **(dict(_home(folder.root)) if keys else {}),
        },
    )
    return archive, (copied,)


def _server(folder: ServerFolder, *, keys: bool) -> tuple[Archive, tuple[Copied, ...]]:
    """Runs first: a ledger that is newer than they are knows all that they do."""
    parts, copied = dict(_runs(folder.runs)), []
    for path in sorted(folder.root.glob("*.ledger")):
        with _opened(path) as ledger:
            data, each = _copied(ledger, path)
        parts[f"{LEDGERS}/{path.name}"] = data
        copied.append(each)
    if not copied:
        raise ValueError(f"{str(folder.root)!r} has no ledger yet: there is nothing to back up.")
    if keys:
        parts.update(_home(folder.root))
        for beside in (folder.nodes, folder.rosters):
            if beside.is_dir():
                parts.update(_home(beside, under=f"{HOME}/{beside.name}"))
    name = read_federation(folder.federation).name
    return Archive(role="server", name=name, facts={}, parts=parts), tuple(copied)


def _runs(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Finished runs, which never change, and of the others what makes them known."""
    for run in sorted(folder.iterdir()):
        files = [run / IDENTITY] if result_of(run) is None else sorted(run.rglob("*"))
        for path in files:
            if path.is_file() and not path.is_symlink():
                yield f"{RUNS}/{path.relative_to(folder).as_posix()}", path.read_bytes()


def _home(root: Path, *, under: str = HOME) -> Iterator[tuple[str, bytes]]:
    """Keys, certificates, roster and settings in a directory."""
    for path in sorted(root.iterdir()):
        if path.is_file() and path.suffix in _SETTINGS and not path.is_symlink():
            yield f"{under}/{path.name}", path.read_bytes()


def _opened(path: Path) -> Ledger:
    """A ledger that holds together."""
    ledger = Ledger.open(path)
    try:
        ledger.verify()
    except BaseException:
        ledger.close()
        raise
    return ledger


def _copied(ledger: Ledger, place: Path) -> tuple[bytes, Copied]:
    with tempfile.TemporaryDirectory(dir=place.parent) as folder:  # nowhere else need be writable
        path = Path(folder) / place.name
        ledger.copy_to(path)
        with Ledger.open(path, read_only=True) as copy:  # others may have added rows since
            copied = Copied(name=place.name, rows=copy.length, head=copy.head)
        return path.read_bytes(), copied
