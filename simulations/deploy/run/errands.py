"""Errands of the server: one message to every party that is there, and what each made of it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from fedpriv.federation.engines.courier import Courier, Patience, WallClock
from fedpriv.federation.engines.seals import NoSeal
from fedpriv.federation.exchange_report import Tally
from fedpriv.federation.protocol.wire import Request
from fedpriv.secagg.round import RUN_BYTES, Bound

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from flwr.serverapp import Grid

    from fedpriv.federation.engines.seals import Seal

PATIENCE = Patience(arrival=15.0, reply=60.0, poll=0.2)
"""Who is away is told another time: nobody waits for it."""
ABSENT = "not there"
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
    seal: Seal | None = None,
    patience: Patience = PATIENCE,
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
    """
    seal = seal or NoSeal()
    courier = Courier(grid, patience=patience, clock=WallClock(), tally=Tally(), seal=seal)
    nodes, seats = courier.arrived(len(names)), seal.seats()
    request = Request(messages=(errand(os.urandom(RUN_BYTES)),))
    results: dict[int, _Result] = {}
    words = dict.fromkeys(names, ABSENT)
    there = [node for node in nodes if seats is None or node in seats]
    for node, reply in courier.exchange(step, dict.fromkeys(there, request)):
        seat = None if seats is None else seats[node]
        done = [
            each
            for each in reply.messages
            if isinstance(each, expected)
            and each.run == request.run
            and each.party < len(names)
            and seat in (None, each.party)
        ]
        if len(done) == 1:
            results[done[0].party] = done[0]
            words[names[done[0].party]] = DONE
        elif seat is not None:
            words[names[seat]] = f"refused: {reply.refusal}" if reply.refusal else "no answer to it"
    return Outcome(results=results, words=words)
