"""Honest parties and an honest server: the masked sum is the ideal sum, whoever drops out."""

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from fedpriv.secagg import FixedPoint, Mode, Parameters, Party, Round, Server
from fedpriv.secagg.errors import TooFewParties, WrongRound
from fedpriv.secagg.thresholds import COMPLETE
from tests.secagg.cohort import Cohort, Dice, Play, ideal, random_answers, small

MODES = list(Mode)


def subsets(members: Any) -> Iterator[tuple[int, ...]]:
    ordered = sorted(members)
    for size in range(len(ordered) + 1):
        yield from combinations(ordered, size)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("dimension", [0, 1, 40_000])
def test_the_masked_sum_is_the_ideal_sum_bit_for_bit(mode: Mode, bits: int, dimension: int) -> None:
    answers = random_answers(range(5), dimension, bits)
    total = Play(Cohort(small(mode)), answers).run()
    assert total.parties == (0, 1, 2, 3, 4)
    assert total.vector.dtype == np.dtype(f"<u{bits // 8}")
    assert (total.vector == ideal(answers, range(5))).all()
    assert total.rejected == ()
    assert total.wrong == frozenset()


@pytest.mark.parametrize(("mode", "bits"), [(Mode.SEMI_HONEST, 32), (Mode.ACTIVE, 64)])
def test_every_pattern_of_drop_outs_gives_the_ideal_sum_or_nothing(mode: Mode, bits: int) -> None:
    """Five parties, each silent from any step on, or never: all 5^5 or 6^5 patterns.

    Steps are pure, so the patterns are walked as a tree: what happened before a drop-out is
    computed once. A branch ends where too few are left, and there the server must refuse.
    """
    cohort = Cohort(small(mode))
    answers = random_answers(cohort.numbers, 3, bits)
    parties, server = cohort.parties(), cohort.server()
    least = cohort.parameters.minimum
    ends = {"sums": 0, "refusals": 0}

    def refuses(call: Any, *arguments: Any, **options: Any) -> None:
        with pytest.raises(TooFewParties):
            call(*arguments, **options)
        ends["refusals"] += 1

    def branches(messages: dict[int, Any], collect: Any) -> Iterator[tuple[Any, dict[int, Any]]]:
        """The server's step on every subset of what could have arrived."""
        for present in subsets(messages):
            inbox = [messages[i] for i in present]
            if len(present) < least:
                refuses(collect, inbox)
            else:
                yield collect(inbox)

    def step(method: str, states: dict[int, Any], boxes: dict[int, Any], *more: Any) -> Any:
        moved = {
            i: getattr(parties[i], method)(states[i], box, *(argument(i) for argument in more))
            for i, box in boxes.items()
        }
        return {i: s for i, (s, _) in moved.items()}, {i: m for i, (_, m) in moved.items()}

    def end(server_state: Any, states: dict[int, Any], boxes: dict[int, Any]) -> None:
        _, revealed = step("reveal", states, boxes)
        survivors = getattr(server_state, "answers", server_state).survivors
        for present in subsets(revealed):
            inbox = [revealed[i] for i in present]
            if len(present) < cohort.parameters.threshold:
                refuses(server.finish, server_state, inbox)
            else:
                total = server.finish(server_state, inbox)
                assert total.parties == tuple(sorted(survivors))
                assert (total.vector == ideal(answers, survivors)).all()
                ends["sums"] += 1

    first = {
        i: parties[i].advertise(cohort.enrolled(i), Dice("advertise", i)) for i in cohort.numbers
    }
    states_0 = {i: state for i, (state, _) in first.items()}
    sent_0 = {i: message for i, (_, message) in first.items()}
    for server_1, boxes_1 in branches(sent_0, server.collect_keys):
        states_1, sent_1 = step("share", states_0, boxes_1, lambda i: Dice("share", i))

        def shares(inbox: Any, before: Any = server_1) -> Any:
            return server.collect_shares(before, inbox)

        for server_2, boxes_2 in branches(sent_1, shares):
            states_2, sent_2 = step("answer", states_1, boxes_2, lambda i: answers[i])

            def collected(inbox: Any, before: Any = server_2) -> Any:
                return server.collect_answers(before, inbox, dimension=3, bits=bits)

            for server_3, boxes_3 in branches(sent_2, collected):
                if mode is Mode.SEMI_HONEST:
                    end(server_3, states_2, boxes_3)
                    continue
                states_3, sent_3 = step("confirm", states_2, boxes_3)
                for present in subsets(sent_3):
                    inbox = [sent_3[i] for i in present]
                    server_4, boxes_4 = server.collect_consent(server_3, inbox)
                    if len(present) < cohort.parameters.threshold:
                        for i in present:
                            refuses(parties[i].reveal, states_3[i], boxes_4[i])
                    else:
                        end(server_4, states_3, boxes_4)
    # 5 parties over s steps with at least 3 left at the end: Σ_j C(5, j)·s^(5-j), j = 3, 4, 5.
    steps = 4 if mode is Mode.SEMI_HONEST else 5
    assert ends["sums"] == 10 * steps**2 + 5 * steps + 1
    assert ends["refusals"] > 100


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("step", [0, 1, 2, 4])
def test_exactly_threshold_survivors_suffice_and_one_fewer_do_not(mode: Mode, step: int) -> None:
    cohort = Cohort(small(mode, parties=7, threshold=4))
    answers = random_answers(range(7), 5, 32)
    total = Play(cohort, answers).run({step: {0, 3, 6}})
    survivors = range(7) if step == 4 else (1, 2, 4, 5)
    assert (total.vector == ideal(answers, survivors)).all()
    with pytest.raises(TooFewParties):
        Play(cohort, answers).run({step: {0, 3, 5, 6}})


@pytest.mark.parametrize("mode", MODES)
def test_the_configured_minimum_is_enforced_above_the_threshold(mode: Mode) -> None:
    parameters = Parameters.plan(mode=mode, parties=6, minimum=5)
    answers = random_answers(range(6), 5, 32)
    assert Play(Cohort(parameters), answers).run({2: {0}}).parties == (1, 2, 3, 4, 5)
    with pytest.raises(TooFewParties, match="4 parties remain of the 5 required"):
        Play(Cohort(parameters), answers).run({2: {0, 1}})


@pytest.mark.parametrize("mode", MODES)
def test_two_parties_are_enough(mode: Mode) -> None:
    answers = random_answers(range(2), 5, 64)
    total = Play(Cohort(Parameters.plan(mode=mode, parties=2)), answers).run()
    assert (total.vector == ideal(answers, range(2))).all()


def test_a_sparse_graph_survives_drop_outs_at_every_step() -> None:
    parameters = Parameters(
        mode=Mode.SEMI_HONEST,
        roster=40,
        colluders=0,
        parties=40,
        holders=16,
        threshold=9,
        minimum=30,
    )
    answers = random_answers(range(40), 11, 32)
    drops = {0: {0, 9}, 1: {1, 8}, 2: {2, 7, 33}, 3: {3}, 4: {4, 39}}
    play = Play(Cohort(parameters), answers)
    total = play.run(drops)
    survivors = set(range(40)) - {0, 9, 1, 8, 2, 7, 33}
    assert total.parties == tuple(sorted(survivors))
    assert (total.vector == ideal(answers, survivors)).all()
    degrees = [len(state.holders) for state in play.states.values() if hasattr(state, "holders")]
    assert set(degrees) <= {16}


def test_the_smallest_planned_sparse_cohort_runs() -> None:
    parties = COMPLETE + 1
    answers = random_answers(range(parties), 4, 32)
    parameters = Parameters.plan(mode="semi-honest", parties=parties)
    assert not parameters.complete
    total = Play(Cohort(parameters), answers).run({1: range(3), 2: range(3, 9), 4: range(9, 12)})
    assert (total.vector == ideal(answers, range(9, parties))).all()


def test_a_cohort_may_be_any_part_of_the_roster() -> None:
    whole = Cohort(small("active", parties=9, threshold=5))
    members = (0, 1, 3, 4, 5, 7, 8)
    parameters = Parameters.plan(mode="active", parties=7, roster=9, corrupt=0.0, minimum=6)
    announced = Round(
        run=whole.run,
        number=1,
        cohort=members,
        roster=whole.announced().roster,
        parameters=parameters,
    )
    play = Play(whole, random_answers(members, 6, 32))
    play.parties = {
        i: Party(number=i, announced=announced, identity=p.identity, channel_key=p.channel_key)
        for i, p in play.parties.items()
        if i in members
    }
    play.server = Server(announced=announced)
    play.collect_keys(play.advertise(gone=set(range(9)) - set(members)))
    play.collect_shares(play.share())
    play.collect_answers(play.answer(gone={4}))
    play.collect_consent(play.confirm())
    total = play.finish(play.reveal())
    survivors = (0, 1, 3, 5, 7, 8)
    assert total.parties == survivors
    assert (total.vector == ideal(play.answers, survivors)).all()


def test_real_answers_pass_through_fixed_point_and_back() -> None:
    generator = np.random.default_rng(5)
    real = generator.normal(size=(5, 30))
    grid = FixedPoint.for_sum(bound=100.0, sensitivity=2.0, dimension=30, noise_stddev=3.0)
    answers = {i: grid.encode(real[i], bound=20.0) for i in range(5)}
    total = Play(Cohort(small("active")), answers).run({2: {1}})
    kept = real[[0, 2, 3, 4]]
    assert (total.vector == grid.encode_sum(kept)).all()
    error = np.abs(grid.decode(total.vector) * grid.step - kept.sum(axis=0)).max()
    assert error <= 4 * grid.step / 2 + 1e-12


@pytest.mark.parametrize("mode", MODES)
def test_a_run_goes_from_round_to_round_and_never_back(mode: Mode) -> None:
    cohort = Cohort(small(mode))
    answers = random_answers(range(5), 4, 32)
    first = Play(cohort, answers)
    first.run({2: {0}})
    second = Play(cohort, answers, number=2, last=first.states)
    assert (second.run({1: {3}}).vector == ideal(answers, (0, 1, 2, 4))).all()
    for number in (1, 2):
        with pytest.raises(WrongRound, match="is not after round"):
            Play(cohort, answers, number=number, last=second.states).advertise()


def test_the_next_round_can_be_prepared_during_this_one() -> None:
    """Advertise and share of round 2 ride on steps 3 and 4 of round 1: states do not interfere."""
    cohort = Cohort(small("active"))
    answers = random_answers(range(5), 4, 32)
    one = Play(cohort, answers)
    one.collect_keys(one.advertise())
    one.collect_shares(one.share())
    one.collect_answers(one.answer())
    two = Play(cohort, answers, number=2, last=one.states)
    confirmed, advertised = one.confirm(), two.advertise()
    one.collect_consent(confirmed)
    two.collect_keys(advertised)
    revealed, shared = one.reveal(), two.share()
    assert (one.finish(revealed).vector == ideal(answers, range(5))).all()
    two.collect_shares(shared)
    two.collect_answers(two.answer(gone={2}))
    two.collect_consent(two.confirm())
    assert (two.finish(two.reveal()).vector == ideal(answers, (0, 1, 3, 4))).all()


def test_an_inbox_may_be_a_stream() -> None:
    play = Play(Cohort(small("semi-honest")), random_answers(range(5), 4, 32)).until("answer")
    state, _ = play.server.collect_answers(
        play.server_state, (message for message in play.answer()), dimension=4, bits=32
    )
    assert state.survivors == frozenset(range(5))
