"""Noise of a description: of its planned law, and errors that are stated as it has them."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

import numpy as np
import pytest

import fedpriv
from fedpriv.federation.queries.kinds import StatisticsQuery
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.unit import Unit
from fedpriv.simulations.describe.estimates import statistics_of
from fedpriv.simulations.describe.experiment import read_description
from fedpriv.simulations.run.prepare import build_federation, build_strategy, prepare
from fedpriv.strategies.common.describing import DescribeOptions
from fedpriv.strategies.description import Description
from tests.simulations.describe.scenes import study, written

if TYPE_CHECKING:
    from pathlib import Path

ADJACENCY = Adjacency.REPLACE_ONE
MU = 0.2367043807
"""μ of ε = 1 and δ = 1e-6."""


def test_errors_of_correlations_are_those_of_the_noise(tmp_path: Path) -> None:
    # 100 runs: the mean of squared standardised errors is within 5·√(2/100) of 1, and 4 is not.
    frame = study(3000)
    experiment = written(tmp_path, frame)
    experiment["describe"] = {"columns": [], "correlation": ["weight", "time"]}
    known, scores = frame[["weight", "time"]].cov().to_numpy(), []
    prepared = prepare(read_description(experiment, ["privacy.epsilon=8.0"]))
    options = DescribeOptions.model_validate(prepared.experiment.strategy.options)
    for run in map(str, range(100)):
        strategy = build_strategy(prepared, run=run)
        query = strategy.ask()
        assert isinstance(strategy, Description)
        assert isinstance(query, StatisticsQuery)
        strategy.learn(build_federation(prepared, run=run).sum(query))
        found = statistics_of(strategy, options, unit=Unit.RECORD, adjacency=ADJACENCY)
        crossed = found["correlation"]
        scores.append(
            [
                (crossed["covariance"][1][1] - known[1, 1]) / crossed["covariance_error"][1][1],
                (crossed["correlation"][0][1] - frame["weight"].corr(frame["time"]))
                / crossed["correlation_error"][0][1],
                (crossed["mean"][0] - frame["weight"].mean()) / crossed["mean_error"][0],
            ]
        )
    squares = np.mean(np.square(scores), axis=0)
    assert (np.abs(squares - 1) < 5 * sqrt(2 / 100)).all(), squares
    assert (np.abs(4 * squares - 1) > 5 * sqrt(2 / 100)).all(), squares  # teeth


def test_errors_are_those_of_the_noise(tmp_path: Path) -> None:
    # 25 seeds; every standardised error is normal: |mean of squares − 1| < 5·√(2/n).
    frame = study(1500)
    experiment = written(tmp_path, frame)
    experiment["describe"] = {"bins": 16, "columns": ["age", "weight", "died"]}
    scores: dict[str, list[float]] = {"mean": [], "variance": [], "missing": [], "count": []}
    for seed in range(25):
        found = fedpriv.describe(experiment, privacy={"epsilon": 3.0}, run={"seed": seed})
        for name in ("age", "weight"):
            column, known = found.columns[name], frame[name].dropna()
            scores["mean"].append((column["mean"] - known.mean()) / column["mean_error"])
            scores["variance"].append((column["variance"] - known.var()) / column["variance_error"])
        absent = found.columns["age"]["missing"]
        scores["missing"].append((absent["count"] - frame["age"].isna().sum()) / absent["noise"])
        died = found.columns["died"]
        scores["count"].append((died["noisy"][1] - (frame["died"] == "yes").sum()) / died["noise"])
    for name, values in scores.items():
        squares = np.mean(np.square(values))
        assert abs(squares - 1) < 5 * sqrt(2 / len(values)), name
        assert abs(np.mean(np.square(values)) * 4 - 1) > 5 * sqrt(2 / len(values)), name  # teeth


def test_noise_is_of_the_planned_law_on_every_number(tmp_path: Path) -> None:
    # About 12,000 numbers: |mean of squares − 1| < 5·√(2/n) but for 6e-7.
    experiment = written(tmp_path, study(200))
    prepared = prepare(read_description(experiment, ["describe.bins=2048"]))
    strategy = build_strategy(prepared, run="noise")
    federation = build_federation(prepared, run="noise")
    query = strategy.ask()
    assert isinstance(strategy, Description)
    assert isinstance(query, StatisticsQuery)
    answer = federation.sum(query)
    strategy.learn(answer)
    assert strategy.sums is not None
    noise = (strategy.sums - answer.value) / strategy.noise_stddev
    assert abs(np.mean(noise**2) - 1) < 5 * sqrt(2 / len(noise))
    assert abs(np.mean((noise / 2) ** 2) - 1) > 5 * sqrt(2 / len(noise))  # teeth
    moved = query.sensitivity(prepared.task, sizes=prepared.task.sizes, adjacency=ADJACENCY)
    assert moved is not None
    assert strategy.noise_stddev * MU == pytest.approx(moved, rel=2e-3)
    assert strategy.noise_stddev * MU >= moved * (1 - 1e-9)


def test_a_table_alone_has_the_noise_of_its_sensitivity(tmp_path: Path) -> None:
    # √2/μ for ε = 1, δ = 1e-6, replace-one: 5.97460, and a thousandth for the grid.
    experiment = written(tmp_path, study(100))
    experiment["describe"] = {"columns": [], "tables": [["smoker", "died"]]}
    (table,) = fedpriv.describe(experiment).statistics["tables"]
    assert 5.97460 <= table["noise"] <= 5.97460 * 1.001
