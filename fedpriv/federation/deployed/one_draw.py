"""One draw for each release: what a deployed party's ledger knows, and its journal must know, too.

A ledger remembers every release; a journal the latest answer of the latest runs. Where the journal
has forgotten, or was lost, the party cannot give the same answer again, and gives no other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedpriv.federation.party.guard import QueryRefused

if TYPE_CHECKING:
    from fedpriv.federation.deployed.journal import Journal
    from fedpriv.federation.party.answered import Given
    from fedpriv.federation.queries.base import Query
    from fedpriv.privacy.ledger.view import LedgerView


def require_one_draw(query: Query, given: Given | None, status: str) -> None:
    """Refuse a release that the ledger knows, and whose draw the journal does not."""
    if status == "committed" and (given is None or given.pending):
        raise QueryRefused(
            f"release {query.round} of this run was answered already, and the answer is not "
            "in the state directory any more. Another one would be a second draw of noise."
        )
    if status == "reserved" and given is None:
        raise QueryRefused(
            f"release {query.round} of this run was begun already, and its draw is not in the "
            "state directory any more. Another one would be a second draw of noise."
        )


def require_remembered(
    query: Query, last: Given | None, ledger: LedgerView, journal: Journal
) -> None:
    """Refuse a run that the ledger knows, and of which the journal has no answer at all.

    The answer has the epoch of the roster that the run began under, and belongs to. And where it
    was lost with the whole state, so was whether the statement of the run was signed. A control
    variate that an answered round left, and that is gone, was lost in the same way.
    """
    if last is None and ledger.began(query.run) is not None:
        raise QueryRefused(
            "this run began before, and its answers are not in the state directory any more: "
            "start a new one."
        )
    goes_on = last is not None and not last.pending and last.release < query.round
    if query.remembering and goes_on and journal.variate(query.run) is None:
        raise QueryRefused(
            "this party has answered in this run, and its control variate is not in the state "
            "directory any more: start a new one."
        )
