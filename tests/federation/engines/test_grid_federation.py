"""Sums over a Flower grid: exact, of exactly the parties they name, whatever goes wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fedpriv.federation.engines.dropouts import Dropouts
from fedpriv.federation.engines.faults import FAULTS, Fault, FaultPlan
from fedpriv.federation.engines.grid import RoundFailed
from fedpriv.federation.protocol.wire import Reply
from fedpriv.secagg.messages import Advertise
from tests.federation.engines.grids import SIZES, Stage, gradient_query, host, ideal, who

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flwr.app import Message

    from fedpriv.federation.engines.faults import FaultKind
    from fedpriv.federation.protocol.level import Level

EVERYBODY = set(range(len(SIZES)))
LEVELS: list[Level] = ["off", "semi-honest", "active"]
MASKED: list[Level] = ["semi-honest", "active"]


def first_step(level: Level) -> str:
    return "ask" if level == "off" else "answer"


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("level", LEVELS)
def test_a_sum_over_the_grid_is_the_ideal_sum_to_the_bit(level: Level, bits: int) -> None:
    stage = Stage(level)
    for round_ in range(3):
        query = gradient_query(round_, bits=bits)
        answer = stage.federation.sum(query)
        assert who(answer) == EVERYBODY
        assert (answer.total == ideal(query, answer.sizes)).all()
    assert stage.federation.report.rejected == {}
    assert stage.federation.report.sums == 3


@pytest.mark.parametrize(
    ("level", "pipelined", "expected"),
    [
        ("off", True, {"join": 1, "ask": 5}),
        ("semi-honest", True, {"join": 1, "advertise": 1, "share": 1, "answer": 5, "reveal": 5}),
        ("semi-honest", False, {"join": 1, "advertise": 5, "share": 5, "answer": 5, "reveal": 5}),
        (
            "active",
            True,
            {"join": 1, "advertise": 1, "share": 1, "answer": 5, "confirm": 5, "reveal": 5},
        ),
    ],
)
def test_the_steady_state_has_one_exchange_in_the_clear_two_or_three_masked(
    level: Level, pipelined: bool, expected: dict[str, int]
) -> None:
    stage = Stage(level, pipelined=pipelined)
    stage.sums(5)
    traffic = stage.federation.report.traffic
    assert {step: one.exchanges for step, one in traffic.items()} == expected
    assert all(one.sent > 0 and one.received > 0 for one in traffic.values())


@pytest.mark.parametrize("level", MASKED)
def test_mask_keys_are_fresh_in_every_round(level: Level) -> None:
    stage = Stage(level)
    stage.sums(4)
    sent = [Reply.from_bytes(data) for step in stage.grid.sent.values() for data in step]
    keys = [r.keys[32:64] for reply in sent for r in reply.messages if isinstance(r, Advertise)]
    assert len(keys) == len(set(keys)) == 5 * len(SIZES)  # one set-up is ahead


@pytest.mark.parametrize("level", MASKED)
def test_no_answer_travels_in_the_clear(level: Level) -> None:
    stage = Stage(level)
    query = gradient_query(0)
    stage.federation.sum(query)
    clear = [host(number).party.answer(query).tobytes() for number in EVERYBODY]
    sent = b"".join(data for step in stage.grid.sent.values() for data in step)
    assert not any(answer in sent for answer in clear)
    unmasked = Stage("off")
    unmasked.federation.sum(query)
    sent = b"".join(unmasked.grid.sent["ask"])
    assert all(answer in sent for answer in clear)


@pytest.mark.parametrize("kind", ["silence", "error", "lost", "flip", "replay"])
@pytest.mark.parametrize(
    ("level", "step"),
    [
        (level, step)
        for level in MASKED
        for step in ("advertise", "share", "answer", "confirm", "reveal")
        if (level, step) != ("semi-honest", "confirm")
    ],
)
def test_who_fails_at_a_step_is_missed_there_and_the_sum_is_that_of_the_others(
    level: Level, step: str, kind: FaultKind
) -> None:
    plan = FaultPlan(faults=(Fault(kind=kind, step=step, party=2, occurrence=0),))
    stage = Stage(level, plan)
    answers = stage.sums(4)
    for round_, answer in enumerate(answers):
        assert (answer.total == ideal(gradient_query(round_), answer.sizes)).all()
        assert who(answer) >= EVERYBODY - {2}
    assert sum(stage.federation.report.rejected.values()) > 0
    assert (2 in who(answers[0])) == (step in {"confirm", "reveal"})
    assert 2 in who(answers[-1]), "it is back"


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", ["silence", "error", "lost", "flip", "truncate"])
def test_who_never_answers_never_counts(level: Level, kind: FaultKind) -> None:
    plan = FaultPlan(faults=(Fault(kind=kind, step=first_step(level), party=4),))
    stage = Stage(level, plan)
    for answer in stage.sums(3):
        assert who(answer) == EVERYBODY - {4}
        assert 50 not in answer.sizes


@pytest.mark.parametrize("level", LEVELS)
def test_a_request_that_arrives_twice_is_answered_with_the_same_bytes_and_counted_once(
    level: Level,
) -> None:
    steps = ("ask",) if level == "off" else ("advertise", "share", "answer", "confirm", "reveal")
    plan = FaultPlan(faults=tuple(Fault(kind="duplicate", step=s, party=1) for s in steps))
    stage = Stage(level, plan)
    for round_, answer in enumerate(stage.sums(2)):
        assert (answer.total == ideal(gradient_query(round_), SIZES)).all()
    assert stage.federation.report.rejected["duplicate"] >= 2
    assert set(stage.federation.report.rejected) == {"duplicate"}
    answered = stage.grid.sent[first_step(level)]
    assert len(answered) == 2 * (len(SIZES) + 1)
    assert len(set(answered)) == 2 * len(SIZES), "both replies had the same bytes"


@pytest.mark.parametrize("level", LEVELS)
def test_a_late_reply_is_counted_and_of_no_use_but_its_party_comes_back(level: Level) -> None:
    step = first_step(level)
    fault = Fault(kind="delay", step=step, party=3, occurrence=0, seconds=10.4)
    stage = Stage(level, FaultPlan(faults=(fault,)))
    answers = stage.sums(6)
    assert who(answers[0]) == EVERYBODY - {3}
    assert who(answers[-1]) == EVERYBODY
    assert stage.federation.report.rejected["silent"] == 1
    for round_, answer in enumerate(answers):
        assert (answer.total == ideal(gradient_query(round_), answer.sizes)).all()


@pytest.mark.parametrize("level", MASKED)
def test_who_comes_and_goes_does_not_draw_a_run_out(level: Level) -> None:
    """It was waited for in every second round, as long as the run lasted: an hour in thirty."""
    plan = FaultPlan(faults=(Fault(kind="silence", step="answer", party=3),))
    spent = {}
    for leave in (0.0, 20.0):
        stage = Stage(level, plan, leave=leave)
        for round_, answer in enumerate(stage.sums(60)):
            assert who(answer) == EVERYBODY - {3}
            assert (answer.total == ideal(gradient_query(round_), answer.sizes)).all()
        spent[leave] = stage.federation.report.rejected["silent"]
    assert spent[0.0] >= 15
    assert spent[20.0] <= 4


@pytest.mark.parametrize("level", MASKED)
def test_who_is_needed_is_awaited_again_however_often_it_was_silent(level: Level) -> None:
    """Two are away for good: without the third there is no sum."""
    faults = [Fault(kind="silence", step="answer", party=3, occurrence=n) for n in range(8)]
    stage = Stage(level, FaultPlan(faults=tuple(faults)), leave=1e6)
    stage.sums(8)
    assert stage.federation.report.rejected["silent"] >= 2
    stage.federation.recall()
    assert who(stage.sums(2, first=8)[-1]) == EVERYBODY


@pytest.mark.parametrize("level", LEVELS)
def test_a_delay_within_the_deadline_costs_nothing_but_time(level: Level) -> None:
    fault = Fault(kind="delay", step=first_step(level), party=3, seconds=9.0)
    stage = Stage(level, FaultPlan(faults=(fault,), reorder=True, seed=3))
    assert [who(answer) for answer in stage.sums(2)] == [EVERYBODY] * 2
    assert stage.federation.report.rejected == {}
    assert stage.clock.now() >= 18, "it was waited for"


@pytest.mark.parametrize("level", LEVELS)
def test_too_few_answers_fail_clearly_reveal_nothing_and_can_be_asked_again(level: Level) -> None:
    gone = range(3) if level != "off" else EVERYBODY
    step = first_step(level)
    plan = FaultPlan(
        faults=tuple(Fault(kind="error", step=step, party=p, occurrence=1) for p in gone)
    )
    stage = Stage(level, plan)
    stage.sums(1)
    revealed = len(stage.grid.sent.get("reveal", []))
    with pytest.raises(RoundFailed, match="Nothing was revealed"):
        stage.federation.sum(gradient_query(1))
    assert len(stage.grid.sent.get("reveal", [])) == revealed
    (again,) = stage.sums(1, first=1)
    assert (again.total == ideal(gradient_query(1), SIZES)).all()


@pytest.mark.parametrize("level", MASKED)
def test_too_few_shares_leave_the_sum_masked(level: Level) -> None:
    plan = FaultPlan(faults=tuple(Fault(kind="silence", step="reveal", party=p) for p in range(3)))
    stage = Stage(level, plan)
    with pytest.raises(RoundFailed, match="Nothing was revealed"):
        stage.sums(1)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("level", LEVELS)
def test_whatever_goes_wrong_a_sum_is_exact_or_there_is_none(level: Level, seed: int) -> None:
    rates = tuple((kind, 0.01) for kind in FAULTS)
    stage = Stage(level, FaultPlan(rates=rates, seconds=7.0, reorder=True, seed=seed))
    made = 0
    for round_ in range(8):
        query = gradient_query(round_)
        try:
            answer = stage.federation.sum(query)
        except RoundFailed:
            stage.federation.recall()
            continue
        made += 1
        assert len(set(answer.sizes)) == len(answer.sizes)
        assert (answer.total == ideal(query, answer.sizes)).all()
    assert made >= 2
    assert sum(stage.federation.report.rejected.values()) > 0


@pytest.mark.parametrize("level", LEVELS)
def test_planned_dropouts_never_take_more_than_their_fraction_out_of_a_sum(level: Level) -> None:
    leaving = Dropouts(parties=len(SIZES), fraction=0.3, seed=5)
    stage = Stage(level, FaultPlan(dropouts=leaving))
    answers = stage.sums(8)
    missing = [len(SIZES) - len(answer.sizes) for answer in answers]
    assert max(missing) == 1
    assert all(
        (answer.total == ideal(gradient_query(r), answer.sizes)).all()
        for r, answer in enumerate(answers)
    )
    for round_ in range(0, 8, 2):
        assert who(answers[round_]) == EVERYBODY - leaving.silent(round_)


def test_a_real_grid_is_not_asked_about_messages_that_never_reached_it() -> None:
    """It would say that they are gone, and the party with them."""
    plan = FaultPlan(faults=(Fault(kind="error", step="answer", party=1, occurrence=0),))
    stage = Stage("semi-honest", plan)
    pulled: set[str] = set()
    pull = stage.grid.pull_messages

    def noted(message_ids: Iterable[str]) -> Iterable[Message]:
        asked = list(message_ids)
        pulled.update(asked)
        return pull(asked)

    stage.grid.pull_messages = noted  # type: ignore[method-assign]
    stage.sums(1)
    assert pulled
    assert all(name.startswith("message-") for name in pulled)
    assert stage.federation.report.rejected == {"error": 1}


class SlowGrid(Stage):
    """Nodes arrive one by one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        nodes = list(self.grid.get_node_ids())
        self.asked = 0

        def arriving() -> Iterable[int]:
            self.asked += 1
            return nodes[: self.asked]

        self.grid.get_node_ids = arriving  # type: ignore[method-assign]


@pytest.mark.parametrize("level", LEVELS)
def test_nodes_are_waited_for_before_a_cohort_is_fixed(level: Level) -> None:
    stage = SlowGrid(level)
    (answer,) = stage.sums(1)
    assert who(answer) == EVERYBODY
    assert stage.asked == len(SIZES)


@pytest.mark.parametrize("level", LEVELS)
def test_a_node_that_comes_too_late_for_the_first_round_joins_a_later_one(level: Level) -> None:
    stage = Stage(level)
    nodes = list(stage.grid.get_node_ids())
    present = nodes[:-1]
    stage.grid.get_node_ids = lambda: list(present)  # type: ignore[method-assign]
    assert who(stage.sums(1)[0]) == EVERYBODY - {4}
    assert stage.clock.now() >= 5, "it was waited for"
    present.append(nodes[-1])
    assert who(stage.sums(3, first=1)[-1]) == EVERYBODY


def test_nobody_at_all_is_an_error_that_says_so() -> None:
    stage = Stage()
    stage.grid.get_node_ids = list  # type: ignore[method-assign]
    with pytest.raises(RoundFailed, match="no party has joined: 0 nodes are there for 5 parties"):
        stage.sums(1)


def test_the_message_type_names_the_exchange() -> None:
    seen: set[str] = set()

    class Named(Stage):
        pass

    stage = Named("active")
    deliver = stage.grid._deliver

    def noted(message: Message) -> Message:
        seen.add(message.metadata.message_type)
        return deliver(message)

    stage.grid._deliver = noted  # type: ignore[method-assign]
    stage.sums(1)
    names = ("join", "advertise", "share", "answer", "confirm", "reveal")
    assert seen == {f"query.{name}" for name in names}
