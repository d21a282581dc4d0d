"""Errands of the server: one message to every party that is online, and the replies."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from fedpriv.federation.engines.courier import Courier, Patience, WallClock
from fedpriv.federation.exchange_report import Tally, one_line
from fedpriv.federation.protocol.wire import Request
from fedpriv.secagg.round import RUN_BYTES, Bound

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from flwr.serverapp import Grid

    from fedpriv.federation.engines.seals import Seal

PATIENCE = Patience(arrival=15.0, reply=120.0, poll=0.05)
"""Who is away is told another time: nobody waits for it."""
ABSENT, SILENT = "not there", "no reply"
DONE = "done"

_Result = TypeVar("_Result", bound=Bound)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(Generic[_Result]):
    """What became of an errand.

    Attributes:
        results: What each party answered that carried it out.
        words: For every party of the roster, in plain words.
    """

    results: Mapping[int, _Result]
    words: Mapping[str, str]


def send(
    grid: Grid,
    step: str,
    errand: Callable[[bytes], Bound],
    *,
    names: tuple[str, ...],
    expected: type[_Result],
    seal: Seal,
    patience: Patience = PATIENCE,
    spared: Collection[int] = (),
) -> Outcome[_Result]:
    """Send an errand to all parties that are there, and collect what they answer.

    Args:
        grid: Flower's.
        step: The exchange.
        errand: The message, of the run of the protocol that it is given.
        names: Of the parties, by number.
        expected: What a party answers that carried it out.
        seal: Signs requests, checks replies and knows which party a node is.
        patience: How long to wait.
        spared: The parties that are not asked.
    """
    courier = Courier(grid, patience=patience, clock=WallClock(), tally=Tally(), seal=seal)
    nodes, seats = courier.arrived(len(names)), seal.seats() or {}
    request = Request(messages=(errand(os.urandom(RUN_BYTES)),))
    results: dict[int, _Result] = {}
    words = dict.fromkeys(names, ABSENT)
    there = [node for node in nodes if node in seats and seats[node] not in spared]
    words |= {names[seats[node]]: SILENT for node in there}
    for node, reply in courier.exchange(step, dict.fromkeys(there, request)):
        done = [
            each
            for each in reply.messages
            if isinstance(each, expected) and each.run == request.run and each.party == seats[node]
        ]
        refusal = one_line(reply.refusal)
        said = f"refused: {refusal}" if refusal else "no answer to it"
        words[names[seats[node]]] = DONE if len(done) == 1 else said
        if len(done) == 1:
            results[seats[node]] = done[0]
    return Outcome(results=results, words=words)
