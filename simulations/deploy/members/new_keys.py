"""New keys for a party: `fedpriv deploy rotate` makes them and states them in a bundle.

They wait beside the old ones until the party accepts the epoch of the roster that has them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedpriv._durable import replace_file
from fedpriv._toml import read_toml
from fedpriv.federation.deployed.journal import Journal
from fedpriv.federation.deployed.policy import read_party
from fedpriv.simulations.deploy import keys
from fedpriv.simulations.deploy.members.bundles import write_bundle
from fedpriv.simulations.deploy.members.epochs import accepted_roster
from fedpriv.simulations.deploy.members.pending import new_identity, new_node_key
from fedpriv.simulations.deploy.members.roster import Member
from fedpriv.simulations.deploy.members.rotation import rotation

if TYPE_CHECKING:
    from fedpriv.federation.deployed.policy import PartyFile
    from fedpriv.simulations.deploy.folders import PartyFolder


def rotate_party(folder: PartyFolder, *, lost: bool = False) -> Member:
    """Make a new identity and node key for a party, and write its bundle; again, the same ones.

    Args:
        folder: The party's.
        lost: Whether the old identity is lost, or in other hands, and shall not sign: everybody
            will be shown that it did not.

    Raises:
        ValueError: The old identity is not the one of the roster, and ``lost`` is not given.
    """
    file = read_party(folder.policy)
    with Journal(file.state).held():  # two at once make the same keys
        return _rotated(folder, file, lost=lost)


def _rotated(folder: PartyFolder, file: PartyFile, *, lost: bool) -> Member:
    roster = accepted_roster(file)
    row = roster.row(file.name)
    roster.number(file.name)  # not expelled
    old = None if lost else keys.read_identity(file.identity)
    if old is not None and keys.identity_public(old) != row.identity:
        raise ValueError(
            "identity.key is not the one of the roster, which must sign the new one: restore it "
            "from a backup, or say that it is lost with --lost."
        )
    identity, node = new_identity(folder), keys.node_public(new_node_key(folder))
    member = Member(
        name=file.name,
        identity=keys.identity_public(identity),
        node=node,
        records=row.records,
        rotation=rotation(file.name, replaced=row.identity, new=identity, node=node, old=old),
    )
    federation = read_toml(folder.bundle, "bundle")["federation"]
    replace_file(folder.bundle, write_bundle(member, identity, federation=federation))
    return member
