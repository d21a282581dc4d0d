"""Changes of the roster at the coordinator: who is added, expelled, or has new keys.

Each change makes the next epoch, which every party then accepts. None is made while a run is open,
which is bound to its epoch: it could not go on. Each can be repeated after a crash, and two at once
take turns.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fedpriv._durable import replace_file
from fedpriv.simulations.deploy import templates
from fedpriv.simulations.deploy.certificates import fingerprint, read_certificate
from fedpriv.simulations.deploy.federation import read_federation
from fedpriv.simulations.deploy.folders import PartyFolder, server_folder
from fedpriv.simulations.deploy.keys import identity_public, read_identity
from fedpriv.simulations.deploy.members import pending
from fedpriv.simulations.deploy.members.bundles import invitation, read_bundle
from fedpriv.simulations.deploy.members.epochs import accept, require_successor
from fedpriv.simulations.deploy.members.roster import (
    identity_fingerprint,
    read_roster,
    write_roster,
)
from fedpriv.simulations.deploy.members.roster_lock import roster_held
from fedpriv.simulations.deploy.members.rotation import rotation
from fedpriv.simulations.deploy.run.closed import why_closed
from fedpriv.simulations.deploy.thresholds import thresholds_of
from fedpriv.simulations.run.files import PRIVATE

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from fedpriv.simulations.deploy.folders import ServerFolder
    from fedpriv.simulations.deploy.members.roster import Member, Roster


def add(bundles: Iterable[Path], server: Path, *, lost: bool = False) -> Roster:
    """Put parties into the roster that joined, have new keys, or another number of records.

    Args:
        bundles: Of the parties.
        server: The server's directory.
        lost: Whether to take new keys that the old ones have not signed: only if the party itself
            says so, through another channel.

    Raises:
        ValueError: A bundle is not valid, its party is known under other keys, a run is open, or
            no sum would be safe any more.
    """
    folder = server_folder(server)
    name = read_federation(folder.federation).name
    read = [read_bundle(path, federation=name) for path in bundles]
    with roster_held(folder):
        roster = read_roster(folder.roster)
        return _change(folder, roster, *(_row(roster, member, lost=lost) for member in read))


def expel(name: str, server: Path) -> Roster:
    """Expel a party for good; its row stays, and no other one moves.

    Raises:
        ValueError: It is not there, a run is open, or no sum would be safe any more.
    """
    folder = server_folder(server)
    with roster_held(folder):
        roster = read_roster(folder.roster)
        if roster.row(name).expelled == roster.epoch:  # a crash may have come between
            return publish(folder, roster)
        roster.number(name)  # it must be there still
        return _change(folder, roster, replace(roster.row(name), expelled=roster.epoch + 1))


def rotate_server(folder: ServerFolder) -> Roster:
    """Give the server a new identity, signed by the old one; parties change what they pin.

    Raises:
        ValueError: The old identity is not that of the roster, or a run is open.
    """
    with roster_held(folder):
        return _rotated(folder, read_roster(folder.roster))


def _rotated(folder: ServerFolder, roster: Roster) -> Roster:
    if roster.server == pending.pending_identity(folder):  # a crash came between
        return _reinvited(folder, publish(folder, roster))
    old = read_identity(folder.identity)
    if identity_public(old) != roster.server:
        raise ValueError(
            "identity.key is not the one of the roster, which must sign the new one: restore both "
            "from the same backup. If it is lost, the federation is founded anew."
        )
    new = pending.new_identity(folder)
    stated = rotation("", replaced=roster.server, new=new, old=old)
    changed = _change(
        folder,
        roster,
        server=identity_public(new),
        server_rotation=replace(stated, epoch=roster.epoch + 1),
    )
    return _reinvited(folder, changed)


def _reinvited(folder: ServerFolder, roster: Roster) -> Roster:
    """Whoever joins from now on pins the new identity."""
    invited = invitation(read_federation(folder.federation), folder)
    replace_file(folder.invitation, invited.to_toml())
    return roster


def open_runs(folder: ServerFolder) -> tuple[Path, ...]:
    """The directories of runs that were started, and neither finished nor closed."""
    started = (path.parents[1] for path in sorted(folder.runs.glob(f"*/{PRIVATE}/run.json")))
    return tuple(
        each for each in started if not (each / "result.json").exists() and not why_closed(each)
    )


def behind(folder: ServerFolder, roster: Roster) -> tuple[str, ...]:
    """The parties beside the server's directory that have another roster."""
    homes = _beside(folder)
    return tuple(
        home.root.name
        for home in homes
        if not home.roster.exists() or read_roster(home.roster) != roster
    )


def publish(folder: ServerFolder, roster: Roster) -> Roster:
    """Write the roster wherever it is needed."""
    folder.rosters.mkdir(exist_ok=True)
    write_roster(folder.rosters / f"{roster.epoch:04}.toml", roster)
    write_roster(folder.roster, roster)
    pending.install(folder, roster.server, folder.identity)
    present = {f"{member.name}.pub": member.node for member in roster.seats}
    for path in folder.nodes.glob("*.pub"):
        if path.name not in present:
            path.unlink()
    for name, key in present.items():
        (folder.nodes / name).write_text(f"{key}\n")
    for home in _beside(folder):
        with suppress(ValueError):  # `behind` tells
            accept(home, all_epochs(folder), fingerprint=roster.fingerprint)
    text = templates.server_checklist(
        read_federation(folder.federation),
        roster=roster,
        authority=fingerprint(read_certificate(folder.ca)),
        identity=identity_fingerprint(roster.server),
    )
    folder.checklist.write_text(text)
    return roster


def all_epochs(folder: ServerFolder) -> list[Roster]:
    """The rosters since the founding, in order."""
    found = [read_roster(path) for path in folder.rosters.glob("*.toml")]
    return sorted(found, key=lambda roster: roster.epoch)


def _beside(folder: ServerFolder) -> list[PartyFolder]:
    """Parties whose directories, and keys, were made beside the server's: they follow it."""
    places = sorted((folder.root.parent / "parties").glob("*/party.toml"))
    return [PartyFolder(path.parent) for path in places]


def _row(roster: Roster, member: Member, *, lost: bool) -> Member:
    """The row of a party whose bundle has come."""
    present = {each.name: each for each in roster.members}.get(member.name)
    stated = member.rotation
    if present is None:
        if stated is not None:
            raise ValueError(f"{member.name!r} has new keys, and no old ones in the roster.")
        return member
    if present.expelled is not None:
        raise ValueError(
            f"{member.name!r} was expelled in epoch {present.expelled}: a party that comes back "
            f"takes another name."
        )
    if (present.identity, present.node) == (member.identity, member.node):
        return replace(present, records=member.records)
    if stated is None or stated.replaced != present.identity:
        raise ValueError(
            f"{member.name!r} is in the roster with other keys: a party that has new ones states "
            "them with `fedpriv deploy rotate`."
        )
    if stated.lost and not lost:
        raise ValueError(
            f"the new keys of {member.name!r} are not signed by its old ones: if the party itself "
            "says, through another channel, that they are lost, add --lost. All parties will see "
            "it."
        )
    return replace(member, rotation=replace(stated, epoch=roster.epoch + 1))


def _change(folder: ServerFolder, roster: Roster, *rows: Member, **changes: Any) -> Roster:
    """The next epoch, published; the present one again if nothing is different."""
    if not changes and all(row in roster.members for row in rows):
        return publish(folder, roster)
    _require_no_open_run(folder)
    new = roster.successor(*rows, **changes)
    require_successor(roster, new)
    _require_feasible(folder, roster, new)
    return publish(folder, new)


def _require_no_open_run(folder: ServerFolder) -> None:
    if runs := open_runs(folder):
        raise ValueError(
            f"the run in {str(runs[0])!r} is open, and bound to the roster as it is: finish it "
            "with `fedpriv deploy run --resume`, or cancel it with `fedpriv deploy cancel`."
        )


def _require_feasible(folder: ServerFolder, old: Roster, new: Roster) -> None:
    """Refuse a change after which no sum is safe; while parties still join, none need be yet."""
    problem = _problem(folder, new)
    if problem is not None and _problem(folder, old) is None:
        raise ValueError(
            f"with {len(new.seats)} parties the proposed policy cannot be met: {problem} Agree on "
            "another one with all parties, and change [policy] of federation.toml first."
        )


def _problem(folder: ServerFolder, roster: Roster) -> str | None:
    try:
        thresholds_of(folder, roster)
    except ValueError as error:
        return str(error)
    return None
