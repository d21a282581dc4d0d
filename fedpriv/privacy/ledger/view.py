"""A ledger to look at: its runs, and its rows as JSON-ready values."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from fedpriv.privacy.ledger.chain import THE_LEDGER, WHOLE_RUN, Row

if TYPE_CHECKING:
    from fedpriv.privacy.ledger.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """One run in a ledger.

    Attributes:
        run: its name.
        simulated: it protected nothing and was charged nothing.
        declared: it was charged as a whole, before its first release.
        reserved: releases paid for.
        committed: releases stored.
        amount: what it spent, in the unit of the ledger's composition.
        delta: what it spent of δ directly.
        first: time of its first row.
        last: time of its last row.
    """

    run: str
    simulated: bool
    declared: bool
    reserved: int
    committed: int
    amount: float
    delta: float
    first: str
    last: str


def run_summaries(store: Store) -> list[RunSummary]:
    """Every run, in order of appearance."""
    return [
        RunSummary(
            run=run,
            simulated=bool(simulated),
            declared=bool(declared),
            reserved=reserved,
            committed=committed,
            amount=amount,
            delta=delta,
            first=first,
            last=last,
        )
        for (
            run,
            simulated,
            declared,
            reserved,
            committed,
            amount,
            delta,
            first,
            last,
        ) in store.runs()
    ]


def row_values(row: Row) -> dict[str, Any]:
    """A row as JSON-ready values: bytes as hexadecimal digits, and null where there is no run."""
    return {
        **asdict(row),
        "run": None if row.run == THE_LEDGER else row.run,
        "round": None if row.round == WHOLE_RUN else row.round,
        "detail": json.loads(row.detail),
        "release_hash": None if row.release_hash is None else row.release_hash.hex(),
        "prev_hash": row.prev_hash.hex(),
        "hash": row.hash.hex(),
    }
