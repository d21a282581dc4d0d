"""`fedpriv describe` on deployed parties: what they check and pay for, and the statement."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from fedpriv._toml import to_toml
from fedpriv.federation.deployed.party import DeployedParty
from fedpriv.federation.party.guard import QueryRefused
from fedpriv.federation.queries.bounds import share_mechanism
from fedpriv.federation.queries.kinds import StatisticsQuery
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import GaussianEvent
from fedpriv.privacy.mechanisms.shares import NoiseShare
from fedpriv.privacy.planning.statistics.statistics_blocks import Block
from fedpriv.privacy.planning.statistics.statistics_design import Design, weigh
from fedpriv.secagg import FixedPoint
from tests.federation.deployed.deployments import FOUR, NAMES, SIZES, Deployment

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from fedpriv.federation.deployed.host import DeployedHost

DESCRIBE: dict[str, Any] = {
    "name": "describe",
    "bins": 8,
    "correlation": ["age", "dose"],
    "edges": {"age": [50.0]},
}
WILLING: dict[str, Any] = {"strategies": ["describe"], "queries": ["statistics"]}
TREE = Block(kind="tree", columns=(1,), cells=(8,))
EVENT = GaussianEvent(relative_noise=4.0, adjacency=Adjacency.REPLACE_ONE)


class Describing(Deployment):
    """A deployment whose experiment describes its tables."""

    def config(self, **sections: Mapping[str, Any]) -> str:
        values = tomllib.loads(super().config(**sections))
        chosen = (self.experiment.get("strategy", {}), sections.get("strategy", {}))
        strategy = {**DESCRIBE, **chosen[0], **chosen[1]}
        if strategy.get("magnitudes"):  # which are asked for alone
            strategy = {key: strategy[key] for key in ("name", "magnitudes")}
        return to_toml({**values, "strategy": strategy})


@pytest.fixture
def federation(tmp_path: Path) -> Describing:
    return Describing(folder=tmp_path, policy=WILLING)


def north(deployment: Deployment) -> DeployedHost:
    return deployment.host("north")


def asked(deployment: Deployment, **changes: Any) -> StatisticsQuery:
    engagement = north(deployment).engagement
    values: dict[str, Any] = {
        "run": f"{engagement.run}-1",
        "round": 0,
        "grid": FixedPoint(step=2.0**-12, bits=64),
        "event": EVENT,
        "design": weigh([[TREE]], {}, adjacency=Adjacency.REPLACE_ONE),
        **changes,
    }
    return StatisticsQuery(**values)


def answered(deployment: Deployment, query: StatisticsQuery) -> Any:
    party = north(deployment).party
    assert isinstance(party, DeployedParty)
    with party._journal.held():
        return party.answer(query)


def test_a_deployed_description_is_paid_by_every_party_and_stated(
    federation: Describing, tmp_path: Path
) -> None:
    out = tmp_path / "runs" / "one"
    result = federation.run(out)
    assert result["strategy"] == "describe"
    found = json.loads((out / "statistics.json").read_text())
    assert found["total"] == {"count": float(sum(SIZES)), "noise": 0.0, "public": True}
    assert set(found["columns"]) == {"age", "dose", "sick"}
    for name in NAMES:
        assert len(federation.reserved(name)) == 1
        with federation.ledger(name) as ledger:
            assert ledger.spent().guarantee.epsilon == pytest.approx(2.0, rel=1e-6)
    statement = (out / "statement.txt").read_text()
    assert "statistics.json" in statement
    assert "model.npz" not in statement
    assert not (out / "model.npz").exists()


def test_shares_of_noise_come_from_the_parties(tmp_path: Path) -> None:
    deployment = Describing(
        folder=tmp_path,
        policy={**WILLING, "noise_at": "parties"},
        experiment={
            "privacy": {"noise_at": "parties"},
            "run": {"dropout": 0.25},
        },
        **FOUR,
    )
    out = tmp_path / "runs" / "one"
    deployment.run(out)
    plan = json.loads((out / "plan.json").read_text())
    assert plan["noise_at"] == "parties"
    assert json.loads((out / "statistics.json").read_text())["columns"]["age"]["missing"]


def test_shares_that_no_sampler_draws_are_not_paid_for(tmp_path: Path) -> None:
    """A variance of 2^90 steps, on a grid that a lying server made too fine for it."""
    deployment = Describing(
        folder=tmp_path,
        policy={**WILLING, "noise_at": "parties"},
        experiment={"privacy": {"noise_at": "parties"}},
    )
    share = NoiseShare(law="skellam", minimum=3, colluders=1, parameter=2.0**90)
    query = asked(deployment, grid=FixedPoint(step=2.0**-42, bits=64), share=share)
    noise = share_mechanism(query, north(deployment).engagement.task)
    assert noise is not None
    with pytest.raises(QueryRefused, match="the noise cannot be drawn"):
        answered(deployment, replace(query, event=noise.event()))
    assert not (deployment.home("north") / "north.ledger").exists()


def test_the_answer_is_of_the_columns_in_the_partys_file(federation: Describing) -> None:
    query = asked(federation)
    ring = answered(federation, query)
    leaves = query.grid.decode(ring)[-8:] * query.grid.step / query.design.blocks[0].weight
    rows = (federation.home("north") / "records.csv").read_text().splitlines()[1:]
    ages = [float(row.split(",")[0]) for row in rows]
    expected = [sum(12.5 * k <= age < 12.5 * (k + 1) for age in ages) for k in range(8)]
    assert leaves == pytest.approx(expected, abs=1e-2)
    assert len(federation.reserved("north")) == 1
    assert (answered(federation, query) == ring).all()  # the same again, and not paid again
    assert len(federation.reserved("north")) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"design": Design(blocks=(Block(kind="moments", columns=(7,)),))}, "among the 3"),
        ({"design": Design(blocks=(Block(kind="moments", columns=(0,)),))}, "kinds of its columns"),
        (
            {"design": Design(blocks=(Block(kind="histogram", columns=(0,), cells=(9,)),))},
            "kinds of its columns",
        ),
        ({"design": Design(blocks=(Block(kind="tree", columns=(1,), cells=(8,)),))}, "at most 1"),
        ({"event": GaussianEvent(relative_noise=0.1, adjacency=Adjacency.REPLACE_ONE)}, "insists"),
        ({"event": None}, "no privacy event"),
        ({"by_party": True}, "asks for statistics, and this query is for statistics by party"),
        ({"grid": FixedPoint(step=2.0**-60, bits=64)}, "wrap around"),
    ],
)
def test_what_a_party_does_not_answer(
    federation: Describing, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(QueryRefused, match=message):
        answered(federation, asked(federation, **changes))
    assert not (federation.home("north") / "north.ledger").exists() or not federation.reserved(
        "north"
    )


def test_parties_with_other_bounds_are_not_added_up(federation: Describing, tmp_path: Path) -> None:
    """North's ages would be halves of what the others count, and nobody would know."""
    schema = federation.home("north") / "schema.toml"
    values = tomllib.loads(schema.read_text())
    values["columns"]["age"]["max"] *= 2
    schema.write_text(to_toml(values))
    with pytest.raises(RuntimeError, match="agree on one schema"):
        federation.run(tmp_path / "runs" / "one")
    assert not (federation.home("north") / "north.ledger").exists()


def test_records_that_are_set_apart_for_testing_are_not_described(
    federation: Describing, tmp_path: Path
) -> None:
    """The roster does not count them: their party would refuse, for having too many."""
    home = federation.home("north")
    header, *rows = (home / "records.csv").read_text().splitlines()
    marked = [f"{header},fold", *(f"{row},learn" for row in rows), f"{rows[0]},test"]
    (home / "records.csv").write_text("\n".join(marked) + "\n")
    values = tomllib.loads((home / "schema.toml").read_text())
    apart = {"test_column": "fold", "test_values": ["test"], **values}
    (home / "schema.toml").write_text(to_toml(apart))
    federation.run(tmp_path / "runs" / "one")
    assert len(federation.reserved("north")) == 1


def test_a_party_must_be_willing(tmp_path: Path) -> None:
    for policy in ({"strategies": ["describe"]}, {"queries": ["statistics"]}):
        folder = tmp_path / "-".join(policy)
        unwilling = Describing(folder=folder, policy=policy)
        with pytest.raises(QueryRefused):
            answered(unwilling, asked(unwilling))


def test_a_model_is_not_asked_for_statistics(tmp_path: Path) -> None:
    deployment = Deployment(folder=tmp_path, policy={"queries": ["gradient", "statistics"]})
    host = deployment.host("north")
    query = asked(Describing(folder=tmp_path / "other", policy=WILLING))
    values = {name: getattr(query, name) for name in ("round", "grid", "event", "design")}
    party = host.party
    assert isinstance(party, DeployedParty)
    with party._journal.held(), pytest.raises(QueryRefused, match="asks for gradient"):
        party.answer(StatisticsQuery(run=f"{host.engagement.run}-1", **values))
