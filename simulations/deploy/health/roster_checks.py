"""Checks of the roster by `fedpriv doctor`: a member's own keys and pins against it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedpriv.federation.deployed.policy import read_party
from fedpriv.simulations.deploy import keys
from fedpriv.simulations.deploy.health.checks import Fault
from fedpriv.simulations.deploy.members.epochs import accepted_roster
from fedpriv.simulations.deploy.members.roster import identity_fingerprint, read_roster

if TYPE_CHECKING:
    from fedpriv.simulations.deploy.folders import Folder, PartyFolder, ServerFolder
    from fedpriv.simulations.deploy.members.roster import Roster


def complete(folder: Folder) -> str:
    """Whether somebody is in the roster, and all have said how many records they hold."""
    roster = read_roster(folder.roster)
    if not roster.seats:
        raise Fault("nobody is in the roster", "add every party: `fedpriv deploy add BUNDLE`.")
    records = sum(roster.sizes)
    return (
        f"{len(roster.seats)} parties, {records} records, epoch {roster.epoch}, fingerprint "
        f"{roster.fingerprint}"
    )


def node_keys(folder: ServerFolder) -> str:
    """Whether the node keys to register are those of the roster."""
    expected = {member.name: member.node for member in read_roster(folder.roster).seats}
    present = {path.stem: path.read_text().strip() for path in folder.nodes.glob("*.pub")}
    different = sorted(
        name for name in expected | present if expected.get(name) != present.get(name)
    )
    if different:
        raise Fault(
            f"nodes/ and roster.toml differ for {', '.join(different)}",
            "run `fedpriv deploy add BUNDLE` again with any bundle: it writes them anew.",
        )
    return f"{len(present)} keys, those of the roster"


def server_identity(folder: ServerFolder) -> str:
    """Whether the server's identity is the one of the roster."""
    roster, key = read_roster(folder.roster), keys.read_identity(folder.identity)
    if keys.identity_public(key) != roster.server:
        raise Fault(
            "the roster pins another identity for this server than identity.key",
            "restore both from the same backup; after a rotation that was interrupted, run "
            "`fedpriv deploy rotate` again.",
        )
    return identity_fingerprint(roster.server)


def pinned_server(folder: PartyFolder) -> str:
    """Whether the server of the roster is the one that the party's policy names."""
    file = read_party(folder.policy)
    present = identity_fingerprint(read_roster(file.roster).server)
    if present != file.policy.server_identity:
        raise Fault(
            f"the server of the roster is {present}, and policy.server_identity pins another one",
            "find out, from another party and not from the server, which one is right.",
        )
    return present


def accepted(folder: PartyFolder) -> str:
    """Whether the roster in the party's directory is the one that it accepted."""
    roster = accepted_roster(read_party(folder.policy))
    return f"epoch {roster.epoch}, fingerprint {roster.fingerprint}"


def own_seat(folder: PartyFolder) -> tuple[Roster, int]:
    """The roster in the party's directory, and the party's number in it."""
    file = read_party(folder.policy)
    roster = read_roster(file.roster)
    return roster, roster.number(file.name)


def own_identity(folder: PartyFolder) -> str:
    """Whether the party's identity is the one of the roster."""
    roster, number = own_seat(folder)
    key = keys.read_identity(read_party(folder.policy).identity)
    if keys.identity_public(key) != roster.identities[number]:
        raise Fault(
            "the roster pins another identity for this party than identity.key",
            "restore your keys from a backup, or state new ones with `fedpriv deploy rotate`.",
        )
    return f"party {number} of {len(roster.seats)}, {sum(roster.sizes)} records"


def own_node_key(folder: PartyFolder) -> str:
    """Whether the party's node key is the one of the roster."""
    roster, number = own_seat(folder)
    if keys.node_public(keys.read_node_key(folder.node_key)) != roster.seats[number].node:
        raise Fault(
            "the roster has another node key for this party than node.key",
            "restore your keys from a backup, or state new ones with `fedpriv deploy rotate`.",
        )
    return "the one of the roster"
