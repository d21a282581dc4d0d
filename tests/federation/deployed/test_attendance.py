"""Attendance: a run that needs every party is not paid for, by anybody, while one is not there.

Four parties may miss one in a sum. So the masks alone let a fit, parts by party, or shares of noise
begin with three: the ledger of the federation was spent, and for a fit those of the three parties.
"""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

import pytest

from fedpriv._toml import to_toml
from fedpriv.federation.engines.grid import RoundFailed
from fedpriv.privacy.ledger import Ledger
from tests.federation.deployed.deployments import FOUR, SIZES, Deployment
from tests.federation.deployed.test_deployed_description import Describing
from tests.federation.deployed.test_described_by_party import ALONE, APART

if TYPE_CHECKING:
    from pathlib import Path

FITS: dict[str, tuple[dict[str, Any], str]] = {
    "perturbed objective": ({"name": "objective-perturbation"}, "server"),
    "joint minimiser": ({"name": "output-perturbation", "fit": "joint"}, "server"),
    "shares of noise": ({"name": "gradient-perturbation", "rounds": 2}, "parties"),
}


def paid(deployment: Deployment) -> list[str]:
    """Who has paid for anything: the federation, or a party."""
    ledgers = {"server": deployment.server / "study.ledger"}
    ledgers |= {name: deployment.home(name) / f"{name}.ledger" for name in deployment.names}
    found = []
    for name, path in ledgers.items():
        if path.exists():
            with Ledger.open(path, read_only=True) as ledger:
                found += [name] * any(row.kind == "reserved" for row in ledger.rows())
    return found


def fitting(folder: Path, kind: str) -> tuple[Deployment, str]:
    strategy, noise_at = FITS[kind]
    deployment = Deployment(
        folder=folder,
        policy={
            "strategies": [strategy["name"]],
            "queries": ["gradient", "risk-gradient"],
            "noise_at": noise_at,
        },
        experiment={"privacy": {"noise_at": noise_at}, "model": {"l2": 0.1}},
        **FOUR,
    )
    return deployment, to_toml({**tomllib.loads(deployment.config()), "strategy": strategy})


@pytest.mark.parametrize("kind", FITS)
def test_nobody_pays_while_one_of_those_that_are_needed_is_unwilling(
    kind: str, tmp_path: Path
) -> None:
    deployment, text = fitting(tmp_path, kind)
    deployment.write_party("south", policy={"strategies": ["agd"]})
    refused = "nothing without 4 of the 4 parties, and 3 are there.*takes part in no run"
    with pytest.raises(RoundFailed, match=refused):
        deployment.run(tmp_path / "runs" / "one", config=text)
    assert paid(deployment) == []
    deployment.write_party("south")  # who changed its mind
    deployment.run(tmp_path / "runs" / "one", config=text)
    assert paid(deployment) == ["server", *deployment.names]


def test_nor_for_a_description_by_party(tmp_path: Path) -> None:
    deployment = Describing(folder=tmp_path, policy=ALONE, experiment=APART, **FOUR)
    deployment.write_party("south", policy={"by_party": False})
    with pytest.raises(RoundFailed, match=r"policy\.by_party of its own file is false"):
        deployment.run(tmp_path / "runs" / "one")
    assert paid(deployment) == []


def test_sums_that_may_miss_a_party_do_without_it(tmp_path: Path) -> None:
    deployment = Deployment(folder=tmp_path, **FOUR)
    deployment.write_party("south", policy={"strategies": ["agd"]})
    deployment.run(tmp_path / "runs" / "one")
    assert paid(deployment) == ["server", "north", "east", "west"]


def test_a_release_that_is_in_the_ledger_waits_for_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before the file of the statistics was written; then one of the parties left."""
    deployment = Describing(folder=tmp_path, policy=ALONE, experiment=APART, **FOUR)
    out = tmp_path / "runs" / "one"

    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("fedpriv.simulations.run.session.write_statistics", killed)
        with pytest.raises(KeyboardInterrupt):
            deployment.run(out)
    deployment.write_party("south", policy={"by_party": False})
    assert deployment.run(out)["parties"] == len(SIZES) + 1
    assert (out / "statistics.json").exists()
