"""A consortium: every member in a directory of its own, as on machines of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedpriv.federation.deployed.policy import read_party
from fedpriv.simulations.deploy import keys
from fedpriv.simulations.deploy.federation import parse_federation
from fedpriv.simulations.deploy.founding import found, join
from fedpriv.simulations.deploy.members.changes import add
from fedpriv.simulations.deploy.members.epochs import accept, accepted_roster
from fedpriv.simulations.deploy.members.roster import read_roster
from tests.simulations.deploy.conftest import NAMES, federation_values

if TYPE_CHECKING:
    from pathlib import Path

    from fedpriv.simulations.deploy.folders import PartyFolder, ServerFolder
    from fedpriv.simulations.deploy.members.epochs import Accepted
    from fedpriv.simulations.deploy.members.roster import Roster


@dataclass
class Consortium:
    """A server and parties that do not see each other's disks."""

    root: Path
    server: ServerFolder
    homes: dict[str, PartyFolder]

    @property
    def roster(self) -> Roster:
        return read_roster(self.server.roster)

    def join(self, name: str) -> PartyFolder:
        self.homes[name] = join(self.server.invitation, name, self.root / name, records=10)
        return self.homes[name]

    def add(self, *names: str, lost: bool = False) -> Roster:
        return add([self.homes[name].bundle for name in names], self.server.root, lost=lost)

    def accept(self, *names: str) -> list[Accepted]:
        """Have parties accept the newest roster, or all of them."""
        return [
            accept(self.homes[name], [self.roster], fingerprint=self.roster.fingerprint)
            for name in names or self.homes
        ]

    def held(self, name: str) -> Roster:
        return accepted_roster(read_party(self.homes[name].policy))

    def identity(self, name: str) -> bytes:
        return keys.identity_public(keys.read_identity(self.homes[name].identity))


def of_four(folder: Path) -> Consortium:
    """Four parties that joined with keys of their own, and accepted epoch 2."""
    founded = found(parse_federation(federation_values()), folder / "coordinator", party_keys=False)
    consortium = Consortium(folder, founded.server, {})
    for name in (*NAMES, "east"):
        consortium.join(name)
    consortium.add(*consortium.homes)
    consortium.accept()
    return consortium
