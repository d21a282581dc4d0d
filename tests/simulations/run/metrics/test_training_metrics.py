"""Training metrics: the objective of descent, and how far a run is from its certified minimum."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.optimize import minimize

import fedpriv
from fedpriv.simulations.experiment.file import Experiment, parse_experiment
from fedpriv.simulations.run.metrics.training_metrics import TRAINING, Minimum, TrainingMetrics
from fedpriv.simulations.run.prepare import Prepared, prepare
from fedpriv.simulations.run.release_rules import require_releasable

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

L2 = 0.05


def experiment(**tables: dict[str, Any]) -> Experiment:
    values: dict[str, dict[str, Any]] = {
        "data": {"name": "synthetic"},
        "model": {"l2": L2},
        "strategy": {"name": "gradient-perturbation", "rounds": 4},
        "run": {"training_metrics": True},
    }
    return parse_experiment({**values, **tables})


def by_hand(prepared: Prepared, theta: NDArray[np.float64], *, divisor: int) -> float:
    """f(θ) of logistic regression, written out."""
    records = prepared.data.dataset.train
    margins = records.y.astype(float) * (records.X.astype(float) @ theta)
    return float(np.logaddexp(0, -margins).sum() / divisor + L2 / 2 * theta @ theta)


def test_the_objective_is_that_of_the_experiment_written_out() -> None:
    prepared = prepare(experiment())
    metrics, count = TrainingMetrics.of(prepared), len(prepared.data.dataset.train)
    for scale in (0.0, 1.0, 30.0):
        theta = scale * np.random.default_rng(0).normal(size=prepared.task.dimension)
        expected = by_hand(prepared, theta, divisor=count)
        assert metrics.score(theta).objective == pytest.approx(expected, rel=1e-12)


def test_a_declared_number_of_records_divides_the_objective() -> None:
    declared = {"name": "synthetic", "records": 700}
    prepared = prepare(experiment(data=declared, privacy={"adjacency": "add-remove"}))
    theta = np.full(prepared.task.dimension, 0.3)
    assert len(prepared.data.dataset.train) != 700
    expected = by_hand(prepared, theta, divisor=prepared.task.records)
    assert TrainingMetrics.of(prepared).score(theta).objective == pytest.approx(expected)


def test_the_minimum_is_certified_and_another_solver_does_not_beat_it_by_more() -> None:
    prepared = prepare(experiment())
    minimum, count = Minimum.of(prepared), len(prepared.data.dataset.train)
    peer = minimize(
        lambda theta: by_hand(prepared, theta, divisor=count),
        np.zeros(prepared.task.dimension),
        method="BFGS",
        options={"gtol": 1e-7},
    )
    ours = minimum.theta.numpy().ravel()
    assert minimum.value == pytest.approx(by_hand(prepared, ours, divisor=count), rel=1e-13)
    assert minimum.value <= peer.fun + 1e-12
    assert peer.fun - minimum.value <= 1e-10
    assert np.linalg.norm(peer.x - ours) <= np.linalg.norm(peer.jac) / L2 + minimum.gap_error + 1e-6
    assert minimum.risk_error == pytest.approx(minimum.gradient_norm**2 / (2 * L2))
    assert minimum.risk_error < 1e-15


def test_the_certificate_bounds_what_strong_convexity_says_it_does() -> None:
    """At any point f − f* ≤ ‖∇f‖²/(2λ), ‖θ − θ*‖ ≤ ‖∇f‖/λ, and f − f* ≥ (λ/2)‖θ − θ*‖²."""
    prepared = prepare(experiment())
    minimum, rng = Minimum.of(prepared), np.random.default_rng(1)
    records, count = prepared.data.dataset.train, len(prepared.data.dataset.train)
    for scale in (1e-4, 1e-2, 1.0):
        theta = minimum.theta.numpy().ravel() + scale * rng.normal(size=prepared.task.dimension)
        margins = records.y * (records.X @ theta)
        slopes = -records.y / (1 + np.exp(margins))
        steep = float(np.linalg.norm(records.X.T @ slopes / count + L2 * theta))
        score = minimum.score(theta)
        assert score.excess_risk is not None
        assert score.optimality_gap is not None
        assert score.excess_risk <= steep**2 / (2 * L2) * (1 + 1e-4)
        assert score.optimality_gap <= steep / L2 * (1 + 1e-4)
        assert score.excess_risk >= L2 / 2 * score.optimality_gap**2 * (1 - 1e-6)


def test_the_pooled_model_has_no_excess_and_a_run_tells_of_every_round(tmp_path: Path) -> None:
    study = experiment(strategy={"name": "pooled"}).to_dict()
    exact = fedpriv.run(study).summary
    assert abs(exact["excess_risk"]) <= exact["excess_risk_error"] + 1e-12
    assert exact["optimality_gap"] < 1e-4
    result = fedpriv.run(experiment().to_dict(), out=tmp_path / "run")
    assert len(result.history) == 4
    last = result.history[-1]
    for key in TRAINING:
        assert all(row[key] is not None for row in result.history)
        assert last[key] == result.summary[key]
    rows = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert set(TRAINING) <= set(rows[0])
    assert "excess empirical risk" in repr(result)
    assert "f* certified to" in repr(result)


def test_it_changes_no_number_of_a_run_and_nothing_is_there_unless_asked_for() -> None:
    asked, plain = experiment(), experiment(run={})
    assert asked.config_hash == plain.config_hash
    one, other = fedpriv.run(asked.to_dict()), fedpriv.run(plain.to_dict())
    assert one.summary["loss"] == other.summary["loss"]
    assert not set(TRAINING) & set(other.summary)
    assert not set(TRAINING) & set(other.history[0])
    assert "training_metrics" not in plain.to_dict()["run"]


@pytest.mark.parametrize(
    "model", [{"l2": 0.0}, {"name": "mlp", "hidden": [3], "l2": 0.01}], ids=["no l2", "network"]
)
def test_without_strong_convexity_there_is_an_objective_and_no_minimum(
    model: dict[str, Any],
) -> None:
    strategy = {"name": "gradient-perturbation", "rounds": 2, "learning_rate": 0.1}
    result = fedpriv.run(experiment(model=model, strategy=strategy).to_dict())
    assert result.summary["objective"] > 0
    assert result.summary["excess_risk"] is None
    assert result.summary["excess_risk_error"] is None
    assert "not known" in repr(result)


def test_a_model_that_has_left_the_numbers_is_the_worst_and_no_error() -> None:
    metrics = TrainingMetrics.of(prepare(experiment()))
    assert metrics.minimum is not None
    score = metrics.score(np.full_like(metrics.minimum.theta.numpy().ravel(), 1e200))
    assert score.objective == score.optimality_gap == 1e100


def test_a_release_and_a_deployment_refuse_it() -> None:
    with pytest.raises(ValueError, match=r"--release computes no run\.training_metrics"):
        require_releasable(experiment())
    with pytest.raises(ValueError, match="training_metrics is for simulations"):
        experiment(run={"training_metrics": True, "engine": "deployment"})


def test_persons_refuse_it() -> None:
    study = experiment(data={"name": "visits"}, privacy={"unit": "person"})
    with pytest.raises(ValueError, match=r"training_metrics is not for privacy\.unit = 'person'"):
        TrainingMetrics.of(prepare(study))
