"""A deployed run from end to end: results, drop-outs, restarts, and servers that lie."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from flwr.app import Context, RecordDict

from fedpriv.federation.engines.grid import GridFederation, RoundFailed
from fedpriv.federation.engines.local import LocalGrid
from fedpriv.federation.party.client_app import client_app
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.ledger import Ledger, LedgerError
from fedpriv.simulations.deploy.members.roster import Roster, write_roster
from fedpriv.simulations.deploy.run.server import open_session
from fedpriv.simulations.engines.parties import protection
from fedpriv.simulations.run.prepare import build_strategy
from tests.federation.deployed.deployments import FOUR, NAMES, PATIENCE, Deployment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from flwr.app import Message

    from fedpriv.federation.federation import Sum
    from fedpriv.federation.queries.kinds import Query

ROOT = Path(__file__).parents[3]
MEMORY = Path("/dev/shm")  # noqa: S108 (its owner is a test)
SHARES: dict[str, Any] = {
    **FOUR,
    "policy": {"noise_at": "parties"},
    "experiment": {"privacy": {"noise_at": "parties"}, "run": {"dropout": 0.25}},
}


class PartialGrid(LocalGrid):
    """A grid on which some parties are missing: nothing reaches them."""

    missing: set[int]

    def get_node_ids(self) -> Iterable[int]:
        return [node for node in super().get_node_ids() if node - 1001 not in self.missing]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        there = [m for m in messages if m.metadata.dst_node_id - 1001 not in self.missing]
        return super().push_messages(there)


class InterruptedGrid(PartialGrid):
    """Something happens before the first message of a step is sent."""

    step: str
    between: Callable[[], object] | None

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        outgoing = list(messages)
        if self.between and outgoing[0].metadata.message_type == f"query.{self.step}":
            happens, self.between = self.between, None
            happens()
        return super().push_messages(outgoing)


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


def partial_grid(deployment: Deployment, *missing: int) -> InterruptedGrid:
    party = partial(deployment.signed_host, config=deployment.config())
    grid = InterruptedGrid(client_app(party), len(deployment.names))
    grid.missing, grid.between = set(missing), None
    return grid


def deployed(folder: Path, **settings: Any) -> Deployment:
    folder.chmod(0o700)
    return Deployment(folder=folder, **settings)


def model(output: Path) -> Any:
    with np.load(output / "model.npz") as arrays:
        return arrays["theta"]


# Runs that nothing disturbs.


def test_a_run_leaves_its_results_and_a_statement_that_is_signed(tmp_path: Path) -> None:
    deployment, out = deployed(tmp_path), tmp_path / "out"
    result = deployment.run(out)
    assert (result["simulated"], result["engine"]) == (False, "deployment")
    assert (result["rounds"], result["parties"], result["records"]) == (4, 3, 125)
    assert result["secure_aggregation"] == "active"
    assert (result["accuracy"], result["loss"]) == (None, None)
    assert "seed" not in result
    statement = json.loads((out / "statement.json").read_text())
    text = (out / "statement.txt").read_text()
    assert "SIMULATED" not in text
    assert "no metric on party data was published" in text
    assert statement["trust"]["secure_aggregation"] == "active"
    assert np.isfinite(model(out)).all()
    assert not (out / "private" / "checkpoint.npz").exists()


def test_every_party_is_charged_what_the_server_is(tmp_path: Path) -> None:
    deployment = deployed(tmp_path)
    result = deployment.run(tmp_path / "out")
    (path,) = deployment.server.glob("*.ledger")
    with Ledger.open(path, read_only=True) as ledger:
        spent = ledger.spent().guarantee
    for name in NAMES:
        with deployment.ledger(name) as ledger:
            assert ledger.spent().guarantee == spent
    assert spent.epsilon == pytest.approx(result["epsilon"])


@pytest.mark.parametrize(
    "settings",
    [
        SHARES,
        {"experiment": {"run": {"secure_aggregation": "off"}},
         "policy": {"secure_aggregation": "off"}},
        {"experiment": {"run": {"secure_aggregation": "semi-honest"}},
         "policy": {"secure_aggregation": "semi-honest"}},
    ],
    ids=["shares", "clear", "semi-honest"],
)  # fmt: skip
def test_gradients_are_learned_from_under_every_kind_of_trust(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    deployment = deployed(tmp_path, **settings)
    result = deployment.run(tmp_path / "out")
    assert result["rounds"] == 4
    assert not result["exchanges"]["rejected"]
    for name in deployment.names:
        with deployment.ledger(name) as ledger:
            assert ledger.spent().within_budget
            assert ledger.spent().guarantee.epsilon >= result["epsilon"] * (1 - 1e-9)


@pytest.mark.parametrize(
    ("strategy", "privacy", "noise_at"),
    [
        ({"name": "output-perturbation"}, {}, "server"),
        ({"name": "output-perturbation"}, {"delta": 0.0}, "server"),
        ({"name": "output-perturbation"}, {"noise_at": "parties"}, "parties"),
        ({"name": "output-perturbation", "fit": "joint"}, {}, "server"),
        ({"name": "objective-perturbation"}, {}, "server"),
        ({"name": "local-output-perturbation"}, {}, "parties"),
        ({"name": "local-objective-perturbation"}, {}, "parties"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(map(str, value.values())),
)
def test_strategies_with_one_release_cost_every_party_one_event(
    tmp_path: Path, strategy: dict[str, Any], privacy: dict[str, Any], noise_at: str
) -> None:
    deployment = deployed(
        tmp_path,
        policy={"strategies": [strategy["name"]], "noise_at": noise_at, "min_noise": 0.1},
        budget={"delta": privacy.get("delta", 1e-6)},
    )
    experiment = deployment.config(privacy=privacy, model={"l2": 0.1})
    text = experiment.replace("rounds = 4\nclip = 1.0\n", "").replace(
        'name = "gradient-perturbation"', "\n".join(f'{k} = "{v}"' for k, v in strategy.items())
    )
    result = deployment.run(tmp_path / "out", config=text)
    assert not result["exchanges"]["rejected"]
    for name in deployment.names:
        assert len(deployment.reserved(name)) == 1
        with deployment.ledger(name) as ledger:
            assert ledger.spent().guarantee.epsilon >= result["epsilon"] * (1 - 1e-9)


def test_a_public_test_set_is_evaluated_and_nothing_else(tmp_path: Path) -> None:
    deployment = deployed(tmp_path)
    public = tmp_path / "public.csv"
    public.write_text((deployment.home("south") / "records.csv").read_text())
    config = deployment.config(data={"path": str(public), "public_test": True})
    result = deployment.run(tmp_path / "out", config=config)
    assert result["test_records"] == 60
    assert 0 <= result["accuracy"] <= 1
    for wrong in ({"path": str(public)}, {"public_test": True}):
        with pytest.raises(ValueError, match=r"data\.path and data\.public_test belong together"):
            deployment.run(tmp_path / "wrong", config=deployment.config(data=wrong))
    assert not (tmp_path / "wrong").exists()


def test_the_server_app_runs_what_its_run_config_says_or_says_why_not(tmp_path: Path) -> None:
    from fedpriv.simulations.server_app import FAILURE, main

    deployment, out = deployed(tmp_path), tmp_path / "out"
    context = Context(
        run_id=1,
        node_id=1,
        node_config={},
        state=RecordDict(),
        run_config={
            "config": deployment.config(),
            "roster": str(deployment.server / "roster.toml"),
            "output": str(out),
        },
    )
    for name in NAMES:
        deployment.write_party(name, policy={"min_noise": 100.0})
    with pytest.raises(ValueError, match="no sum for release 0"):
        main(deployment.grid(), context)
    assert "no sum for release 0" in (out / FAILURE).read_text()
    for name in NAMES:
        deployment.write_party(name)
    main(deployment.grid(), context)
    assert json.loads((out / "result.json").read_text())["rounds"] == 4
    assert not (out / FAILURE).exists()


@pytest.mark.parametrize("name", ["non-private", "party-alone"])
def test_what_promises_nothing_is_not_deployed(tmp_path: Path, name: str) -> None:
    deployment = deployed(tmp_path)
    text = deployment.config().replace("rounds = 4\nclip = 1.0\n", "")
    with pytest.raises(ValueError, match="needs a strategy with a guarantee"):
        deployment.run(tmp_path / "out", config=text.replace("gradient-perturbation", name))
    assert not (tmp_path / "out").exists()


def test_an_ordinary_run_has_nothing_to_do_with_a_deployment(tmp_path: Path) -> None:
    import tomllib

    from fedpriv.simulations.experiment.file import parse_experiment
    from fedpriv.simulations.run.prepare import prepare

    values = tomllib.loads(deployed(tmp_path).config())
    with pytest.raises(ValueError, match="parties on machines of their own"):
        prepare(parse_experiment(values))
    with pytest.raises(ValueError, match="a schema without records is for engine = 'deployment'"):
        parse_experiment({**values, "run": {"engine": "local"}})


# Parties that leave, and come back.


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


# Servers that are restarted, and servers that lie.


def lying_about_sizes(roster: Roster) -> Roster:
    members = tuple(replace(each, records=10 * (each.records or 0)) for each in roster.members)
    return replace(roster, members=members)


def test_a_finished_run_is_not_run_again(tmp_path: Path) -> None:
    deployment, out = deployed(tmp_path), tmp_path / "out"
    first = deployment.run(out)
    assert deployment.run(out) == first
    assert len(deployment.reserved("north")) == 4


def test_a_run_is_taken_up_only_as_what_it_was_started(tmp_path: Path) -> None:
    deployment, out = deployed(tmp_path), tmp_path / "out"
    deployment.run(out)
    with pytest.raises(ValueError, match="a run of another experiment"):
        deployment.run(out, config=deployment.config(strategy={"rounds": 5}))
    write_roster(deployment.server / "roster.toml", lying_about_sizes(deployment.roster))
    with pytest.raises(ValueError, match="the roster was changed since the run"):
        deployment.run(out)


def test_a_server_takes_a_run_up_with_the_ledger_it_began_with_or_not_at_all(
    tmp_path: Path,
) -> None:
    """It once made a new one, and its statement said that nothing was spent before."""
    deployment, out = deployed(tmp_path), tmp_path / "out"
    deployment.run(out)
    (out / "result.json").unlink()  # as if it had been killed at the very end
    (book,) = deployment.server.glob("*.ledger")
    kept = book.rename(tmp_path / "kept")
    with pytest.raises(LedgerError, match="with which this run began, is not there"):
        deployment.run(out)
    assert not book.exists()
    Ledger.create(
        book, data_name="x", budget=Budget(epsilon=2.0, delta=1e-6), adjacency="replace-one"
    ).close()
    with pytest.raises(LedgerError, match="not the ledger with which the run began"):
        deployment.run(out)
    kept.replace(book)
    assert deployment.run(out)["rounds"] == 4


def test_a_second_run_finds_the_budget_of_every_party_spent(tmp_path: Path) -> None:
    deployment = deployed(tmp_path)
    deployment.run(tmp_path / "one")
    for old in deployment.server.glob("*.ledger*"):
        old.unlink()  # a server that denies what it has spent
    with pytest.raises(LedgerError, match=r"is gone, and the run in .*one' was paid from it"):
        deployment.run(tmp_path / "two")
    with pytest.raises(RoundFailed, match="no sum for release 0"):
        deployment.run(tmp_path / "elsewhere" / "two")
    for name in NAMES:
        assert len(deployment.reserved(name)) == 4


def test_a_server_with_another_roster_admits_nobody_who_knows_better(tmp_path: Path) -> None:
    """Sizes are public facts, and every party holds its own copy of them."""
    deployment = deployed(tmp_path)
    write_roster(deployment.server / "roster.toml", lying_about_sizes(deployment.roster))
    with pytest.raises(RoundFailed, match=r"no party has joined.*stranger"):
        deployment.run(tmp_path / "out")
    assert not list(deployment.home("north").glob("*.ledger"))


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


# Processes that are killed, and processes that race.


@pytest.fixture(scope="module")
def survived(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What a worker found; most of its time would be spent waiting for a disk."""
    place = MEMORY if MEMORY.is_dir() else tmp_path_factory.mktemp("survived")
    with tempfile.TemporaryDirectory(dir=place) as folder:
        done = subprocess.run(
            [sys.executable, "-m", "tests.federation.deployed.deployed_worker", folder],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("noise", ["at server", "at parties", "on samples"])
def test_a_party_that_is_killed_at_every_write_answers_once_and_pays_once(
    survived: Any, noise: str
) -> None:
    found = survived[f"noise {noise}"]
    assert found["deaths"] > 20
    assert (found["rounds"], found["rejected"], found["twice"]) == (2, {}, 0)
    assert found["reserved"] == dict.fromkeys(NAMES, 2)
    for spent in found["spent"].values():
        assert spent == pytest.approx(found["epsilon"], rel=1e-9)


def test_a_server_that_is_killed_again_and_again_ends_with_the_model_of_its_ledger(
    survived: Any,
) -> None:
    found = survived["server"]
    assert found["lives"] > 2
    assert (found["rounds"], found["released"], found["most_releases_of_a_round"]) == (4, 4, 1)
    assert found["same_model"]
    assert (found["most_payments"], found["payments"]) == (1, dict.fromkeys(NAMES, 4))


def test_two_runs_at_once_cannot_overspend_one_partys_budget(survived: Any) -> None:
    """Each run alone costs all of it, so that exactly the rounds of one are paid for."""
    for found in survived["race"].values():
        assert found == {"reserved": 8, "runs": 2, "twice": 0, "within": True}
