"""Adaptive and learned strategies, deployed: every party pays for every release by itself, once."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from flwr.app import Context, RecordDict

from fedpriv.federation.deployed.journal import Journal
from fedpriv.federation.deployed.party import DeployedParty
from fedpriv.federation.deployed.statements.verifying import verify
from fedpriv.federation.party.guard import QueryRefused
from fedpriv.federation.queries.bounds import share_mechanism
from fedpriv.federation.queries.kinds import GradientQuery, LossQuery
from fedpriv.privacy.events import PureEvent
from fedpriv.privacy.ledger import Ledger
from fedpriv.simulations.deploy.run.jobs.statement_file import pinned, read_statement
from fedpriv.simulations.deploy.run.public_facts import prepare_deployed
from fedpriv.simulations.deploy.run.server import open_session
from fedpriv.simulations.experiment.file import parse_experiment
from fedpriv.simulations.run.prepare import build_strategy
from fedpriv.simulations.server_app import main
from tests.federation.deployed.deployments import FLOWER, FOUR, Deployment

if TYPE_CHECKING:
    from pathlib import Path

    from fedpriv.federation.queries.kinds import Query
    from fedpriv.federation.strategy.base import SumStrategy

QUANTILE: dict[str, Any] = {
    "name": "adaptive-clipping",
    "rounds": 4,
    "clip": 1.0,
    "largest_clip": 1.0,
}
COORDINATE: dict[str, Any] = {**QUANTILE, "rule": "coordinate"}
GRADIENTS: dict[str, Any] = {"name": "gradient-perturbation", "rounds": 4, "clip": 1.0}
LEARNED: dict[str, Any] = {"name": "learned-protection", "horizon": 4, "clip": 1.0}
SECOND_ORDER: dict[str, Any] = {"name": "second-order", "rounds": 3}
AGD: dict[str, Any] = {"name": "agd", "splits": 3, "clip": 1.0, "loss_clip": 1.0}
ROOM = 4.0  # of the parties' budgets: a Rényi ledger charges more than a filter of squared GDP


def deployment(
    folder: Path, strategy: dict[str, Any], *, noise_at: str = "server", **policy: Any
) -> Deployment:
    folder.chmod(0o700)
    values: dict[str, Any] = {
        "strategies": [strategy["name"]],
        "queries": ["gradient", "loss", "moments"],
        "max_clip": 1.0,
        "min_noise": 0.1,
        "noise_at": noise_at,
    }
    privacy = {"epsilon": 2.0, "noise_at": noise_at}
    run = {"dropout": 0.25} if noise_at == "parties" else {}
    return Deployment(
        folder=folder,
        **(FOUR if noise_at == "parties" else {}),
        policy={**values, **policy},
        budget={"epsilon": ROOM, "composition": "rdp"},
        experiment={"privacy": privacy, "run": run},
    )


def config_of(deployment: Deployment, strategy: dict[str, Any]) -> str:
    """The experiment, with this strategy alone."""
    text = deployment.config()
    table = "\n".join(f"{key} = {json.dumps(value)}" for key, value in strategy.items())
    old = text[text.index("[strategy]") :]
    old = old[: old.index("\n[", 1) + 1] if "\n[" in old[1:] else old
    return text.replace(old, f"[strategy]\n{table}\n")


def serve(deployment: Deployment, config: str, out: Path) -> dict[str, Any]:
    """The ServerApp to a signed statement, of a run that was prepared as `deploy run` does it."""
    place: dict[str, Any] = {"roster": str(deployment.server / "roster.toml"), "output": str(out)}
    if not out.exists():
        open_session({**place, "config": config})
    text = (out / "config.toml").read_text()
    context = Context(
        run_id=FLOWER,
        node_id=1,
        node_config={},
        state=RecordDict(),
        run_config={**place, "config": text},
    )
    main(deployment.grid(text), context)
    result: dict[str, Any] = json.loads((out / "result.json").read_text())
    return result


def events_in(ledger: Ledger) -> Counter[str]:
    """Every event that was paid for, as it is written, whatever name it is kept under."""
    with ledger:
        ledger.verify()
        return Counter(str(row.detail) for row in ledger.rows() if row.kind == "reserved")


def server_ledger(deployment: Deployment) -> Ledger:
    (path,) = deployment.server.glob("*.ledger")
    return Ledger.open(path, read_only=True)


@pytest.mark.parametrize(
    ("strategy", "noise_at"),
    [
        (QUANTILE, "server"),
        (QUANTILE, "parties"),
        (COORDINATE, "server"),
        (COORDINATE, "parties"),
        (LEARNED, "server"),
        (SECOND_ORDER, "server"),
        (SECOND_ORDER, "parties"),
        (AGD, "server"),
        ({**AGD, "selection": "exponential"}, "server"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(map(str, value.values())),
)
def test_every_party_pays_for_every_release_what_the_server_does_and_signs_it(
    tmp_path: Path, strategy: dict[str, Any], noise_at: str
) -> None:
    """To the digit: the same events, as often, in every ledger; and the statement is theirs."""
    world, out = deployment(tmp_path, strategy, noise_at=noise_at), tmp_path / "out"
    result = serve(world, config_of(world, strategy), out)
    assert result["rounds"] >= 1
    paid, server = events_in(server_ledger(world)), noise_at == "server"
    releases = paid.total()
    assert releases >= (result["rounds"] if strategy["name"] == QUANTILE["name"] else 2)
    for name in world.names:
        assert events_in(world.ledger(name)) == paid
        assert sorted(index for _, index in world.reserved(name)) == list(range(releases))
        with world.ledger(name) as ledger:
            spent = ledger.spent()
        with server_ledger(world) as ledger:  # shares are declared there as a whole
            whole = ledger.spent().guarantee.epsilon
        assert spent.guarantee.epsilon == pytest.approx(whole, rel=1e-15 if server else 1e-12)
        assert spent.within_budget
    signed = read_statement(out)
    verdict = verify(signed, roster=pinned(world.server / "roster.toml"))
    assert [each.words for each in verdict.findings if each.passed is False] == []
    assert not verdict.missing
    assert {each.releases for each in signed.parties} == {releases}


def test_an_influence_measured_on_a_public_table_shapes_the_noise_of_a_deployed_run(
    tmp_path: Path,
) -> None:
    """By the server, when the run is prepared; parties and a resumed server read what it found."""
    world = deployment(tmp_path, GRADIENTS)
    public = tmp_path / "public.csv"
    public.write_text((world.home("south") / "records.csv").read_text())
    schedule = f'{{ name = "influence", public = "{public}" }}'
    text = config_of(world, GRADIENTS)
    text = text.replace("rounds = 4", f"rounds = 4\nschedule = {schedule}", 1)
    out, roster = tmp_path / "out", str(world.server / "roster.toml")
    open_session({"config": text, "roster": roster, "output": str(out)})
    public.unlink()
    serve(world, text, out)
    paid = events_in(server_ledger(world))
    assert len(paid) == 4  # another noise in every round
    for name in world.names:
        assert events_in(world.ledger(name)) == paid


# A server that departs from the protocol of a round.


class Lone:
    """One party of a deployment, asked in the clear by a server that asks what it likes."""

    def __init__(self, folder: Path, strategy: dict[str, Any], **policy: Any) -> None:
        self.world = deployment(folder, strategy, **policy)
        self.config = config_of(self.world, strategy)
        self.run = f"{self.world.host('north', self.config).engagement.run}-1"
        experiment = parse_experiment(tomllib.loads(self.config))
        prepared = prepare_deployed(experiment, sizes=self.world.sizes)
        self.strategy: SumStrategy = build_strategy(prepared, run=self.run)

    def first(self) -> Any:
        """The first query of an honest server."""
        query = self.strategy.ask()
        assert query is not None
        return query

    def answer(self, query: Query) -> Any:
        """By a fresh process."""
        with Journal(self.world.home("north") / "state").held():
            party = self.world.host("north", self.config).party
            assert isinstance(party, DeployedParty)
            return party.answer(query)

    def refuses(self, query: Query, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Before a record is read, and at no price."""
        before = self.paid()
        with monkeypatch.context() as patched:
            patched.setattr("fedpriv.data.tables.files.read_table", unread)
            with pytest.raises(QueryRefused, match=why):
                self.answer(query)
        assert self.paid() == before

    def paid(self) -> list[int]:
        """The numbers of all releases that the party has paid for."""
        if not (self.world.home("north") / "north.ledger").exists():
            return []
        return sorted(index for _, index in self.world.reserved("north"))


def unread(*_: object, **__: object) -> None:
    raise AssertionError("a record was read")


@pytest.mark.parametrize("noise_at", ["server", "parties"])
def test_a_release_is_answered_once_whatever_is_changed_in_it(
    tmp_path: Path, noise_at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another threshold for the count, another clip, no count at all: the same release, refused."""
    lone = Lone(tmp_path, QUANTILE, noise_at=noise_at)
    asked = lone.first()
    given = lone.answer(asked)
    np.testing.assert_array_equal(lone.answer(asked), given)
    assert lone.paid() == [0]
    changes: list[dict[str, Any]] = [
        {"clip_norm": 0.9 * asked.clip_norm},
        {"theta": asked.theta + 1e-9},
    ]
    if noise_at == "server":  # else the shares are priced anew, and refused for that
        changes.append({"counting": 2 * asked.grid.step})
    for change in changes:
        lone.refuses(replace(asked, **change), "would be a second answer", monkeypatch)
    lone.refuses(replace(asked, counting=None), "this query is for gradient", monkeypatch)
    later = replace(asked, round=3, clip_norm=0.5)
    lone.answer(later)
    assert lone.paid() == [0, 3]  # another release, paid for as one
    for number in (0, 1, 2):
        lone.refuses(replace(asked, round=number), "would be a second answer", monkeypatch)
    lone.refuses(replace(later, clip_norm=0.6), "would be a second answer", monkeypatch)


def test_shares_are_priced_with_the_count_in_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that states the price of the gradients alone, or enlarges what is counted."""
    lone = Lone(tmp_path, QUANTILE, noise_at="parties")
    asked = lone.first()
    wrong = "not that of the shares"
    lone.refuses(replace(asked, counting=asked.counting + 2 * asked.grid.step), wrong, monkeypatch)
    lone.refuses(replace(asked, counting=None), "this query is for gradient", monkeypatch)
    task = lone.world.host("north", lone.config).engagement.task
    alone = share_mechanism(replace(asked, counting=None, clip_norm=1.0), task)
    assert alone is not None
    lone.refuses(replace(asked, event=alone.event()), wrong, monkeypatch)
    wide = share_mechanism(louder := replace(asked, counting=4.0), task)
    assert wide is not None
    lone.refuses(replace(louder, event=wide.event()), "allows at most 1", monkeypatch)
    assert lone.paid() == []


def test_every_release_of_a_round_is_paid_for_by_itself_and_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The norm first and the gradient after it; no second price for one, no price for two."""
    lone = Lone(tmp_path, LEARNED)
    norm = lone.first()
    gradient = replace(norm, round=1, event=replace(norm.event, relative_noise=4.0))
    lone.answer(norm)
    cheaper = replace(norm, event=replace(norm.event, relative_noise=1e3))
    lone.refuses(cheaper, "would be a second answer", monkeypatch)
    first = lone.answer(gradient)
    assert lone.paid() == [0, 1]
    np.testing.assert_array_equal(lone.answer(gradient), first)
    lone.refuses(norm, "would be a second answer", monkeypatch)
    assert lone.paid() == [0, 1]


def test_a_selection_is_charged_as_one_and_only_where_losses_are_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Losses of candidate steps at the price of a gradient, or of a clip beyond the policy."""
    lone = Lone(tmp_path, AGD)
    asked = lone.first()
    assert isinstance(asked, GradientQuery)
    assert asked.event is not None
    chosen = LossQuery(
        run=lone.run,
        round=1,
        grid=asked.grid,
        event=PureEvent(epsilon=0.1, adjacency=asked.event.adjacency),
        points=np.zeros((2, 3)),
        clip=1.0,
    )
    lone.answer(asked)
    lone.refuses(replace(chosen, event=asked.event), "is charged as", monkeypatch)
    lone.refuses(replace(asked, round=1, event=chosen.event, clip_norm=9.0), "most 1", monkeypatch)
    lone.refuses(replace(chosen, clip=3.0), "allows at most 1", monkeypatch)
    lone.refuses(replace(chosen, round=0), "would be a second answer", monkeypatch)
    lone.answer(chosen)
    lone.refuses(replace(chosen, points=np.ones((2, 3))), "would be a second answer", monkeypatch)
    assert lone.paid() == [0, 1]
    lone.world.write_party("north", policy={"queries": ["gradient"]})
    lone.refuses(replace(chosen, round=2), "queries of kind 'loss'", monkeypatch)


def test_no_more_releases_of_a_run_are_answered_than_the_policy_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounds whose number nobody planned end there, whatever is left of the budget."""
    lone = Lone(tmp_path, AGD, max_releases=2)
    asked = lone.first()
    lone.answer(asked)
    lone.answer(replace(asked, round=1))
    lone.refuses(replace(asked, round=2), "at most 2 releases", monkeypatch)
    assert lone.paid() == [0, 1]


@pytest.mark.parametrize("strategy", [LEARNED, AGD], ids=["learned", "agd"])
def test_a_server_that_dies_between_two_releases_of_a_round_goes_on_where_it_was(
    tmp_path: Path, strategy: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was released is not drawn again, and what was answered is not paid for again."""
    world, out = deployment(tmp_path, strategy), tmp_path / "out"
    config = config_of(world, strategy)
    commit, left = Ledger.commit, 3

    def dying(ledger: Ledger, reservation: Any, release: bytes) -> Any:
        nonlocal left
        if ledger.settings.data_name == "study":  # the server's
            left -= 1
            if left == 0:
                raise OSError("power is out")
        return commit(ledger, reservation, release)

    monkeypatch.setattr(Ledger, "commit", dying)
    with pytest.raises(OSError, match="power is out"):
        serve(world, config, out)
    before = events_in(world.ledger("north"))
    assert before.total() == 3
    serve(world, config, out)
    paid = events_in(server_ledger(world))
    assert paid.total() > 3
    for name in world.names:
        assert events_in(world.ledger(name)) == paid
        assert before <= paid
