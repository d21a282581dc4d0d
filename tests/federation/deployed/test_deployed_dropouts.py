"""Parties that leave a deployed run, and come back: who is waited for, and over whom is opened."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv.federation.engines.grid import GridFederation, RoundFailed
from fedpriv.federation.engines.local import LocalGrid
from fedpriv.federation.party.client_app import client_app
from fedpriv.simulations.deploy.run.server import open_session
from fedpriv.simulations.engines.parties import protection
from fedpriv.simulations.run.prepare import build_strategy
from tests.federation.deployed.deployments import FOUR, PATIENCE, Deployment
from tests.federation.deployed.failing_grids import SHARES, deployed, partial_grid

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from flwr.app import Message

    from fedpriv.federation.federation import Sum
    from fedpriv.federation.queries.kinds import Query


class RebootingGrid(LocalGrid):
    """All nodes go down when they are first asked for a step, and are back after a few looks."""

    step: str
    looks = 0

    def get_node_ids(self) -> Iterable[int]:
        self.looks = max(0, self.looks - 1)
        return [] if self.looks else super().get_node_ids()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        outgoing = list(messages)
        if outgoing[0].metadata.message_type == f"query.{self.step}":
            self.step, self.looks = "", 5
            return []
        return super().push_messages(outgoing)


def test_a_party_that_never_comes_is_a_drop_out(tmp_path: Path) -> None:
    deployment = deployed(tmp_path, **FOUR)
    result = deployment.run(tmp_path / "out", grid=partial_grid(deployment, 2))
    assert result["rounds"] == 4
    assert len(deployment.reserved("north")) == 4
    assert not list(deployment.home("south").glob("*.ledger"))


def test_three_parties_go_on_without_one_only_if_nobody_colludes(tmp_path: Path) -> None:
    """One of the two that are left would know the other's answer from the sum."""
    deployment, out = deployed(tmp_path), tmp_path / "out"
    with pytest.raises(RoundFailed, match="2 of 3 parties are too few for a sum of at least 3"):
        deployment.run(out, grid=partial_grid(deployment, 2))
    trusting = {"policy": {"colluding": 0.0}, "experiment": {"privacy": {"colluding": 0.0}}}
    (folder := tmp_path / "trusting").mkdir()
    deployment = deployed(folder, **trusting)
    assert deployment.run(folder / "out", grid=partial_grid(deployment, 2))["rounds"] == 4


def test_a_party_that_comes_back_is_let_in_again(tmp_path: Path) -> None:
    deployment = deployed(tmp_path, **FOUR, experiment={"strategy": {"rounds": 5}})
    grid = partial_grid(deployment)
    session, roster = open_session(
        {
            "config": deployment.config(),
            "roster": str(deployment.server / "roster.toml"),
            "output": str(tmp_path / "out"),
        }
    )
    strategy = build_strategy(session.prepared, run=session.identity.run)
    federation = GridFederation(
        grid,
        task=session.prepared.task,
        protection=protection(session.prepared.experiment),
        roster=roster.identities,
        patience=PATIENCE,
        seal=deployment.seal(),
    )
    sizes = []
    for missing in (set[int](), {2}, set[int](), set[int](), set[int]()):
        grid.missing = missing
        query = strategy.ask()
        assert query is not None
        answer = federation.sum(query)
        sizes.append(len(answer.sizes))
        strategy.learn(answer)
    # The cohort of a round is fixed one round ahead.
    assert sizes == [4, 3, 3, 3, 4]
    assert len(deployment.reserved("south")) == 2


@pytest.mark.parametrize("step", ["join", "advertise", "share", "answer", "confirm", "reveal"])
def test_parties_that_all_go_down_at_once_are_waited_for_and_asked_again(
    tmp_path: Path, step: str
) -> None:
    deployment = deployed(tmp_path, **SHARES)
    config = deployment.config(strategy={"rounds": 2})
    party = partial(deployment.signed_host, config=config)
    grid = RebootingGrid(client_app(party), len(deployment.names))
    grid.step = step
    result = deployment.run(tmp_path / "out", grid=grid, config=config)
    assert (result["rounds"], grid.step) == (2, "")
    for name in deployment.names:
        assert len(deployment.reserved(name)) == 2


def test_a_run_that_stops_for_too_few_parties_tells_what_the_parties_said(tmp_path: Path) -> None:
    deployment = deployed(tmp_path)
    deployment.write_party("north", policy={"min_noise": 100.0})
    deployment.write_party("east", policy={"max_clip": 0.5})
    with pytest.raises(RoundFailed, match="no sum for release 0: 1 parties remain") as failed:
        deployment.run(tmp_path / "out")
    said = str(failed.value)
    assert re.search(r"3 × QueryRefused: the release would have noise of .* insists on 100", said)
    assert (
        "3 × QueryRefused: the query bounds one record's part in the answer by 1, and this party "
        "allows at most 0.5." in said
    )


def test_a_run_that_nobody_joins_tells_what_the_parties_said(tmp_path: Path) -> None:
    deployment = deployed(tmp_path, policy={"strategies": ["output-perturbation"]})
    with pytest.raises(RoundFailed, match="no party has joined: 3 nodes are there") as failed:
        deployment.run(tmp_path / "out")
    # Three parties, each of which is asked again at every attempt.
    assert "9 × QueryRefused: this party takes part in no run of strategy" in str(failed.value)


def asked_of(deployment: Deployment, output: Path) -> tuple[Any, Any, Query]:
    """A server's session and roster, and the first query of its run."""
    session, roster = open_session(
        {
            "config": deployment.config(),
            "roster": str(deployment.server / "roster.toml"),
            "output": str(output),
        }
    )
    query = build_strategy(session.prepared, run=session.identity.run).ask()
    assert query is not None
    return session, roster, query


def summed(
    deployment: Deployment,
    asked: tuple[Any, Any, Query],
    *missing: int,
    grid: LocalGrid | None = None,
) -> Sum:
    """The sum that a server gets that begins anew, from the parties that are there."""
    session, roster, query = asked
    federation = GridFederation(
        grid or partial_grid(deployment, *missing),
        task=session.prepared.task,
        protection=protection(session.prepared.experiment),
        roster=roster.identities,
        patience=PATIENCE,
        seal=deployment.seal(),
    )
    return federation.sum(query)


def test_noise_of_the_parties_is_opened_over_one_set_of_parties_only(tmp_path: Path) -> None:
    """Two sums of one release over different parties would differ by what one party sent."""
    deployment = deployed(tmp_path, **SHARES)
    asked = asked_of(deployment, tmp_path / "out")
    everybody = summed(deployment, asked)
    assert len(everybody.sizes) == 4
    with pytest.raises(RoundFailed, match="no sum for release 0"):
        summed(deployment, asked, 2)
    again = summed(deployment, asked)
    np.testing.assert_array_equal(again.total, everybody.total)


def test_a_sum_of_three_parties_would_have_been_opened_first(tmp_path: Path) -> None:
    """The twin of the test above: it was not the number of parties that was refused."""
    deployment = deployed(tmp_path, **SHARES)
    asked = asked_of(deployment, tmp_path / "out")
    assert len(summed(deployment, asked, 2).sizes) == 3
    with pytest.raises(RoundFailed):
        summed(deployment, asked)


@pytest.mark.parametrize("step", ["confirm", "reveal"])
@pytest.mark.parametrize("further", [False, True])
def test_a_release_that_is_asked_for_in_two_masked_runs_at_once_is_opened_in_one(
    tmp_path: Path, step: str, further: bool
) -> None:
    """Where the answer was given last, also when the parties have gone on to the next release."""
    deployment = deployed(tmp_path, **SHARES)
    session, roster, query = asked_of(deployment, tmp_path / "out")
    opened: list[Sum] = []

    def meanwhile() -> None:
        strategy = build_strategy(session.prepared, run=session.identity.run)
        for missing in ((2,), ())[: 1 + further]:
            asked = strategy.ask()
            assert asked is not None
            opened.append(summed(deployment, (session, roster, asked), *missing))
            strategy.learn(opened[-1])

    grid = partial_grid(deployment)
    grid.step, grid.between = step, meanwhile
    with pytest.raises(RoundFailed):
        summed(deployment, (session, roster, query), grid=grid)
    assert [len(each.sizes) for each in opened] == [3, 4][: 1 + further]


def test_a_server_that_adds_the_noise_may_ask_again_over_other_parties(tmp_path: Path) -> None:
    """It sees exact sums anyhow: after a crash it goes on with whoever is left."""
    deployment = deployed(tmp_path, **FOUR)
    asked = asked_of(deployment, tmp_path / "out")
    assert len(summed(deployment, asked).sizes) == 4
    assert len(summed(deployment, asked, 0).sizes) == 3
    assert len(deployment.reserved("east")) == 1
