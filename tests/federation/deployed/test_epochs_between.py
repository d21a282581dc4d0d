"""Releases between two epochs of the roster: the same numbers are other parties."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from fedpriv.federation.engines.grid import GridFederation, RoundFailed
from fedpriv.federation.protocol.wire import Announce, Join, Reply, Request
from fedpriv.simulations.deploy.folders import PartyFolder
from fedpriv.simulations.deploy.members.epochs import accept
from fedpriv.simulations.deploy.members.roster import write_roster
from fedpriv.simulations.deploy.run.public_facts import prepare_deployed
from fedpriv.simulations.deploy.run.server import open_session
from fedpriv.simulations.engines.parties import protection
from fedpriv.simulations.experiment.file import parse_experiment
from fedpriv.simulations.run.prepare import build_strategy
from tests.federation.deployed.deployments import FIVE, HELD, PATIENCE, Deployment
from tests.federation.deployed.failing_grids import partial_grid

if TYPE_CHECKING:
    from pathlib import Path

    from fedpriv.federation.federation import Sum
    from fedpriv.federation.queries.kinds import Query

SHARES: dict[str, Any] = {
    "names": FIVE,
    "sizes": HELD,
    "policy": {"noise_at": "parties"},
    "experiment": {"privacy": {"noise_at": "parties"}, "run": {"dropout": 0.2}},
}


def expel(deployment: Deployment, name: str) -> None:
    """The next epoch of the roster, which everybody who is left accepts."""
    old = deployment.roster
    new = old.successor(replace(old.row(name), expelled=old.epoch + 1))
    write_roster(deployment.server / "roster.toml", new)
    for other in new.names:
        accept(PartyFolder(deployment.home(other)), [old, new], fingerprint=new.fingerprint)
    deployment.roster = new


def first_query(deployment: Deployment, output: Path) -> Query:
    place = {"config": deployment.config(), "roster": str(deployment.server / "roster.toml")}
    session, _ = open_session({**place, "output": str(output)})
    query = build_strategy(session.prepared, run=session.identity.run).ask()
    assert query is not None
    return query


def summed(deployment: Deployment, query: Query, *missing: int) -> Sum:
    """What a server gets that asks under the roster of now."""
    roster = deployment.roster
    experiment = parse_experiment(tomllib.loads(deployment.config()))
    prepared = prepare_deployed(experiment, sizes=roster.sizes)
    federation = GridFederation(
        partial_grid(deployment, *missing),
        task=prepared.task,
        protection=protection(prepared.experiment),
        roster=roster.identities,
        patience=PATIENCE,
        seal=deployment.seal(),
    )
    return federation.sum(query)


@pytest.fixture
def five(tmp_path: Path) -> Deployment:
    tmp_path.chmod(0o700)
    return Deployment(folder=tmp_path, **SHARES)


def test_a_release_is_not_opened_again_over_the_same_numbers_of_other_parties(
    five: Deployment, tmp_path: Path
) -> None:
    """The server expels its colluder: seats move up, and (0, 1, 2, 3) are four other parties.

    The two sums differed by what "centre" sent, with its one share of the noise, and by what the
    colluder knows of itself.
    """
    query = first_query(five, tmp_path / "out")
    assert len(summed(five, query, 4).sizes) == 4
    expel(five, "north")
    with pytest.raises(RoundFailed):
        summed(five, query)


def test_a_run_does_not_go_on_in_the_next_epoch(five: Deployment, tmp_path: Path) -> None:
    """Its statement, of the new roster, would tell of thresholds that the first sums did not have.

    A server had one release of a run made by few parties, others by many, and all of them attested
    as sums of many.
    """
    query = first_query(five, tmp_path / "out")
    summed(five, query)
    expel(five, "north")
    with pytest.raises(RoundFailed, match="began under another epoch"):
        summed(five, replace(query, round=1))


def test_the_same_release_of_a_run_that_began_in_the_new_epoch_is_opened(
    five: Deployment, tmp_path: Path
) -> None:
    """The twin of the test above: four parties of the next epoch do open such a sum."""
    query = first_query(five, tmp_path / "out")
    expel(five, "north")
    assert len(summed(five, query).sizes) == 4


def test_a_place_in_a_masked_run_is_not_taken_over_into_the_next_epoch(five: Deployment) -> None:
    """A smaller roster has a lower threshold, and the numbers in its cohorts are of others."""
    join = Request(messages=(Join(run=b"r" * 32, round=0, party=0),)).to_bytes()
    assert Reply.from_bytes(five.host("north").handle(join)).messages
    expel(five, "centre")  # nobody's number moves
    announced = Announce(run=b"r" * 32, round=1, party=0, cohort=(0, 1, 2, 3), minimum=4)
    again = Request(messages=(announced,))
    refusal = Reply.from_bytes(five.host("north").handle(again.to_bytes())).refusal
    assert "another epoch of the roster" in refusal
