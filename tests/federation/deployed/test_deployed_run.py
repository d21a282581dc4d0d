"""A deployed run from end to end: results, restarts, servers that lie, and killed processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, RecordDict

from fedpriv.federation.engines.grid import RoundFailed
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.ledger import Ledger, LedgerError
from fedpriv.simulations.deploy.members.roster import Roster, write_roster
from tests.federation.deployed.deployments import NAMES
from tests.federation.deployed.failing_grids import SHARES, deployed

ROOT = Path(__file__).parents[3]
MEMORY = Path("/dev/shm")  # noqa: S108 (its owner is a test)


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
