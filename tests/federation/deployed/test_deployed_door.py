"""The door of a deployed party: which runs it joins, and what it answers in them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from flwr.app import Message, MessageType, RecordDict

from fedpriv.federation.protocol.wire import Announce, Ask, ClearAnswer, Joined
from fedpriv.federation.queries.local_noise import LocalNoise
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.mechanisms.shares import NoiseShare
from tests.federation.deployed.deployments import FOUR, SIZES, Deployment
from tests.federation.deployed.north_party import RUN, ask, join, noisy, north, query

if TYPE_CHECKING:
    from pathlib import Path

    from fedpriv.federation.queries.kinds import GradientQuery


@pytest.fixture
def active(tmp_path: Path) -> Deployment:
    tmp_path.chmod(0o700)
    return Deployment(folder=tmp_path)


def locally_noisy(deployment: Deployment) -> GradientQuery:
    """With noise of the party's own, which needs no masks."""
    local = LocalNoise(law="gaussian", relative_noise=10.0, adjacency=Adjacency.REPLACE_ONE)
    stated = query(deployment, 0, local=local)
    task = north(deployment).engagement.task
    mechanism = stated.local_mechanism(task, task.smallest)
    assert mechanism is not None
    return replace(stated, event=mechanism.event())


def test_a_fresh_process_goes_on_where_the_last_one_stopped(clear: Deployment) -> None:
    (joined,) = ask(clear, join()).messages
    assert isinstance(joined, Joined)
    assert (joined.party, joined.size) == (0, SIZES[0])
    first = ask(clear, Ask(run=RUN, round=1, party=0), asked=query(clear))
    assert isinstance(first.messages[0], ClearAnswer)
    again = ask(clear, Ask(run=RUN, round=1, party=0), asked=query(clear))
    assert again.to_bytes() == first.to_bytes()


def test_nothing_is_answered_in_a_run_that_was_not_joined(clear: Deployment) -> None:
    reply = ask(clear, Ask(run=RUN, round=1, party=0), asked=query(clear))
    assert (reply.messages, reply.refusal) == ((), "OutOfOrder: No run was joined yet.")
    assert not list(clear.home("north").glob("*.ledger"))


def test_a_masked_run_serves_one_named_run(clear: Deployment) -> None:
    ask(clear, join())
    ask(clear, Ask(run=RUN, round=1, party=0), asked=query(clear))
    other = query(clear, 1, run=query(clear).run + "b")
    reply = ask(clear, Ask(run=RUN, round=2, party=0), asked=other)
    assert "another run than those before it" in reply.refusal


def test_a_server_that_lost_its_place_gets_the_same_answer_in_a_new_run(clear: Deployment) -> None:
    replies = []
    for run in (RUN, RUN[::-1]):
        ask(clear, join(run))
        reply = ask(clear, Ask(run=run, round=1, party=0), asked=locally_noisy(clear))
        (found,) = reply.messages
        assert isinstance(found, ClearAnswer)
        replies.append(found.vector)
    np.testing.assert_array_equal(replies[0], replies[1])


def test_less_protection_than_the_policy_asks_for_is_refused_at_the_door(
    active: Deployment,
) -> None:
    for level in ("off", "semi-honest"):
        config = active.config(run={"secure_aggregation": level})
        reply = ask(active, join(), config=config)
        assert reply.messages == ()
        assert f"secure aggregation {level!r}" in reply.refusal
    assert ask(active, join()).messages


def test_a_party_neither_trains_nor_evaluates_for_flower(clear: Deployment) -> None:
    """No metric on a party's records leaves it: there is nobody to ask for one."""
    grid = clear.grid()
    for kind in (MessageType.TRAIN, MessageType.EVALUATE, f"{MessageType.QUERY}.metrics"):
        (name,) = grid.push_messages([Message(RecordDict(), 1001, kind)])
        (reply,) = grid.pull_messages([name])
        assert reply.has_error()


def test_a_strategy_that_is_not_in_the_policy_is_refused_at_the_door(
    active: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    config = active.config(strategy={"name": "local-gradient-perturbation"})
    reply = ask(active, join(), config=config)
    assert "no run of strategy 'local-gradient-perturbation'" in reply.refusal
    assert reply.refusal in caplog.text  # the party's own log has it, too


def test_a_round_that_would_open_too_small_a_sum_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    deployment = Deployment(folder=tmp_path, **FOUR, policy={"min_parties": 4})
    ask(deployment, join())
    for number, (minimum, refusal) in enumerate(((3, "insists on 4"), (4, "")), 1):
        announced = Announce(run=RUN, round=number, party=0, cohort=(0, 1, 2, 3), minimum=minimum)
        reply = ask(deployment, announced)
        assert refusal in reply.refusal
        assert len(reply.messages) == (0 if refusal else 1)


def test_an_answer_in_the_clear_is_refused_where_masks_are_asked_for(active: Deployment) -> None:
    ask(active, join())
    reply = ask(active, Ask(run=RUN, round=1, party=0), asked=query(active))
    assert "under masks only" in reply.refusal


def test_a_share_in_the_clear_is_refused(clear: Deployment) -> None:
    ask(clear, join())
    share = NoiseShare(law="skellam", parameter=1e16, minimum=3, colluders=1)
    asked = replace(noisy(clear), share=share)
    reply = ask(clear, Ask(run=RUN, round=1, party=0), asked=asked)
    assert "assume 3 parties" in reply.refusal
