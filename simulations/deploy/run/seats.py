"""Seats of a deployment: which party each registered node is, by its key, never by its word.

`reconcile` of `fedpriv.simulations.deploy.members.membership` notes, for every node key that it
registers with the SuperLink, the number that the SuperLink gave it. The roster has the node key of
every party. Joined by the key, they say which party a node is. A node that is in one of them only
has no seat, and gets no message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedpriv.simulations.run.files import read_json

if TYPE_CHECKING:
    from pathlib import Path

    from fedpriv.simulations.deploy.members.roster import Roster


def seats_of(notes: Path, roster: Roster) -> dict[int, int]:
    """The party that each registered node is, by Flower's number of the node.

    Args:
        notes: The directory of the notes, one per party.
        roster: The parties that a run is for.

    Raises:
        ValueError: Two parties are noted at one node.
    """
    found: dict[int, int] = {}
    for number, member in enumerate(roster.seats):
        path = notes / f"{member.name}.json"
        note = read_json(path) if path.exists() else {}
        if note.get("key") != member.node:
            continue
        node = int(note["node"])
        if node in found:
            raise ValueError(
                f"{str(notes)!r} notes two parties at node {node}: remove the notes and register "
                "the nodes again."
            )
        found[node] = number
    return found
