"""Restore of a member from a backup: its ledger and state together; no run can be resumed.

Guarantee. After a restore all answers that a party ever gave, and all that it will give, cost its
records at most its budget, if one of these holds (`fedpriv.simulations.deploy.backups.newest`):

(a) the directory holds the end of the backup, in its ledger or state, and is not itself a copy of
    an earlier day; what was answered since would be seen there, and the backup be refused;
(b) the head that the operator names is the latest that anybody has seen;
(c) ``lost``: always. What the lost ledger paid for was within what the backup has left, all of
    which is charged.

No run that the member took part in goes on: seats are closed for good, answers, draws and protocol
state are gone, and a run that the ledger knows is not answered any more. So no release that was
begun before the backup gets a second draw of noise, and no second set of survivors is signed for.
What was reserved and not finished counts as spent. The same holds for the server's ledgers, runs
and evaluations; there what is taken up again would draw the server's noise again.

*Not covered.* Two members put back from one backup, or one beside the member that is thought lost:
each keeps to the budget and knows nothing of the other. For secure aggregation the two are one
colluding party; for the budget they are two. And whether (a) or (b) is true, no file can tell.

Every step leaves a state in which nothing is answered that was not paid for, so that a restore
which was interrupted is repeated.
"""

from __future__ import annotations

import json
import re
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpriv._durable import create_file, replace_file
from fedpriv.federation.deployed.journal import Journal
from fedpriv.federation.deployed.policy import read_party
from fedpriv.simulations.deploy.backups.archive import read_archive
from fedpriv.simulations.deploy.backups.backup import HOME, IDENTITY, LEDGERS, RUNS
from fedpriv.simulations.deploy.backups.newest import Seen, made_ready
from fedpriv.simulations.deploy.federation import read_federation
from fedpriv.simulations.deploy.folders import PartyFolder, ServerFolder, member_folder
from fedpriv.simulations.deploy.keys import PRIVATE_FILE, private_folder
from fedpriv.simulations.deploy.members.epochs import has_accepted, pin_again
from fedpriv.simulations.deploy.processes import processes
from fedpriv.simulations.deploy.run.closed import EVALUATION, close_run, drop_evaluation
from fedpriv.simulations.deploy.run.submission import result_of
from fedpriv.simulations.run.files import PRIVATE, read_checkpoint, read_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fedpriv.simulations.deploy.backups.archive import Archive
    from fedpriv.simulations.deploy.backups.newest import Assurance, Ready

_SEAT = re.compile(r"[0-9a-f]{64}")


def restore(source: Path, target: Path, assurance: Assurance) -> tuple[str, ...]:
    """Put a backup back into the directory of its member; what was done, a sentence each.

    Raises:
        ValueError: The backup is older than what was seen, of another member, or the operator has
            to decide; no ledger and no state was changed.
        LedgerError: The ledger in it does not hold together, or is of another budget.
    """
    archive = read_archive(source)
    _settle(archive, target)
    folder = member_folder(target)
    if any(process.alive for process in processes(folder)):
        raise ValueError(f"{str(target)!r} has processes that run: `fedpriv deploy stop` it first.")
    if isinstance(folder, PartyFolder):
        return _party(archive, folder, assurance)
    return _server(archive, folder, assurance)


def _party(archive: Archive, folder: PartyFolder, assurance: Assurance) -> tuple[str, ...]:
    """Runs are left before the ledger is exchanged; its end is kept when it is in its place."""
    file = read_party(folder.policy)
    _require_own(archive, role="party", name=file.name)
    ((_, data),) = archive.under(LEDGERS)
    joined = [run for run in archive.facts["joined"] if _SEAT.fullmatch(run)]
    journal = Journal(file.state)
    with journal.held(), ExitStack() as stack:
        mark, seen = journal.ledger, []
        if mark is not None:
            seen.append(Seen(where="the state directory", rows=mark.rows, head=mark.head.hex()))
        ready = made_ready(
            data,
            file.ledger,
            seen=seen,
            assurance=assurance,
            stack=stack,
            terms=file.terms,
        )
        if ready.stays and mark is not None:
            raise ValueError(
                f"{str(file.ledger)!r} has all that the backup has, and the state directory agrees "
                "with it: nothing is lost, and nothing was changed."
            )
        pin_again(file.state, str(archive.facts.get("roster", "")))
        journal.leave(*joined, ledger=ready.end)
        ready.exchange()
        journal.mark(ready.end)
    said = [*ready.said, "every run that this party took part in was closed for good"]
    if not has_accepted(file.state):
        said.append(
            "which roster was accepted is lost: ask another party for its fingerprint, and run "
            "`fedpriv deploy accept` again"
        )
    return tuple(said)


def _server(archive: Archive, folder: ServerFolder, assurance: Assurance) -> tuple[str, ...]:
    """Runs are closed before a ledger is exchanged. With every ledger intact, only lost ones."""
    _require_own(archive, role="server", name=read_federation(folder.federation).name)
    with ExitStack() as stack:
        ready: list[Ready] = []
        for name, data in archive.under(LEDGERS):
            path = folder.root / Path(name).name
            seen = tuple(_seen_by_runs(folder, path))
            ready.append(made_ready(data, path, seen=seen, assurance=assurance, stack=stack))
        intact = all(each.stays for each in ready)
        there = {run.name for run in folder.runs.iterdir()} if intact else set()
        for name, data in archive.under(RUNS):
            path = folder.runs / name
            if not path.exists() and path.name != EVALUATION:
                private_folder(path.parent)
                create_file(path, _moved(data, folder) if name.endswith(IDENTITY) else data)
        said = [sentence for each in ready for sentence in each.said]
        for run in sorted(folder.runs.iterdir()):
            if result_of(run) is None and run.name not in there:
                close_run(run, "it was open when the server was put back from a backup.")
                said.append(f"run {run.name} was not finished, and is closed for good")
            if run.name not in there and drop_evaluation(run):
                said.append(f"an evaluation of run {run.name} was not finished, and is given up")
        for each in ready:
            each.exchange()
    return tuple(said)


def _seen_by_runs(folder: ServerFolder, ledger: Path) -> Iterator[Seen]:
    """How far the ledger was when runs began, at their latest checkpoints and at their ends.

    A run that has a result, and whose evaluations all have one, has paid for nothing after its last
    mark. Of another one, cancelled or not, nobody knows.
    """
    for run in sorted(folder.runs.iterdir()):
        begun = read_json(run / IDENTITY) if (run / IDENTITY).exists() else {}
        if Path(str(begun.get("ledger"))).name != ledger.name:  # it may have been moved since
            continue
        finished = result_of(run) is not None and not (run / PRIVATE / EVALUATION).exists()
        for note in (begun, *_later_notes(run)):
            if note.get("ledger_head") is not None:
                yield Seen(
                    where=f"run {run.name}",
                    rows=note["ledger_rows"],
                    head=note["ledger_head"],
                    end=finished,
                )


def _later_notes(run: Path) -> Iterator[dict[str, Any]]:
    """What a run and its evaluations noted of the ledger after they had paid."""
    if (checkpoint := run / PRIVATE / "checkpoint.npz").exists():
        yield read_checkpoint(checkpoint)
    if (statement := run / "statement.json").exists():
        at_end = read_json(statement)["ledger"] or {}
        yield {f"ledger_{name}": value for name, value in at_end.items()}
    for path in sorted(run.glob("evaluation-*.json")):
        note = read_json(path)
        if "ledger_rows" in note:
            yield note


def _settle(archive: Archive, target: Path) -> None:
    """Write the keys and settings of the backup where there is no member; nothing is replaced."""
    settings = dict(archive.under(HOME))
    if not settings or (target / "party.toml").exists() or (target / "federation.toml").exists():
        return
    for name, data in settings.items():
        path = target / name
        private_folder(path.parent)
        replace_file(path, data, mode=PRIVATE_FILE)
    if archive.role == "server":
        (target / RUNS).mkdir(exist_ok=True)


def _require_own(archive: Archive, *, role: str, name: str) -> None:
    if (archive.role, archive.name) != (role, name):
        raise ValueError(
            f"the backup is of {archive.role} {archive.name!r}, and the directory of {role} "
            f"{name!r}."
        )


def _moved(data: bytes, folder: ServerFolder) -> bytes:
    """What makes a run known, in the directory that it is now in."""
    values = json.loads(data)
    if values.get("ledger") is not None:
        values["ledger"] = str(folder.root / Path(values["ledger"]).name)
    return json.dumps(values, indent=2).encode()
