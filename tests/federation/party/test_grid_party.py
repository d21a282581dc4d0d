"""A party at its end of the line: one answer under its masks, and nothing for who asks wrongly."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
from flwr.app import ConfigRecord, Context, RecordDict

from fedpriv.federation.engines.courier import envelope, opened
from fedpriv.federation.engines.local import LocalGrid, VirtualClock
from fedpriv.federation.party.client_app import ContextStore, PartyFailed, client_app
from fedpriv.federation.party.guard import QueryRefused
from fedpriv.federation.party.memory import Memory, MemoryStore
from fedpriv.federation.party.party import Party
from fedpriv.federation.protocol.level import Protection
from fedpriv.federation.protocol.wire import (
    Announce,
    Ask,
    Join,
    Joined,
    Reply,
    Request,
    pack,
    read,
    unpack,
)
from fedpriv.federation.queries import encoding as codec
from fedpriv.federation.queries.local_noise import LocalNoise
from fedpriv.privacy.randomness import RandomStream
from fedpriv.secagg import Round, Server
from fedpriv.secagg.errors import MalformedMessage, WrongRound
from fedpriv.secagg.messages import Advertise, Delivery, MaskedAnswer, Survivors
from tests.federation.engines.grids import (
    DATA,
    EVENT,
    ROSTER,
    SIZES,
    TASK,
    Stage,
    gradient_query,
    host,
)

if TYPE_CHECKING:
    from fedpriv.federation.party.host import PartyHost
    from fedpriv.federation.protocol.level import Level
    from fedpriv.federation.queries.kinds import Query
    from fedpriv.secagg.numbers.fixed_point import Ring
    from fedpriv.secagg.round import Bound

RUN = b"r" * 32
COHORT = tuple(range(len(SIZES)))


@dataclass
class Talk:
    """A server that talks to hosts directly, and keeps what they remember as bytes."""

    level: Level = "semi-honest"

    def __post_init__(self) -> None:
        self.hosts = {number: host(number, self.level) for number in COHORT}
        self.states = {number: RecordDict() for number in COHORT}
        level: Level = "active" if self.level == "off" else self.level
        parameters = Protection(level=level, dropout=0.3).parameters(len(COHORT))
        self.server = Server(
            announced=Round(run=RUN, number=1, cohort=COHORT, roster=ROSTER, parameters=parameters)
        )
        for number in COHORT:
            self.ask(number, Join(run=RUN, round=0, party=0))

    def raw(self, number: int, data: bytes) -> bytes:
        store = ContextStore(self.states[number])
        return replace(self.hosts[number], store=store).handle(data)

    def memory(self, number: int) -> Memory:
        store = ContextStore(self.states[number])
        with store.held():
            return store.memory(RUN)

    def ask(self, number: int, *records: Bound, query: Query | None = None) -> Reply:
        data = b"" if query is None else codec.to_bytes(query)
        return Reply.from_bytes(self.raw(number, Request(messages=records, query=data).to_bytes()))

    def announce(self, number: int, round_: int = 1, minimum: int = 3) -> Reply:
        return self.ask(
            number,
            Announce(run=RUN, round=round_, party=number, cohort=COHORT, minimum=minimum),
        )

    def deliveries(self) -> dict[int, Delivery]:
        advertised = [self.announce(number).messages[0] for number in COHORT]
        keys, lists = self.server.collect_keys(advertised)  # type: ignore[arg-type]
        shares = [self.ask(number, box).messages[0] for number, box in lists.items()]
        self.state, found = self.server.collect_shares(keys, shares)  # type: ignore[arg-type]
        return found


def test_a_repeated_request_gets_the_same_bytes_and_changes_nothing() -> None:
    talk = Talk()
    box = talk.deliveries()[0]
    data = Request(messages=(box,), query=codec.to_bytes(gradient_query(0))).to_bytes()
    first = talk.raw(0, data)
    before = talk.memory(0).to_bytes()
    assert isinstance(Reply.from_bytes(first).messages[0], MaskedAnswer)
    assert talk.raw(0, data) == first
    assert talk.memory(0).to_bytes() == before


def test_no_second_answer_leaves_under_the_same_masks() -> None:
    talk = Talk()
    box = talk.deliveries()[0]
    answered = talk.ask(0, box, query=gradient_query(0))
    assert len(answered.messages) == 1
    other_query = talk.ask(0, box, query=gradient_query(1))
    fewer = replace(box, sharers=box.sharers[:4], ciphertexts={})
    other_box = talk.ask(0, fewer, query=gradient_query(0))
    for reply in (other_query, other_box):
        assert reply.messages == ()
        assert reply.refusal.startswith("OutOfOrder")


def test_what_is_forgotten_is_refused_not_answered_again() -> None:
    """Only the latest replies are kept; an older request meets the state machine."""
    talk = Talk()
    box = talk.deliveries()[0]
    data = Request(messages=(box,), query=codec.to_bytes(gradient_query(0))).to_bytes()
    talk.raw(0, data)
    for round_ in (2, 3, 4):
        talk.announce(0, round_)
    late = Reply.from_bytes(talk.raw(0, data))
    assert late.messages == ()
    assert late.refusal.startswith("OutOfOrder")


def test_no_record_is_touched_for_a_delivery_out_of_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    talk = Talk()
    box = talk.deliveries()[0]
    touched = []
    monkeypatch.setattr(
        type(talk.hosts[0].party), "answer", lambda _self, query, _store: touched.append(query)
    )
    stranger = replace(box, sharers=(1, 2, 3, 4))
    unknown = replace(box, round=9)
    for wrong in (stranger, unknown):
        assert talk.ask(0, wrong, query=gradient_query(0)).messages == ()
    assert touched == []


def test_one_refused_step_does_not_keep_another_from_being_taken() -> None:
    talk = Talk()
    talk.deliveries()
    early = Survivors(run=RUN, round=1, party=0, survivors=COHORT)
    invited = Announce(run=RUN, round=2, party=0, cohort=COHORT, minimum=3)
    reply = talk.ask(0, early, invited)
    assert [type(record) for record in reply.messages] == [Advertise]
    assert reply.refusal.startswith("OutOfOrder")


@pytest.mark.parametrize("round_", [0, 1])
def test_a_round_is_joined_once_and_never_an_earlier_one(round_: int) -> None:
    talk = Talk()
    talk.announce(0, 1)
    again = talk.announce(0, round_, minimum=4)
    assert again.messages == ()
    assert again.refusal.startswith("WrongRound")


def test_a_party_stays_with_its_first_run_and_may_refuse_to_join_one() -> None:
    talk = Talk()
    other = Join(run=b"x" * 32, round=0, party=0)
    assert talk.ask(0, other).refusal.startswith("WrongRound")

    class WaryStore(MemoryStore):
        def memory(self, run: bytes) -> Memory:
            raise WrongRound(f"run {run.hex()[:4]} was joined before.")

    store = WaryStore()
    wary = replace(host(0), store=store)
    reply = wary.handle(Request(messages=(other,)).to_bytes())
    assert Reply.from_bytes(reply).refusal == "WrongRound: run 7878 was joined before."
    assert MemoryStore.memory(store, RUN).run == b""


@pytest.mark.parametrize(
    ("minimum", "cohort"), [(99, COHORT), (3, (1, 2, 3, 4)), (3, (0, 99, 100, 101))]
)
def test_an_impossible_round_is_refused(minimum: int, cohort: tuple[int, ...]) -> None:
    talk = Talk()
    reply = talk.ask(0, Announce(run=RUN, round=1, party=0, cohort=cohort, minimum=minimum))
    assert reply.messages == ()
    assert reply.refusal.startswith("WrongRound: The round as announced is impossible")


def test_nothing_is_answered_in_the_clear_by_a_party_that_masks() -> None:
    talk = Talk()
    reply = talk.ask(0, Ask(run=RUN, round=1, party=0), query=gradient_query(0))
    assert (reply.messages, reply.refusal) == (
        (),
        "OutOfOrder: This party answers under masks only.",
    )


@pytest.mark.parametrize("query", [b"", b"fedpriv?", b"\xff" * 40])
def test_a_malformed_query_is_refused(query: bytes) -> None:
    talk = Talk("off")
    data = Request(messages=(Ask(run=RUN, round=1, party=0),), query=query).to_bytes()
    reply = Reply.from_bytes(talk.raw(0, data))
    assert reply.messages == ()
    assert reply.refusal.startswith("QueryRefused")


@pytest.mark.parametrize("level", ["off", "semi-honest"])
def test_noise_of_its_own_is_drawn_once_for_a_release(level: Level) -> None:
    """Asked again under new masks, a party sends the same integers: their mean says no more."""
    noisy = LocalNoise(law="gaussian", relative_noise=10.0, adjacency=EVENT.adjacency)
    query = replace(gradient_query(0), local=noisy)
    fresh = iter(range(1000))

    def stream(_round: int) -> RandomStream:
        return RandomStream.seeded(next(fresh), "fresh")  # another one each time, as from the OS

    party = Party(DATA.party(0), task=TASK, sampling=stream, noise=stream)
    own = replace(host(0, level), party=party)
    state = RecordDict()

    def answer(query: Query, state: RecordDict) -> Ring:
        member = replace(own, store=ContextStore(state))
        with member.store.held():
            return member._answer(Memory(run=RUN), codec.to_bytes(query), None)[1]

    vectors = [answer(query, state) for _ in range(2)]
    assert (vectors[0] == vectors[1]).all()
    other = replace(query, theta=query.theta * 2)
    with pytest.raises(QueryRefused, match="release 0 of this run was answered already"):
        answer(other, state)
    forgetful = answer(query, RecordDict())
    assert (forgetful != vectors[0]).any(), "a new draw would be seen"


def test_memory_survives_its_binary_form_and_refuses_another() -> None:
    talk = Talk("active")
    talk.deliveries()
    memory = talk.memory(3)
    data = memory.to_bytes()
    assert Memory.from_bytes(data) == memory
    assert memory.to_bytes() == data
    assert list(memory.rounds) == [1]
    for wrong in (data[:-1], data + b"x", b"", pack([b""] * 3), pack([RUN, pack([b"", b""])] * 2)):
        with pytest.raises(MalformedMessage):
            Memory.from_bytes(wrong)


def test_memory_shows_no_secret() -> None:
    talk = Talk()
    talk.deliveries()
    memory = talk.memory(0)
    assert re.fullmatch(r"Memory\(run=b'r+'\)", repr(memory))


def test_the_state_in_a_context_is_all_that_a_node_remembers() -> None:
    """Every message may meet a fresh process: hosts are opened anew each time."""
    stage = Stage("active")
    stage.sums(2)
    assert len(stage.opened) == len(SIZES) * (1 + 2 + 2 * 3)


def test_a_failing_party_tells_the_kind_of_its_error_only() -> None:
    def open_party(_context: Context) -> PartyHost:
        raise KeyError("row 17: 3.14")

    grid = LocalGrid(client_app(open_party), 1)
    context = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config={})
    stage = Stage()
    message = _message(stage, Request(messages=(Join(run=RUN, round=0, party=0),)).to_bytes())
    with pytest.raises(PartyFailed) as failed:
        grid._app(message, context)
    assert str(failed.value) == "the party failed: KeyError."


def _message(stage: Stage, data: bytes) -> Any:
    from flwr.app import Message

    message = Message(envelope(data), 1001, "query.join")
    message.metadata.__dict__["_message_id"] = "m"
    return message


@pytest.mark.parametrize(
    "content",
    [
        RecordDict(),
        RecordDict({"fedpriv": ConfigRecord({"other": b"x"})}),
        RecordDict({"fedpriv": ConfigRecord({"fedpriv": "text"})}),
    ],
)
def test_a_message_without_an_envelope_is_malformed(content: RecordDict) -> None:
    stage = Stage()
    message = _message(stage, b"")
    message.content = content
    with pytest.raises(MalformedMessage):
        opened(message)


def test_records_and_envelopes_have_one_binary_form() -> None:
    joined = Joined(run=RUN, round=0, party=3, size=12, level=1)
    assert read(joined.to_bytes()) == joined
    reply = Reply(messages=(joined,), refusal="BadList: é")
    assert Reply.from_bytes(reply.to_bytes()) == reply
    data = reply.to_bytes()
    for wrong in (b"", data[:-1], data + b"\0", data[:8] + b"", pack([b"x" * 501])):
        with pytest.raises(MalformedMessage):
            Reply.from_bytes(wrong)
    assert unpack(pack([])) == []
    assert unpack(pack([b"", b"ab"])) == [b"", b"ab"]
    with pytest.raises(MalformedMessage):
        Request.from_bytes(pack([b"", *[joined.to_bytes()] * 64]))
    assert len(Reply(messages=(), refusal="x" * 900).to_bytes()) == 508


def test_a_virtual_minute_takes_no_time() -> None:
    clock = VirtualClock()
    clock.sleep(60)
    assert clock.now() == 60
