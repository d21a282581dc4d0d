"""The communication graph: who keeps whose shares, and who shares a mask with whom.

A party's *holders* keep the shares of its secrets; the party draws them itself. Its *partners*,
with which it shares pairwise masks, are its holders and the parties whose holder it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from fedpriv.secagg.primitives.shamir import Entropy
    from fedpriv.secagg.round import Round


def choose_holders(announced: Round, party: int, entropy: Entropy) -> tuple[int, ...]:
    """The holders of ``party``: the whole cohort, or k others drawn uniformly."""
    if announced.parameters.complete:
        return announced.cohort
    others = np.array([other for other in announced.cohort if other != party])
    keys = np.frombuffer(entropy(8 * others.size), dtype="<u8")
    drawn = others[np.argsort(keys)[: announced.parameters.holders]]
    return tuple(sorted(drawn.tolist()))


def partners(
    holders: Mapping[int, AbstractSet[int]], among: AbstractSet[int]
) -> dict[int, set[int]]:
    """The partners of each party of ``among``, within ``among``, from every party's holders."""
    neighbours: dict[int, set[int]] = {party: set() for party in among}
    for party in among:
        for holder in (holders[party] & among) - {party}:
            neighbours[party].add(holder)
            neighbours[holder].add(party)
    return neighbours


def owners_of(holders: Mapping[int, AbstractSet[int]]) -> dict[int, set[int]]:
    """Whose shares each party holds: the inverse of ``holders``."""
    owners: dict[int, set[int]] = {}
    for owner, held_by in holders.items():
        for holder in held_by:
            owners.setdefault(holder, set()).add(owner)
    return owners
