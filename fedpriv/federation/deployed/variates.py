"""Control variates at a deployed party: what a run of SCAFFOLD has it keep between releases.

c_j is made of the party's own records and of all its earlier rounds. It never leaves, and it lives
as long as the run: the journal keeps it beside the answer, and erases it when the run is attested,
cancelled or left. It belongs to one run, and so to one epoch of the roster.

**One step a release, whatever happens after it.** The journal keeps c_j before the latest round and
after it, and is written before the answer is. Killed between the two, or asked for the same release
again, the party finds c_j as it was before the round, tosses the same coin from the same secret,
and so takes the same step once. An answer that is in the journal is sent as it is.

**It costs nothing.** Whatever c_j is, the answer is clipped as one vector; a party that has none,
in its first round, begins with the server's. But one that has answered and finds none on its disk
has lost part of its state: it refuses (`fedpriv.federation.deployed.one_draw`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedpriv.federation.deployed.journal import Journal
    from fedpriv.federation.party.party import Party
    from fedpriv.federation.queries.base import Query
    from fedpriv.secagg.numbers.fixed_point import Ring


def computed(query: Query, party: Party, journal: Journal) -> Ring:
    """The answer, after which what the party keeps of this round is durable."""
    if not query.remembering:
        return party.compute(query)
    party.remember(journal.variate(query.run) or b"")
    vector = party.compute(query)
    journal.keep_variate(query.run, party.remembered)
    return vector
