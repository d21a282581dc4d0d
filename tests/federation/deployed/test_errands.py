"""Errands on disk: a statement attested, a model handed over, a run cancelled, somebody away."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from fedpriv._toml import parse_toml
from fedpriv.federation.engines.grid import RoundFailed
from fedpriv.simulations.cli import app
from fedpriv.simulations.deploy.members.roster import write_roster
from fedpriv.simulations.deploy.run.public_facts import prepare_deployed
from fedpriv.simulations.deploy.run.server import deployed_federation
from fedpriv.simulations.experiment.file import parse_experiment
from fedpriv.simulations.run.files import read_json
from fedpriv.simulations.run.prepare import build_strategy
from fedpriv.simulations.run.release_outcome import SIGNED
from tests.federation.deployed.deployments import FOUR, Deployment
from tests.federation.deployed.errands import CLEAR, NAMES, TWICE, done, grid_of, verified
from tests.federation.deployed.failing_grids import SHARES, PartialGrid

if TYPE_CHECKING:
    from pathlib import Path


def test_a_run_whose_statement_is_signed_is_over(tmp_path: Path) -> None:
    """A server had the statement signed, and asked for four more releases of the same run.

    They were paid for, and the statement, which told of half of what the run had cost, verified.
    """
    deployment = Deployment(folder=tmp_path, **FOUR, budget=TWICE)
    out = tmp_path / "server" / "runs" / "a"
    deployment.run(out)
    prepared = prepare_deployed(
        parse_experiment(parse_toml(deployment.config(), "experiment")),
        sizes=deployment.roster.sizes,
    )
    asked = build_strategy(prepared, run=read_json(out / "private" / "run.json")["run"]).ask()
    assert asked is not None
    paid = deployment.reserved("north")

    def go_on(release: int) -> None:
        deployed_federation(
            prepared, deployment.roster, deployment.grid(), seal=deployment.seal()
        ).sum(replace(asked, round=release))

    assert set(done("attest", deployment, out).values()) == {"signed"}
    with pytest.raises(RoundFailed, match="has signed the statement of it"):
        go_on(len(paid))
    assert deployment.reserved("north") == paid
    assert set(done("attest", deployment, out).values()) == {"signed"}  # again, as before
    state = deployment.home("north") / "state" / "attested"
    assert [path.stat().st_mode & 0o777 for path in state.iterdir()] == [0o600]
    for name in NAMES:  # as if nobody had remembered
        shutil.rmtree(deployment.home(name) / "state" / "attested")
    go_on(len(paid))
    books = ("--roster", deployment.server / "roster.toml", "--ledger")
    status, said = verified(out, *books, deployment.home("north") / "north.ledger")
    assert (status, said["sound"]) == (1, False)  # and it shows in the ledger


@pytest.mark.parametrize("scene", [FOUR, SHARES, CLEAR], ids=["server", "shares", "clear"])
def test_a_run_is_attested_handed_over_and_verified(scene: dict[str, Any], tmp_path: Path) -> None:
    deployment, out = Deployment(folder=tmp_path, **scene), tmp_path / "server" / "runs" / "a"
    deployment.run(out)
    roster = deployment.server / "roster.toml"
    assert done("attest", deployment, out, "east") == {
        "north": "signed",
        "east": "not there",
        "south": "signed",
        "west": "signed",
    }
    status, said = verified(out, "--roster", roster)
    assert (status, said["sound"], said["missing"]) == (0, True, ["east"])
    assert verified(out, "--roster", roster, "--complete")[0] == 1
    # Late parties sign when the model is handed over.
    assert set(done("handover", deployment, out).values()) == {"has it"}
    status, said = verified(out / SIGNED, "--roster", roster, "--complete")
    assert (status, said["missing"]) == (0, [])
    n_min = next(each["words"] for each in said["findings"] if each["check"] == "n_min")
    assert n_min.startswith("n_min = 2" if scene is SHARES else "the noise is added by the server")
    # At the party: the same model, the same statement, and predictions from them.
    (place,) = (deployment.home("east") / "models").iterdir()
    assert (place / "model.npz").read_bytes() == (out / "model.npz").read_bytes()
    own = deployment.home("east")
    assert verified(place, "--roster", own / "roster.toml", "--ledger", own / "east.ledger")[0] == 0
    predicted = CliRunner().invoke(app, ["predict", str(place), str(own / "records.csv"), "--json"])
    assert len(json.loads(predicted.stdout)["prediction"]) == deployment.sizes[1]


def test_who_paid_for_nothing_signs_nothing_and_gets_no_model(tmp_path: Path) -> None:
    deployment, out = Deployment(folder=tmp_path, **FOUR), tmp_path / "server" / "runs" / "a"
    deployment.run(out, grid=grid_of(deployment, PartialGrid, "east"))
    for job in ("attest", "handover"):
        words = done(job, deployment, out)
        assert words.pop("east").startswith("refused: QueryRefused: this party has")
        assert set(words.values()) == {"signed" if job == "attest" else "has it"}
    assert verified(out)[1]["missing"] == ["east"]
    assert not (deployment.home("east") / "models").exists()


def test_a_changed_file_fails_and_a_missing_one_is_no_input(tmp_path: Path) -> None:
    deployment, out = Deployment(folder=tmp_path, **FOUR), tmp_path / "server" / "runs" / "a"
    deployment.run(out)
    done("attest", deployment, out)
    data = (out / SIGNED).read_bytes()
    changed = tmp_path / "changed.json"
    for place in range(0, len(data), 97):
        changed.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        assert verified(changed)[0] == 1
    read = ("model.npz", "statement.json", "config.toml", "statement.txt", "statement.yaml")
    for name in read:  # by people, beside it
        own = (out / name).read_bytes()
        what = (b"Record", b"Person") if name == "statement.yaml" else (b"0", b"1")
        (out / name).write_bytes(own.replace(*what, 1))
        status, said = verified(out)
        assert status == 1
        assert [each["words"] for each in said["findings"] if each["passed"] is False] == [
            f"{name} beside it: not what was signed."
        ]
        (out / name).write_bytes(own)
    assert verified(out)[0] == 0
    entry = (out / "statement.yaml").read_text()
    (out / "statement.yaml").write_text(entry.replace("TO BE FILLED IN", "the clinics"))
    assert verified(out)[0] == 0
    (out / "statement.yaml").write_text("- 1")
    assert verified(out)[0] == 1
    (out / "statement.yaml").unlink()
    tampered = deployment.home("north") / "north.ledger"
    with closing(sqlite3.connect(tampered)) as database:
        database.executescript("DROP TRIGGER fixed; UPDATE rows SET time = 0;")
    assert verified(out, "--ledger", tampered)[0] == 1
    with pytest.raises(ValueError, match="cannot be read"):
        CliRunner().invoke(app, ["verify", str(tmp_path / "none")], catch_exceptions=False)


@pytest.mark.parametrize(
    ("strategy", "privacy", "noise_at"),
    [
        ({"name": "output-perturbation"}, {"delta": 0.0}, "server"),
        ({"name": "output-perturbation", "fit": "joint"}, {}, "server"),
        ({"name": "output-perturbation"}, {"noise_at": "parties"}, "parties"),
        ({"name": "objective-perturbation"}, {}, "server"),
        ({"name": "local-output-perturbation"}, {}, "parties"),
        ({"name": "local-objective-perturbation"}, {}, "parties"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(map(str, value.values())),
)
def test_every_strategy_is_attested(
    tmp_path: Path, strategy: dict[str, Any], privacy: dict[str, Any], noise_at: str
) -> None:
    """What the server states is to the digit what every party was charged."""
    deployment = Deployment(
        folder=tmp_path,
        **FOUR,
        policy={"strategies": [strategy["name"]], "noise_at": noise_at, "min_noise": 0.1},
        budget={"delta": privacy.get("delta", 1e-6)},
    )
    text = deployment.config(privacy=privacy, model={"l2": 0.1})
    text = text.replace("rounds = 4\nclip = 1.0\n", "").replace(
        'name = "gradient-perturbation"', "\n".join(f'{k} = "{v}"' for k, v in strategy.items())
    )
    out = tmp_path / "server" / "runs" / "a"
    deployment.run(out, config=text)
    assert set(done("attest", deployment, out).values()) == {"signed"}
    assert verified(out, "--roster", deployment.server / "roster.toml", "--complete")[0] == 0


def test_who_joined_the_federation_later_gets_nothing_of_a_run_before(tmp_path: Path) -> None:
    deployment, out = Deployment(folder=tmp_path, **FOUR), tmp_path / "server" / "runs" / "a"
    deployment.run(out)
    assert set(done("attest", deployment, out).values()) == {"signed"}
    began = deployment.roster.members[:-1]
    write_roster(out / "private" / "roster.toml", replace(deployment.roster, members=began))
    assert done("handover", deployment, out) == dict.fromkeys(NAMES[:-1], "has it")
    assert not (deployment.home(NAMES[-1]) / "models").exists()
