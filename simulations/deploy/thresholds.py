"""Thresholds of a federation's masks, in a sentence: how many may collude, and how many be missing.

They follow from the roster and from what a member asks for; the drop-out is that of a run which
states none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedpriv._collusion import DEFAULT_COLLUDING
from fedpriv.federation.deployed.policy import read_party
from fedpriv.federation.protocol.level import Protection
from fedpriv.simulations.deploy.federation import read_federation
from fedpriv.simulations.deploy.folders import PartyFolder
from fedpriv.simulations.deploy.members.roster import read_roster
from fedpriv.simulations.deploy.templates import LEVEL

if TYPE_CHECKING:
    from fedpriv.simulations.deploy.folders import ServerFolder
    from fedpriv.simulations.deploy.members.roster import Roster


def thresholds(folder: ServerFolder | PartyFolder) -> str:
    """What the masks of the federation tolerate, by the party's policy or the server's proposal.

    Raises:
        ValueError: No sum of these parties is safe under that policy.
    """
    return thresholds_of(folder, read_roster(folder.roster))


def thresholds_of(folder: ServerFolder | PartyFolder, roster: Roster) -> str:
    """What the masks would tolerate with another roster than the present one.

    Raises:
        ValueError: No sum of these parties is safe under the policy.
    """
    asked = _asked(folder)
    if not asked.masked:
        return "none: answers travel in the clear"
    return asked.parameters(len(roster.seats)).sentence()


def _asked(folder: ServerFolder | PartyFolder) -> Protection:
    if isinstance(folder, PartyFolder):
        own = read_party(folder.policy).policy
        return Protection(
            level=own.secure_aggregation, corrupt=own.colluding, least=own.min_parties
        )
    proposed = read_federation(folder.federation).policy
    return Protection(
        level=proposed.get("secure_aggregation", LEVEL),
        corrupt=proposed.get("colluding", DEFAULT_COLLUDING),
        least=proposed.get("min_parties", 0),
    )
