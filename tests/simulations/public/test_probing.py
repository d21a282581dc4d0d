"""Influence measured on public data: exact on a quadratic, and never on private records."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fedpriv.federation.task import Task
from fedpriv.learning.losses import Logistic, Squared
from fedpriv.learning.models import LinearModel
from fedpriv.simulations.experiment.file import parse_experiment
from fedpriv.simulations.public import probing
from fedpriv.simulations.public.probing import influence
from fedpriv.simulations.run.prepare import build_strategy, prepare

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


def experiment(public: str) -> Any:
    return parse_experiment(
        {
            "data": {"name": "digits:3v5", "partition": "iid", "parties": 2},
            "model": {"l2": 0.05},
            "strategy": {
                "name": "gradient-perturbation",
                "rounds": 6,
                "schedule": {"name": "influence", "public": public},
            },
            "privacy": {"delta": 1e-6},
        }
    )


def test_an_experiment_measures_it_on_public_digits_before_the_run() -> None:
    prepared = prepare(experiment("digits:4v6"))
    plan = build_strategy(prepared, run=prepared.run).plan
    assert plan is not None
    noise = [mechanism.noise_stddev for mechanism in plan.mechanisms]
    assert noise == sorted(noise, reverse=True)
    assert noise[0] > 1.05 * noise[-1]
    assert plan.epsilon <= 1.0 + 1e-9


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
