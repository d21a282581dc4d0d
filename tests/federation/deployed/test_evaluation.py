"""Private evaluation in a deployment: who takes part, who pays, and what is left on the disk."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv.data import Files
from fedpriv.federation.engines.grid import RoundFailed
from fedpriv.privacy.budget import BudgetExceeded
from fedpriv.privacy.events import GaussianEvent
from fedpriv.privacy.ledger import Kind, Ledger, LedgerMismatch
from fedpriv.simulations.deploy.folders import ServerFolder
from fedpriv.simulations.deploy.run.jobs import evaluation
from fedpriv.simulations.deploy.run.lock import served
from tests.federation.deployed.deployments import FOUR, HELD, PATIENCE, Deployment, _records
from tests.federation.deployed.failing_grids import PartialGrid

if TYPE_CHECKING:
    from pathlib import Path

    from fedpriv.data import Dataset

QUERIES = ["gradient", "accuracy"]
AT_PARTIES: dict[str, Any] = {
    "privacy": {"epsilon": 1.0, "noise_at": "parties"},
    "run": {"dropout": 0.25},
}
AT_SERVER: dict[str, Any] = {"privacy": {"epsilon": 1.0}}


def evaluated(
    folder: Path, settings: dict[str, Any], *, queries: list[str] = QUERIES
) -> tuple[Deployment, Path, str]:
    """A federation whose parties hold out records, after one run."""
    folder.chmod(0o700)
    deployment = Deployment(
        folder=folder,
        **FOUR,
        budget={"composition": "rdp", "epsilon": 8.0},
        policy={"queries": queries},
    )
    for number, name in enumerate(deployment.names):
        hold_out(deployment, name, seed=100 + number, size=HELD[number])
    config, out = deployment.config(**settings), folder / "runs" / "one"
    deployment.run(out, config=config)
    return deployment, out, config


def hold_out(deployment: Deployment, name: str, *, seed: int, size: int) -> None:
    home = deployment.home(name)
    (home / "test.csv").write_text(_records(size, seed=seed))
    text = (home / "party.toml").read_text()
    (home / "party.toml").write_text(text.replace("[party]", '[party]\ntest = "test.csv"', 1))


def evaluate(
    deployment: Deployment, out: Path, config: str, *, epsilon: float = 2.0
) -> dict[str, Any]:
    folder = ServerFolder(deployment.server)
    evaluation.propose(out, folder, epsilon=epsilon)
    values = {"config": config, "output": str(out), "roster": str(folder.roster)}
    return evaluation.carry_out(
        values, deployment.grid(config), seal=deployment.seal(config), patience=PATIENCE
    )


def books(deployment: Deployment) -> list[Path]:
    parties = [deployment.home(name) / f"{name}.ledger" for name in deployment.names]
    return [deployment.server / "study.ledger", *parties]


def charges(path: Path) -> dict[str, float]:
    with Ledger.open(path, read_only=True) as ledger:
        ledger.verify()
        return {run.run: run.amount for run in ledger.runs()}


def truth(deployment: Deployment, out: Path) -> float:
    """The accuracy that a reader of all held-out records would find."""
    with np.load(out / "model.npz") as arrays:
        theta, intercept = arrays["theta"], bool(arrays["intercept"])
    right = []
    for name in deployment.names:
        rows = (deployment.home(name) / "test.csv").read_text().splitlines()
        header, *body = (row.split(",") for row in rows)
        for row in body:
            each = dict(zip(header, row, strict=True))
            features = [2 * float(each["age"]) / 100 - 1, float(each["dose"])]
            x = np.array([*features, 1.0] if intercept else features)
            right.append((x @ theta[: len(x)] >= 0) == (each["sick"] == "yes"))
    return float(np.mean(right))


@pytest.mark.parametrize("settings", [AT_SERVER, AT_PARTIES], ids=["server", "parties"])
def test_an_evaluation_is_a_release_that_server_and_parties_pay_for_once(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    deployment, out, config = evaluated(tmp_path, settings)
    before = [charges(path) for path in books(deployment)]
    result = evaluate(deployment, out, config)
    (file,) = out.glob("evaluation-*.json")
    assert json.loads(file.read_text()) == result
    assert 0.0 <= result["low"] <= result["accuracy"] <= result["high"] <= 1.0
    assert result["low"] > 0 or result["high"] < 1  # it says something
    assert result["records"] == pytest.approx(sum(HELD[:4]), abs=12 * result["noise_stddev"])
    assert result["epsilon"] <= 2.0
    assert "(epsilon, delta) = (2" in result["statement"]
    assert not (out / "private" / "evaluation.json").exists()
    amounts = set()
    for path, earlier in zip(books(deployment), before, strict=True):
        now = charges(path)
        (name,) = now.keys() - earlier.keys()
        assert name == result["run"]
        assert "-evaluation-" in name
        assert all(now[run] == amount for run, amount in earlier.items())
        amounts.add(round(now[name], 12))
    assert len(amounts) == 1  # to the digit, wherever it is charged
    again = evaluate(deployment, out, config)  # another release, another charge
    assert again["run"] != result["run"]
    assert len(list(out.glob("evaluation-*.json"))) == 2


def test_what_was_released_is_not_drawn_again_after_a_crash(tmp_path: Path) -> None:
    deployment, out, config = evaluated(tmp_path, AT_SERVER)
    folder = ServerFolder(deployment.server)
    terms = evaluation.propose(out, folder, epsilon=2.0)
    values = {"config": config, "output": str(out), "roster": str(folder.roster)}
    first = evaluation.carry_out(
        values, deployment.grid(config), seal=deployment.seal(config), patience=PATIENCE
    )
    evaluation.result_path(out, terms).unlink()  # as if it had been killed before it was written
    (out / "private" / "evaluation.json").write_text(json.dumps(asdict(terms)))
    before = [charges(path) for path in books(deployment)]
    assert evaluation.propose(out, folder, epsilon=2.0) == terms
    with pytest.raises(ValueError, match=r"epsilon = 2 .* the same numbers take it up again"):
        evaluation.propose(out, folder, epsilon=1.0)  # which would have thrown away what was paid
    assert evaluation.propose(out, folder, epsilon=2.0) == terms
    second = evaluation.carry_out(
        values, deployment.grid(config), seal=deployment.seal(config), patience=PATIENCE
    )
    assert second["accuracy"] == first["accuracy"]
    assert [charges(path) for path in books(deployment)] == before


def test_an_evaluation_for_which_nobody_is_there_costs_nothing_and_another_may_be_begun(
    tmp_path: Path,
) -> None:
    """The federation paid before it looked who was there."""
    deployment, out, config = evaluated(tmp_path, AT_SERVER)
    folder, before = ServerFolder(deployment.server), [charges(p) for p in books(deployment)]
    terms = evaluation.propose(out, folder, epsilon=2.0)
    values = {"config": config, "output": str(out), "roster": str(folder.roster)}
    grid = deployment.grid(config)
    grid.__class__ = PartialGrid
    assert isinstance(grid, PartialGrid)
    grid.missing = set(range(len(deployment.names)))
    with pytest.raises(RoundFailed, match="no party has joined"):
        evaluation.carry_out(values, grid, seal=deployment.seal(config), patience=PATIENCE)
    assert [charges(path) for path in books(deployment)] == before
    other = evaluation.propose(out, folder, epsilon=1.0)
    assert other.run != terms.run
    with served(out), pytest.raises(ValueError, match="at work already"):
        evaluation.propose(out, folder, epsilon=1.0)
    with Ledger.open(books(deployment)[0]) as ledger:  # as if that had been paid for, and killed
        event = GaussianEvent(relative_noise=50.0, adjacency=ledger.settings.adjacency)
        ledger.reserve(event, run=other.run, round=0)
    with pytest.raises(ValueError, match="With --anew it is given up"):
        evaluation.propose(out, folder, epsilon=2.0)
    assert evaluation.propose(out, folder, epsilon=2.0, anew=True).epsilon == 2.0


def test_a_party_takes_part_only_if_its_policy_names_it(tmp_path: Path) -> None:
    deployment, out, config = evaluated(tmp_path, AT_SERVER, queries=["gradient"])
    before = [charges(path) for path in books(deployment)[1:]]
    with pytest.raises(RoundFailed):
        evaluate(deployment, out, config)
    assert [charges(path) for path in books(deployment)[1:]] == before
    assert not list(out.glob("evaluation-*.json"))


@pytest.mark.parametrize("table", ["", "records.csv"])
def test_nobody_is_evaluated_on_the_records_that_a_model_was_learned_from(
    tmp_path: Path, table: str
) -> None:
    """Without party.test, or with the training records as such, a party does not answer."""
    deployment, out, config = evaluated(tmp_path, AT_SERVER)
    for name in deployment.names:
        path = deployment.home(name) / "party.toml"
        line = f'test = "{table}"\n' if table else ""
        path.write_text(path.read_text().replace('test = "test.csv"\n', line, 1))
    before = [charges(path) for path in books(deployment)[1:]]
    with pytest.raises(RoundFailed):
        evaluate(deployment, out, config)
    assert [charges(path) for path in books(deployment)[1:]] == before


def test_no_refusal_tells_whether_two_tables_hold_the_same(tmp_path: Path) -> None:
    """Of a file that holds the records of another one but one record, a party answers as well."""
    deployment, out, config = evaluated(tmp_path, AT_SERVER)
    for name in deployment.names:
        home = deployment.home(name)
        (home / "test.csv").write_bytes((home / "records.csv").read_bytes())
    evaluate(deployment, out, config)
    assert len(list(out.glob("evaluation-*.json"))) == 1


def test_held_out_records_that_change_while_they_are_read_are_not_answered_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger would be of other people than the answer, as it would be in training."""
    deployment, out, config = evaluated(tmp_path, AT_SERVER)
    read = Files.table

    def raced(self: Files, path: Path, *, schema: Path) -> Dataset:
        dataset = read(self, path, schema=schema)
        path.write_text(path.read_text() + "yes,1,1\n")
        return dataset

    monkeypatch.setattr(Files, "table", raced)
    before = [charges(path) for path in books(deployment)[1:]]
    with pytest.raises(RoundFailed, match="the records of this party cannot be used"):
        evaluate(deployment, out, config)
    assert [charges(path) for path in books(deployment)[1:]] == before


def test_the_ledger_of_a_party_covers_the_people_that_it_holds_out(tmp_path: Path) -> None:
    deployment, out, config = evaluated(tmp_path, AT_SERVER)
    evaluate(deployment, out, config)
    for path in books(deployment)[1:]:
        with Ledger.open(path, read_only=True) as ledger:
            details = [json.loads(row.detail) for row in ledger.rows() if row.kind == Kind.DATA]
        assert [each.get("reason") for each in details] == [
            None,
            "party.test, held out for evaluation",
        ]


def test_an_evaluation_that_does_not_fit_is_refused_before_anything_is_spent(
    tmp_path: Path,
) -> None:
    deployment, out, config = evaluated(tmp_path, AT_SERVER)
    before = [charges(path) for path in books(deployment)]
    with pytest.raises(BudgetExceeded, match="do not fit"):
        evaluate(deployment, out, config, epsilon=8.0)
    assert [charges(path) for path in books(deployment)] == before
    assert not (out / "private" / "evaluation.json").exists()


def test_a_ledger_that_has_forgotten_the_run_pays_for_no_evaluation(tmp_path: Path) -> None:
    deployment, out, config = evaluated(tmp_path, AT_SERVER)
    book = books(deployment)[0]
    with Ledger.open(book, read_only=True) as ledger:
        budget, adjacency = ledger.settings.budget, ledger.settings.adjacency
    book.unlink()
    Ledger.create(
        book, data_name="study", budget=budget, adjacency=adjacency, composition="rdp"
    ).close()
    with pytest.raises(LedgerMismatch, match="does not know what was spent"):
        evaluate(deployment, out, config)


def test_a_run_without_a_result_is_not_evaluated(tmp_path: Path) -> None:
    deployment, out, config = evaluated(tmp_path, AT_SERVER)
    (out / "result.json").unlink()
    with pytest.raises(ValueError, match="must be a run that has ended"):
        evaluate(deployment, out, config)


def test_with_much_budget_the_estimate_is_the_accuracy(tmp_path: Path) -> None:
    deployment, out, config = evaluated(tmp_path, {"privacy": {"epsilon": 1.0}})
    result = evaluate(deployment, out, config, epsilon=6.0)
    # Seven deviations of the noise on 130 or more records: fails with less than 10⁻⁹.
    assert result["accuracy"] == pytest.approx(
        truth(deployment, out), abs=10 * result["noise_stddev"] / sum(HELD[:4])
    )
