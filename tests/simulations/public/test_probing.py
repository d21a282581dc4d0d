"""Influence measured on public data: exact on a quadratic, and never on private records."""

from __future__ import annotations

import json
import tomllib
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from fedpriv._toml import to_toml
from fedpriv.federation.task import Task
from fedpriv.learning.losses import Logistic, Squared
from fedpriv.learning.models import LinearModel
from fedpriv.simulations.experiment.file import parse_experiment, read_experiment
from fedpriv.simulations.public import probing
from fedpriv.simulations.public.decay import decay_influence
from fedpriv.simulations.public.probing import influence
from fedpriv.simulations.run.prepare import build_strategy, prepare
from tests.federation.deployed.deployments import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fedpriv.privacy.planning.plan import Plan
    from fedpriv.simulations.experiment.file import Experiment
    from fedpriv.simulations.run.prepare import Prepared

WIDTH, ROUNDS = 4, 12


def task(loss: Any, regulariser: float, records: int) -> Task:
    return Task(
        model=LinearModel(width=WIDTH),
        loss=loss,
        regulariser=regulariser,
        feature_bound=1.0,
        sizes=(records,),
    )


def test_on_a_quadratic_of_one_curvature_it_is_geometric() -> None:
    """H = I/d: q_t = (1 − η(1/d + λ))^(2(T−t)), for every probe, hence without error."""
    X = torch.eye(WIDTH, dtype=torch.float64).repeat(8, 1)
    y = torch.linspace(-1, 1, len(X), dtype=torch.float64)
    problem = task(Squared(radius=10.0, label_bound=1.0), 0.05, len(X))
    measured = influence(problem, X, y, rounds=ROUNDS, rate=1.5)
    shrink = 1 - 1.5 * (1 / WIDTH + 0.05)
    expected = [shrink ** (2 * (ROUNDS - t)) for t in range(1, ROUNDS + 1)]
    np.testing.assert_allclose(measured, expected, rtol=1e-9)


def test_it_estimates_the_trace_of_the_propagated_hessian(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against dense matrices. 20,000 probes err by 1 % at most, one standard error: 7 are 3e-12."""
    monkeypatch.setattr(probing, "_PROBES", 20_000)
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, WIDTH)) / 2
    y = np.sign(X @ np.linspace(-3, 3, WIDTH) + 0.1)
    rate, regulariser = 2.0, 0.02
    theta, hessians = np.zeros(WIDTH), []
    for _ in range(ROUNDS + 1):
        p = 1 / (1 + np.exp(y * (X @ theta)))
        hessians.append(X.T * (p * (1 - p)) @ X / len(X) + regulariser * np.eye(WIDTH))
        theta = theta - rate * (X.T @ (-y * p) / len(X) + regulariser * theta)
    matrix, traces = hessians[-1], []
    for hessian in reversed(hessians[:-1]):
        traces.append(np.trace(matrix))
        step = np.eye(WIDTH) - rate * hessian
        matrix = step @ matrix @ step
    expected = np.array(traces[::-1])
    problem = task(Logistic(), regulariser, len(X))
    measured = influence(
        problem, torch.from_numpy(X), torch.from_numpy(y), rounds=ROUNDS, rate=rate
    )
    np.testing.assert_allclose(measured, expected / expected.max(), rtol=0.07)
    assert expected[0] < expected[-1] / 5  # early noise is forgotten


def test_the_decay_of_gradients_is_the_same_influence_on_a_quadratic_of_one_curvature() -> None:
    X = torch.eye(WIDTH, dtype=torch.float64).repeat(8, 1)
    y = torch.linspace(-1, 1, len(X), dtype=torch.float64)
    problem = task(Squared(radius=10.0, label_bound=1.0), 0.05, len(X))
    theta, norms = torch.zeros(WIDTH, dtype=torch.float64), []
    for _ in range(ROUNDS):
        gradient = X.T @ (X @ theta - y) / len(X) + 0.05 * theta
        norms.append(float(gradient.norm()))
        theta = theta - 1.5 * gradient
    expected = influence(problem, X, y, rounds=ROUNDS, rate=1.5)
    np.testing.assert_allclose(decay_influence(np.array(norms)), expected, rtol=1e-9)


def test_what_is_forgotten_stays_forgotten_where_gradients_rise_again() -> None:
    found = decay_influence(np.array([1.0, 4.0, 8.0, 2.0, 4.0, 1.0]))
    np.testing.assert_allclose(found, [1 / 64, 1 / 64, 1 / 64, 1 / 16, 1 / 16, 1])
    for wrong in ([1.0, 0.0], [np.inf, 1.0], [np.nan, 1.0]):
        with pytest.raises(ValueError, match="finite gradients to its last round"):
            decay_influence(np.array(wrong))


NETWORK = {"name": "mlp", "hidden": [8], "l2": 0.001}


def experiment(public: str, *, model: dict[str, Any] | None = None, **options: Any) -> Any:
    return parse_experiment(
        {
            "data": {"name": "digits:3v5", "partition": "iid", "parties": 2},
            "model": model or {"l2": 0.05},
            "strategy": {
                "name": "gradient-perturbation",
                "rounds": 6,
                "schedule": {"name": "influence", "public": public},
                **options,
            },
            "privacy": {"delta": 1e-6},
        }
    )


def require_falling_noise(plan: Plan | None) -> None:
    assert plan is not None
    noise = [mechanism.noise_stddev for mechanism in plan.mechanisms]
    assert noise == sorted(noise, reverse=True)
    assert noise[0] > 1.05 * noise[-1]
    assert plan.epsilon <= 1.0 + 1e-9


def test_a_network_takes_it_from_the_decay_of_its_gradients() -> None:
    changed: dict[str, Any] = {"model": NETWORK, "learning_rate": 2.0}
    prepared = prepare(experiment("digits:4v6", rounds=25, **changed))
    require_falling_noise(build_strategy(prepared, run=prepared.run).plan)
    with pytest.raises(ValueError, match="must name another, public data set"):
        build_strategy(prepare(experiment("digits:5v8", **changed)), run="r")
    with pytest.raises(ValueError, match="must have the features of the private data"):
        build_strategy(prepare(experiment("breast_cancer", **changed)), run="r")


def test_an_experiment_measures_it_on_public_digits_before_the_run() -> None:
    prepared = prepare(experiment("digits:4v6"))
    require_falling_noise(build_strategy(prepared, run=prepared.run).plan)


@pytest.mark.parametrize(
    ("public", "reason"),
    [
        ("digits:5v8", "schedule.public must name another, public data set"),
        ("breast_cancer", "must have the features of the private data, 65"),
    ],
)
def test_private_or_foreign_records_are_refused(public: str, reason: str) -> None:
    prepared = prepare(experiment(public))
    with pytest.raises(ValueError, match=reason):
        build_strategy(prepared, run=prepared.run)


def write_table(path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    age, dose = rng.uniform(0, 100, 200), rng.uniform(-1, 1, 200)
    sick = np.where(age / 50 - 1 + dose > 0, "yes", "no")
    rows = [f"{a:.3f},{d:.4f},{s}" for a, d, s in zip(age, dose, sick, strict=True)]
    path.write_text("\n".join(["age,dose,sick", *rows, ""]))


def own_tables(folder: Path, public: str) -> Experiment:
    """A file whose paths are relative to it."""
    (folder / "schema.toml").write_text(SCHEMA)
    for seed, name in enumerate(("private.csv", "public.csv")):
        write_table(folder / name, seed)
    (folder / "study.toml").write_text(
        '[data]\npath = "private.csv"\nschema = "schema.toml"\n'
        'partition = "iid"\nparties = 2\n[model]\nl2 = 0.05\n'
        '[strategy]\nname = "gradient-perturbation"\nrounds = 6\n'
        f'schedule = {{ name = "influence", public = "{public}" }}\n[privacy]\nepsilon = 2.0\n'
    )
    return read_experiment(folder / "study.toml")


def noise_of(prepared: Prepared) -> list[float]:
    plan = build_strategy(prepared, run=prepared.run).plan
    assert plan is not None
    return [mechanism.noise_stddev for mechanism in plan.mechanisms]


def test_it_is_measured_on_a_public_table_of_ones_own_once_for_the_whole_run(
    tmp_path: Path,
) -> None:
    """What was measured is in the experiment: a table that changes later changes no noise."""
    prepared = prepare(own_tables(tmp_path, "public.csv"))
    noise = noise_of(prepared)
    assert noise == sorted(noise, reverse=True)
    assert noise[0] > 1.01 * noise[-1]
    resumed = parse_experiment(tomllib.loads(to_toml(prepared.experiment.to_dict())))
    write_table(tmp_path / "public.csv", 7)
    assert noise_of(prepare(resumed)) == noise
    assert prepare(resumed).run == prepared.run
    assert noise_of(prepare(own_tables(tmp_path, "public.csv"))) == noise  # written anew
    write_table(tmp_path / "public.csv", 7)
    assert noise_of(prepare(read_experiment(tmp_path / "study.toml"))) != noise


def test_a_statement_says_that_the_table_is_taken_to_be_public(
    fedpriv: Callable[..., Any], tmp_path: Path
) -> None:
    """What was measured is published as it is: with the same people in it, so are they."""
    own_tables(tmp_path, "public.csv")
    fedpriv("run", tmp_path / "study.toml", "--out", tmp_path / "out")
    (warning,) = json.loads((tmp_path / "out" / "statement.json").read_text())["run"]["assumptions"]
    assert "the table public.csv, which is taken to be public" in warning


def test_a_table_is_not_the_private_one_and_has_its_schema(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must be another table than data\.path"):
        prepare(own_tables(tmp_path, "private.csv"))
    (tmp_path / "other.csv").write_text("age,sick\n1,yes\n")
    with pytest.raises(ValueError, match="dose"):
        prepare(own_tables(tmp_path, "other.csv"))
    with pytest.raises(ValueError, match="a table is read by the schema of the private data"):
        prepare(experiment(str(tmp_path / "public.csv")))
