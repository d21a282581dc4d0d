"""The budget of a federation: one ledger at the server for all runs, as the federation fixed it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fedpriv.privacy.budget import BudgetExceeded
from fedpriv.privacy.events import GaussianEvent, SkellamEvent
from fedpriv.privacy.ledger import Ledger, LedgerError
from tests.federation.deployed.deployments import FOUR, Deployment
from tests.federation.deployed.prices import charged, require_right_to_the_digit

if TYPE_CHECKING:
    from pathlib import Path

AT_SERVER: dict[str, Any] = {"privacy": {"epsilon": 1.0}}
AT_PARTIES: dict[str, Any] = {
    "privacy": {"epsilon": 1.0, "noise_at": "parties"},
    "run": {"dropout": 0.25},
}


def deployed(folder: Path, **budget: Any) -> Deployment:
    folder.chmod(0o700)
    return Deployment(folder=folder, **FOUR, budget={"composition": "rdp", **budget})


def books(deployment: Deployment) -> list[Path]:
    """The ledger of the server, and then those of the parties."""
    parties = [deployment.home(name) / f"{name}.ledger" for name in deployment.names]
    return [deployment.server / "study.ledger", *parties]


def heads(deployment: Deployment) -> list[str]:
    found = []
    for path in books(deployment):
        with Ledger.open(path, read_only=True) as ledger:
            found.append(ledger.head)
    return found


def test_two_runs_with_noise_at_the_server_and_then_at_the_parties_share_one_budget(
    tmp_path: Path,
) -> None:
    deployment = deployed(tmp_path, epsilon=4.0)
    first, second = deployment.config(**AT_SERVER), deployment.config(**AT_PARTIES)
    deployment.run(tmp_path / "runs" / "one", config=first)
    between = heads(deployment)
    deployment.run(tmp_path / "runs" / "two", config=second)
    assert all(a != b for a, b in zip(between, heads(deployment), strict=True))
    for path in books(deployment):
        events = charged(path)
        assert [type(event) for event in events] == [GaussianEvent] * 4 + [SkellamEvent] * 4
        spent = require_right_to_the_digit(path)
        assert spent.budget.epsilon == 4.0
        assert spent.guarantee.epsilon < 4.0


def test_a_run_that_does_not_fit_is_refused_before_anything_is_spent(tmp_path: Path) -> None:
    deployment = deployed(tmp_path, epsilon=2.0)
    for number in range(2):
        deployment.run(tmp_path / "runs" / str(number), config=deployment.config(**AT_SERVER))
    before = heads(deployment)
    large = deployment.config(privacy={"epsilon": 1.9})
    with pytest.raises(BudgetExceeded, match=r"privacy\.epsilon = 1\.9: .*do not fit.*Nothing was"):
        deployment.run(tmp_path / "runs" / "third", config=large)
    assert heads(deployment) == before
    assert not (tmp_path / "runs" / "third").exists()


def test_a_plan_by_renyi_divergences_uses_a_budget_to_the_end(tmp_path: Path) -> None:
    """An exact plan for all of the budget has too little noise for this rule; the remedy works."""
    deployment = deployed(tmp_path, epsilon=2.0)
    whole = {"privacy": {"epsilon": 2.0}}
    with pytest.raises(BudgetExceeded, match=r"strategy\.accountant = 'rdp'"):
        deployment.run(tmp_path / "runs" / "exact", config=deployment.config(**whole))
    config = deployment.config(**whole, strategy={"accountant": "rdp"})
    deployment.run(tmp_path / "runs" / "renyi", config=config)
    with Ledger.open(books(deployment)[0], read_only=True) as ledger:
        assert ledger.left().share < 1e-3


def test_the_ledger_of_the_server_has_the_budget_of_the_federation_and_no_other(
    tmp_path: Path,
) -> None:
    deployment = deployed(tmp_path, epsilon=4.0)
    deployment.run(tmp_path / "runs" / "one", config=deployment.config(**AT_SERVER))
    with Ledger.open(books(deployment)[0], read_only=True) as ledger:
        assert (ledger.settings.data_name, ledger.settings.budget.epsilon) == ("study", 4.0)
    deployment.write_federation(epsilon=40.0)
    before = heads(deployment)
    with pytest.raises(LedgerError, match=r"epsilon = 4.*not epsilon = 40.*federation\.toml"):
        deployment.run(tmp_path / "runs" / "two", config=deployment.config(**AT_SERVER))
    assert heads(deployment) == before


def test_another_schema_or_name_of_the_data_is_no_fresh_budget(tmp_path: Path) -> None:
    """The ledger was once named after the data of an experiment, and a copy of it was a second."""
    deployment = deployed(tmp_path, epsilon=4.0)
    deployment.run(tmp_path / "runs" / "one", config=deployment.config(**AT_SERVER))
    copy = deployment.server / "copy.toml"
    copy.write_text((deployment.server / "schema.toml").read_text())
    again = deployment.config(**AT_SERVER, data={"schema": str(copy)})
    deployment.run(tmp_path / "runs" / "two", config=again)
    (book,) = deployment.server.glob("*.ledger")
    assert len(charged(book)) == 8
    book.rename(tmp_path / "gone.ledger")
    with pytest.raises(LedgerError, match="is gone"):
        deployment.run(tmp_path / "runs" / "three", config=again)


def test_what_another_run_spends_meanwhile_is_found_before_the_first_question(
    tmp_path: Path,
) -> None:
    """Two runs that fit one by one are started; the second to be carried on finds too little."""
    from fedpriv.simulations.deploy.run.server import open_session, serve
    from tests.federation.deployed.deployments import PATIENCE

    deployment = deployed(tmp_path, epsilon=2.0)
    config = deployment.config(privacy={"epsilon": 1.5})
    sessions = []
    for name in ("one", "two"):
        values = {"config": config, "roster": str(deployment.server / "roster.toml")}
        sessions.append(open_session({**values, "output": str(tmp_path / "runs" / name)}))
    seal, grid = deployment.seal(config), deployment.grid(config)
    assert serve(*sessions[0], grid, seal=seal, patience=PATIENCE) is not None
    before = heads(deployment)
    with pytest.raises(BudgetExceeded, match="do not fit"):
        serve(*sessions[1], grid, seal=seal, patience=PATIENCE)
    assert heads(deployment) == before
