"""Changes of the roster at the coordinator: each one makes the next epoch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fedpriv.simulations.deploy import templates
from fedpriv.simulations.deploy.bundles import read_bundle
from fedpriv.simulations.deploy.certificates import fingerprint, read_certificate
from fedpriv.simulations.deploy.federation import read_federation
from fedpriv.simulations.deploy.folders import PartyFolder, server_folder
from fedpriv.simulations.deploy.roster import identity_fingerprint, read_roster, write_roster

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from fedpriv.simulations.deploy.folders import ServerFolder
    from fedpriv.simulations.deploy.roster import Member, Roster


def add(bundles: Iterable[Path], server: Path) -> Roster:
    """Put parties that joined into the roster, or the new numbers of records of those in it.

    Raises:
        ValueError: A bundle is not valid, or the party is known under other keys.
    """
    folder = server_folder(server)
    name = read_federation(folder.federation).name
    roster = read_roster(folder.roster)
    known = {member.name: member for member in roster.members}
    rows = [_row(known, read_bundle(path, federation=name)) for path in bundles]
    return publish(folder, roster.successor(*rows))


def _row(known: dict[str, Member], member: Member) -> Member:
    """The row of a party whose bundle has come."""
    present = known.get(member.name)
    if present is None:
        return member
    if present.expelled is not None:
        raise ValueError(
            f"{member.name!r} was expelled in epoch {present.expelled}: whoever comes back takes "
            "another name."
        )
    if (present.identity, present.node) != (member.identity, member.node):
        raise ValueError(
            f"{member.name!r} is in the roster with other keys: a party that has new ones states "
            "them with `fedpriv deploy rotate`."
        )
    return replace(present, records=member.records)


def publish(folder: ServerFolder, roster: Roster) -> Roster:
    """Write the roster wherever it is needed."""
    folder.rosters.mkdir(exist_ok=True)
    write_roster(folder.rosters / f"{roster.epoch:04}.toml", roster)
    present = {f"{member.name}.pub": member.node for member in roster.seats}
    for path in folder.nodes.glob("*.pub"):
        if path.name not in present:
            path.unlink()
    for name, key in present.items():
        (folder.nodes / name).write_text(f"{key}\n")
    # Where the parties' directories were made beside the server's, they are on this machine.
    homes = [PartyFolder(path) for path in sorted((folder.root.parent / "parties").glob("*"))]
    for place in (folder.roster, *(home.roster for home in homes)):
        write_roster(place, roster)
    text = templates.server_checklist(
        read_federation(folder.federation),
        roster=roster,
        authority=fingerprint(read_certificate(folder.ca)),
        identity=identity_fingerprint(roster.server),
    )
    folder.checklist.write_text(text)
    return roster
