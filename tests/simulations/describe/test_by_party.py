"""`[describe] by_party`: what is told of a party is what its own records say, with noise."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import fedpriv
from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.federation.queries.kinds import StatisticsQuery
from fedpriv.privacy.ledger import Ledger
from fedpriv.privacy.randomness import RandomStream
from fedpriv.simulations.describe.experiment import read_description
from fedpriv.simulations.run.prepare import build_federation, build_strategy, prepare
from fedpriv.simulations.run.release_outcome import DESCRIBED_FILES
from fedpriv.strategies.description import Description
from tests.simulations.describe.scenes import study, written

if TYPE_CHECKING:
    from pathlib import Path

    from tests.simulations.conftest import Command

BY_PARTY: dict[str, Any] = {"by_party": True, "bins": 8}
SITES = ["north", "south", "west"]


def test_without_noise_a_party_is_told_of_as_if_it_were_alone(tmp_path: Path) -> None:
    frame = study(600)
    exact = {"epsilon": "inf"}
    found = fedpriv.describe(written(tmp_path, frame, privacy=exact), describe=BY_PARTY).statistics
    assert list(found["by_party"]) == SITES
    for site, own in found["by_party"].items():
        (folder := tmp_path / site).mkdir()
        whole = {"partition": "hashed", "parties": 1}
        there = written(folder, frame[frame["site"] == site], privacy=exact, data=whole)
        alone = fedpriv.describe(there, describe={"bins": 8}).statistics
        assert own["total"] == alone["total"]
        for name, column in alone["columns"].items():
            for key, value in column.items():
                if key in ("counts", "mean", "variance", "missing"):
                    assert own["columns"][name][key] == pytest.approx(value, rel=1e-3, abs=1e-3)
        assert own["tables"][0]["counts"] == alone["tables"][0]["counts"]
    everybody = fedpriv.describe(
        written(tmp_path, frame, privacy=exact), describe={"bins": 8}
    ).statistics
    assert everybody["by_party"] is None
    assert found["columns"]["died"]["noisy"] == pytest.approx(everybody["columns"]["died"]["noisy"])


@pytest.mark.parametrize("engine", ["local", "vectorized"])
@pytest.mark.parametrize("noise_at", ["server", "parties"])
def test_every_engine_tells_parties_apart(engine: str, noise_at: str, tmp_path: Path) -> None:
    frame = study(300)
    privacy = {"epsilon": 8.0, "noise_at": noise_at, "colluding": 0.0}
    experiment = written(tmp_path, frame, privacy=privacy, run={"engine": engine})
    found = fedpriv.describe(experiment, describe=BY_PARTY)
    for site, own in found.statistics["by_party"].items():
        column = own["columns"]["weight"]
        truth = frame.loc[frame["site"] == site, "weight"].mean()
        assert abs(column["mean"] - truth) < 6 * column["mean_error"]
    if noise_at == "server":
        twin = fedpriv.describe(experiment, describe=BY_PARTY, run={"engine": "vectorized"})
        assert found.statistics == twin.statistics


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_a_part_has_the_noise_that_the_total_has_alone(adjacency: str, tmp_path: Path) -> None:
    """Of 750 numbers |mean of squares − 1| < 5·√(2/n) but for 6e-7."""
    privacy: dict[str, Any] = {"adjacency": adjacency}
    experiment = written(tmp_path, study(200), privacy=privacy)
    stddevs = {}
    for by_party in (False, True):
        settings = [f"describe.by_party={str(by_party).lower()}", "describe.bins=64"]
        prepared = prepare(read_description(experiment, settings))
        strategy = build_strategy(prepared, run="noise")
        assert isinstance(strategy, Description)
        stddevs[by_party] = strategy.part_stddev
    query = strategy.ask()
    assert isinstance(query, StatisticsQuery)
    answer = build_federation(prepared, run="noise").sum(query)
    strategy.learn(answer)
    assert isinstance(strategy, Description)
    assert strategy.party_sums is not None
    noise = (strategy.party_sums.ravel() - answer.value) / strategy.part_stddev
    assert abs(np.mean(noise**2) - 1) < 5 * sqrt(2 / len(noise))
    assert abs(np.mean((noise / 2) ** 2) - 1) > 5 * sqrt(2 / len(noise))  # teeth
    assert stddevs[True] == pytest.approx(stddevs[False], rel=2e-3)
    assert strategy.noise_stddev == pytest.approx(sqrt(3) * stddevs[True])
    assert strategy.sums == pytest.approx(strategy.party_sums.sum(axis=0))


def test_a_release_is_one_and_says_what_it_is(
    fedpriv: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedpriv._toml import to_toml

    monkeypatch.chdir(tmp_path)
    tables = written(tmp_path, study(400))
    (tmp_path / "study.toml").write_text(to_toml({**tables, "describe": BY_PARTY}))
    real = ("--release", "--ledger", "l", "--new-ledger", "--out", "out")
    done = fedpriv("describe", "study.toml", *real)
    assert done.code == 0, done.message
    assert "--- south:" in done.out
    assert {path.name for path in (tmp_path / "out").iterdir()} - {"private"} <= {*DESCRIBED_FILES}
    assert "the sums over every party by itself, with noise" in " ".join(
        (tmp_path / "out" / "statement.txt").read_text().split()
    )
    found = json.loads((tmp_path / "out" / "statistics.json").read_text())
    assert list(found["by_party"]) == SITES
    with Ledger.open(tmp_path / "l", read_only=True) as ledger:
        assert ledger.spent().guarantee.epsilon == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize(
    "noise_at",
    ["server", "parties"],
)
def test_a_party_that_is_missing_would_be_told_of_by_noise_alone(
    noise_at: str, tmp_path: Path
) -> None:
    tables = {"run": {"dropout": 0.3}, "privacy": {"noise_at": noise_at}}
    with pytest.raises(ValueError, match=r"run\.dropout must be 0 with describe\.by_party"):
        fedpriv.describe(written(tmp_path, study(200), **tables), describe=BY_PARTY)


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("noise_at", ["server", "parties"])
def test_persons_at_two_parties_are_counted_with_the_noise_for_both(
    adjacency: str, noise_at: str, tmp_path: Path
) -> None:
    """√2 times that of a person at one party, where their total would need twice as much."""
    stddevs = {}
    for parties, by_party in itertools.product((1, 2), (False, True)):
        tables: dict[str, Any] = {
            "privacy": {"unit": "person", "adjacency": adjacency, "noise_at": noise_at},
            "persons": {"parties": parties},
            "data": {"records": 100},
        }
        experiment = written(tmp_path, study(200), **tables)
        settings = [f"describe.by_party={str(by_party).lower()}", "describe.bins=8"]
        strategy = build_strategy(prepare(read_description(experiment, settings)), run="noise")
        assert isinstance(strategy, Description)
        stddevs[parties, by_party] = strategy.part_stddev
    assert stddevs[2, True] / stddevs[1, True] == pytest.approx(sqrt(2), rel=2e-3)
    assert stddevs[2, False] / stddevs[1, False] == pytest.approx(2, rel=2e-3)


@pytest.mark.parametrize("engine", ["local", "vectorized"])
def test_noise_of_the_parties_is_on_every_part_as_planned(engine: str, tmp_path: Path) -> None:
    """Of n numbers |mean of squares − 1| < 5·√(2/n) but for 6e-7, in each part; half is caught."""
    tables = {"privacy": {"noise_at": "parties"}, "run": {"engine": engine}}
    experiment = written(tmp_path, study(200), **tables)
    settings = ["describe.by_party=true", "describe.bins=128"]
    prepared = prepare(read_description(experiment, settings))
    strategy = build_strategy(prepared, run="noise")
    assert isinstance(strategy, Description)
    query = strategy.ask()
    assert isinstance(query, StatisticsQuery)
    assert query.share is None
    assert query.local is not None
    noisy = build_federation(prepared, run="noise").sum(query)
    exact = VectorizedFederation(
        prepared.data, task=prepared.task, sampling=lambda _: RandomStream.seeded(0)
    ).sum(replace(query, local=None))
    strategy.learn(noisy)
    assert strategy.party_sums == pytest.approx(noisy.value.reshape(3, -1))  # none on top of it
    for part in (noisy.value - exact.value).reshape(3, -1):
        noise = part / strategy.part_stddev
        assert abs(np.mean(noise**2) - 1) < 5 * sqrt(2 / len(noise))
        assert abs(np.mean((noise / 2) ** 2) - 1) > 5 * sqrt(2 / len(noise))
    server = prepare(read_description({**experiment, "privacy": {}}, settings))
    planned = build_strategy(server, run="noise")
    assert isinstance(planned, Description)
    assert strategy.part_stddev == pytest.approx(planned.part_stddev)  # no more, and no less
