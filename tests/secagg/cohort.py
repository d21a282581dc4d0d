"""A cohort in one process, driven step by step, with everything that the server sees recorded."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import shake_256
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.typing import NDArray

from fedpriv.secagg import Enrolled, Mode, Parameters, Party, Round, Server, Total
from fedpriv.secagg.messages import Message, read

if TYPE_CHECKING:
    from fedpriv.secagg.errors import SecureAggregationError
    from fedpriv.secagg.party_state import PartyState

Ring = NDArray[np.unsignedinteger[Any]]
Entropy = Callable[[int], bytes]


class Dice:
    """A repeatable source of bytes: tests must fail for everyone or for no one."""

    def __init__(self, *labels: object) -> None:
        self._labels, self._calls = repr(labels).encode(), 0

    def __call__(self, count: int) -> bytes:
        self._calls += 1
        return shake_256(self._labels + b"/%d" % self._calls).digest(count)


def small(mode: Mode | str, parties: int = 5, threshold: int = 3) -> Parameters:
    """A complete graph with a threshold of one's own choice, in which nobody colludes."""
    return Parameters(
        mode=Mode(mode),
        roster=parties,
        colluders=0,
        parties=parties,
        holders=parties,
        threshold=threshold,
        minimum=max(2, threshold),
    )


@dataclass(frozen=True)
class Cohort:
    """Parties with identities; everything else is made for each round."""

    parameters: Parameters
    run: bytes = b"r" * 32

    @property
    def numbers(self) -> range:
        return range(self.parameters.parties)

    def identity(self, number: int) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(Dice("identity", number)(32))

    def announced(self, number: int = 1) -> Round:
        roster = tuple(self.identity(i).public_key().public_bytes_raw() for i in self.numbers)
        return Round(
            run=self.run,
            number=number,
            cohort=tuple(self.numbers),
            roster=roster,
            parameters=self.parameters,
        )

    def parties(self, number: int = 1) -> dict[int, Party]:
        announced = self.announced(number)
        return {
            i: Party(
                number=i,
                announced=announced,
                identity=self.identity(i),
                channel_key=X25519PrivateKey.from_private_bytes(Dice("channel", self.run, i)(32)),
            )
            for i in self.numbers
        }

    def server(self, number: int = 1) -> Server:
        return Server(announced=self.announced(number))

    def enrolled(self, party: int) -> Enrolled:
        return Enrolled(run=self.run, round=0, party=party)


def ideal(answers: Mapping[int, Ring], parties: Iterable[int]) -> Ring:
    """What a trusted third party would compute."""
    chosen = [answers[party] for party in parties]
    total: Ring = np.add.reduce(chosen, dtype=chosen[0].dtype)
    return total


def random_answers(
    parties: Iterable[int], dimension: int, bits: int, seed: int = 0
) -> dict[int, Ring]:
    generator = np.random.default_rng(seed)
    dtype = np.dtype(f"<u{bits // 8}")
    return {
        party: np.frombuffer(generator.bytes(dimension * dtype.itemsize), dtype=dtype)
        for party in parties
    }


@dataclass
class Play:
    """One round, one step after another; ``states`` and ``inboxes`` may be tampered with between.

    Every message passes through its binary form on the way, in both directions.
    """

    cohort: Cohort
    answers: Mapping[int, Ring]
    number: int = 1
    last: Mapping[int, PartyState] | None = None
    advertise_entropy: Callable[[int], Entropy] | None = None
    server_state: Any = None
    states: dict[int, Any] = field(default_factory=dict)
    outboxes: dict[int, Any] = field(default_factory=dict)  # the server's messages, by receiver
    seen: list[Message] = field(default_factory=list)  # all that the server got

    def __post_init__(self) -> None:
        self.parties = self.cohort.parties(self.number)
        self.server = self.cohort.server(self.number)

    def entropy(self, party: int, step: str) -> Entropy:
        return Dice(step, self.number, party)

    def advertise(self, gone: Collection[int] = ()) -> list[Message]:
        sent = []
        for i in self.cohort.numbers:
            if i not in gone:
                chosen = self.advertise_entropy
                entropy = chosen(i) if chosen else self.entropy(i, "advertise")
                last = self.last[i] if self.last else self.cohort.enrolled(i)
                self.states[i], message = self.parties[i].advertise(last, entropy)
                sent.append(message)
        return self._wire(sent)

    def collect_keys(self, sent: Iterable[Message]) -> None:
        self.server_state, boxes = self.server.collect_keys(self._see(sent))
        self._deliver(boxes)

    def share(self, gone: Collection[int] = ()) -> list[Message]:
        return self._step(
            gone,
            lambda i: self.parties[i].share(
                self.states[i],
                self.outboxes[i],
                self.entropy(i, "share"),
            ),
        )

    def collect_shares(self, sent: Iterable[Message]) -> None:
        self.server_state, boxes = self.server.collect_shares(self.server_state, self._see(sent))
        self._deliver(boxes)

    def answer(self, gone: Collection[int] = ()) -> list[Message]:
        return self._step(
            gone,
            lambda i: self.parties[i].answer(
                self.states[i],
                self.outboxes[i],
                self.answers[i],
            ),
        )

    def collect_answers(self, sent: Iterable[Message]) -> None:
        example = next(iter(self.answers.values()))
        self.server_state, boxes = self.server.collect_answers(
            self.server_state, self._see(sent), dimension=example.size, bits=8 * example.itemsize
        )
        self._deliver(boxes)

    def confirm(self, gone: Collection[int] = ()) -> list[Message]:
        return self._step(
            gone,
            lambda i: self.parties[i].confirm(
                self.states[i],
                self.outboxes[i],
            ),
        )

    def collect_consent(self, sent: Iterable[Message]) -> None:
        self.server_state, boxes = self.server.collect_consent(self.server_state, self._see(sent))
        self._deliver(boxes)

    def reveal(self, gone: Collection[int] = ()) -> list[Message]:
        return self._step(
            gone,
            lambda i: self.parties[i].reveal(
                self.states[i],
                self.outboxes[i],
            ),
        )

    def finish(self, sent: Iterable[Message]) -> Total:
        return self.server.finish(self.server_state, self._see(sent))

    def until(self, step: str) -> Play:
        """Play honestly, with nobody dropping out, up to just before ``step``."""
        active = self.cohort.parameters.mode is Mode.ACTIVE
        order: list[tuple[str, Callable[[], None]]] = [
            ("share", lambda: self.collect_keys(self.advertise())),
            ("answer", lambda: self.collect_shares(self.share())),
            ("survivors", lambda: self.collect_answers(self.answer())),
            ("confirmations", lambda: self.collect_consent(self.confirm())),
        ]
        for reached, play in order:
            if reached == "confirmations" and not active:
                break
            play()
            if reached == step:
                return self
        assert step == "reveal"
        return self

    def run(self, drops: Mapping[int, Collection[int]] | None = None) -> Total:
        """The whole round; ``drops[s]`` are silent from step s on."""
        gone: set[int] = set()

        def at(step: int) -> set[int]:
            gone.update((drops or {}).get(step, ()))
            return gone

        self.collect_keys(self.advertise(at(0)))
        self.collect_shares(self.share(at(1)))
        self.collect_answers(self.answer(at(2)))
        if self.cohort.parameters.mode is Mode.ACTIVE:
            self.collect_consent(self.confirm(at(3)))
        return self.finish(self.reveal(at(4)))

    def _step(
        self, gone: Collection[int], step: Callable[[int], tuple[PartyState, Message]]
    ) -> list[Message]:
        sent = []
        for i in sorted(self.outboxes):
            if i not in gone:
                state, message = step(i)
                self.states[i] = type(state).from_bytes(state.to_bytes())
                sent.append(message)
        return self._wire(sent)

    def _see(self, sent: Iterable[Message]) -> list[Message]:
        arrived = list(sent)
        self.seen.extend(arrived)
        return arrived

    def _deliver(self, boxes: Mapping[int, Message]) -> None:
        self.outboxes = {i: read(box.to_bytes()) for i, box in boxes.items()}

    @staticmethod
    def _wire(sent: Iterable[Message]) -> list[Message]:
        return [read(message.to_bytes()) for message in sent]


MODES = list(Mode)
BOTH = pytest.mark.parametrize("mode", MODES)
ME = 1


def play(mode: Mode | str = "active", number: int = 1, run: bytes = b"r" * 32) -> Play:
    return Play(Cohort(small(mode), run), random_answers(range(5), 3, 32), number=number)


def refused(
    error: type[SecureAggregationError], rule: str, game: Play, step: str, box: Any
) -> None:
    """The party refuses ``box``; the state it had still works, with what it should have got."""
    extra: dict[str, list[Any]] = {"share": [Dice("again")], "answer": [game.answers[ME]]}
    more = extra.get(step, [])
    act = getattr(game.parties[ME], step)
    with pytest.raises(error, match=rule):
        act(game.states[ME], box, *more)
    act(game.states[ME], game.outboxes[ME], *more)


def survivor_step(mode: Mode) -> str:
    return "confirm" if mode is Mode.ACTIVE else "reveal"
