"""Metrics are those of scikit-learn, in the unit of the table; of parties, in studies alone."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as peer

import fedpriv
from fedpriv.learning.crew import Crew
from fedpriv.learning.losses import HuberHinge, HuberRegression, Logistic, Softmax
from fedpriv.learning.models import LinearModel
from fedpriv.simulations.deploy.run.public_facts import prepare_deployed
from fedpriv.simulations.experiment.file import parse_experiment
from fedpriv.simulations.run import release_outcome as outcome
from fedpriv.simulations.run.metrics import scores as metrics
from fedpriv.simulations.run.metrics.evaluation import Evaluator
from fedpriv.simulations.run.metrics.party_metrics import LEAST, party_metrics
from fedpriv.simulations.run.metrics.scores import MEASURES
from fedpriv.simulations.run.prepare import prepare
from fedpriv.simulations.run.summary import simulate

if TYPE_CHECKING:
    from pathlib import Path

LABELS = st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2, max_size=40)


@given(LABELS)
def test_the_auc_is_the_share_of_pairs_in_order(pairs: list[tuple[int, bool]]) -> None:
    """Scores of seven values: ties everywhere."""
    scores, positive = (np.array(column) for column in zip(*pairs, strict=True))
    found = metrics.auc(scores.astype(float), positive)
    if positive.all() or not positive.any():
        assert found is None
        return
    above = scores[positive][:, None] - scores[~positive][None]
    assert found == pytest.approx(np.mean((above > 0) + (above == 0) / 2))
    assert found == pytest.approx(peer.roc_auc_score(positive, scores))


def test_the_auc_knows_infinity_and_refuses_what_is_no_number() -> None:
    positive = np.array([True, False, True, False])
    assert metrics.auc(np.array([np.inf, 1.0, 2.0, -np.inf]), positive) == 1.0
    assert metrics.auc(np.array([np.nan, 1.0, 2.0, 3.0]), positive) is None


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=40))
def test_f1_and_balanced_accuracy_are_scikit_learns(pairs: list[tuple[int, int]]) -> None:
    named, labels = (np.array(column) for column in zip(*pairs, strict=True))
    counts = metrics.confusion(named, labels, classes=4)
    assert counts.sum() == len(pairs)
    expected = peer.f1_score(labels, named, average="macro", zero_division=0)
    assert np.nanmean(metrics.f1(counts)) == pytest.approx(expected)
    recalls = [np.mean(named[labels == k] == k) for k in np.unique(labels)]
    assert metrics.balanced_accuracy(counts) == pytest.approx(np.mean(recalls))


def evaluator(loss: Any, *, classes: int = 1, unit: float = 1.0) -> tuple[Evaluator, Any, Any]:
    """400 records of five features, and a model that half explains them."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(400, 5)).astype(np.float32)
    theta = rng.normal(size=5 * classes)
    scores = X @ theta.reshape(classes, 5).T + rng.normal(size=(400, classes))
    if classes > 1:
        y: Any = scores.argmax(1)
    elif isinstance(loss, HuberRegression):
        y = scores[:, 0].astype(np.float32)
    else:
        y = np.where(scores[:, 0] > 0, 1, -1).astype(np.float32)
    made = Evaluator(
        model=LinearModel(width=5, classes=classes),
        loss=loss,
        features=torch.from_numpy(X),
        labels=torch.from_numpy(y),
        unit=unit,
    )
    return made, theta, made.model.scores(torch.from_numpy(theta), made.features).double().numpy()


@pytest.mark.parametrize("loss", [Logistic(), HuberHinge(smoothing=0.5)])
def test_two_classes(loss: Any) -> None:
    made, theta, scores = evaluator(loss)
    score = made.score(theta)
    assert score is not None
    found, labels = made.measure(theta, loss=score.loss), made.labels.numpy() > 0
    assert found.auc == pytest.approx(peer.roc_auc_score(labels, scores))
    assert found.f1 == pytest.approx(peer.f1_score(labels, scores >= 0))
    assert found.balanced_accuracy == pytest.approx(
        peer.balanced_accuracy_score(labels, scores >= 0)
    )
    assert found.rmse is found.mae is found.r2 is None
    if isinstance(loss, HuberHinge):
        assert found.log_loss is None  # its scores are no probabilities
    else:
        expected = peer.log_loss(labels, 1 / (1 + np.exp(-scores)))
        assert found.log_loss == pytest.approx(expected, rel=1e-5)


def test_several_classes() -> None:
    made, theta, scores = evaluator(Softmax(classes=4), classes=4)
    score = made.score(theta)
    assert score is not None
    found, labels = made.measure(theta, loss=score.loss), made.labels.numpy()
    odds = np.exp(scores)
    probabilities = odds / odds.sum(axis=1, keepdims=True)
    expected = peer.roc_auc_score(labels, probabilities, multi_class="ovr", average="macro")
    assert found.auc == pytest.approx(expected)
    assert found.f1 == pytest.approx(peer.f1_score(labels, scores.argmax(1), average="macro"))
    assert found.log_loss == pytest.approx(peer.log_loss(labels, probabilities), rel=1e-5)


def test_a_regression_in_the_unit_of_its_labels() -> None:
    made, theta, scores = evaluator(HuberRegression(threshold=1.0), unit=50.0)
    found, labels = made.measure(theta, loss=0.0), made.labels.double().numpy()
    assert found.rmse == pytest.approx(50 * peer.root_mean_squared_error(labels, scores))
    assert found.mae == pytest.approx(50 * peer.mean_absolute_error(labels, scores))
    assert found.r2 == pytest.approx(peer.r2_score(labels, scores))
    assert found.auc is found.f1 is found.log_loss is None


def test_a_model_that_left_the_numbers_has_finite_metrics_or_none() -> None:
    for loss in (Logistic(), HuberRegression(threshold=1.0)):
        made, theta, _ = evaluator(loss)
        found = made.measure(theta * np.inf, loss=1e100)
        assert all(v is None or np.isfinite(v) for v in map(found.__getattribute__, MEASURES))
        json.dumps(found.rmse, allow_nan=False)


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    made, theta, _ = evaluator(Logistic())
    whole, wrong = made.measure(theta, loss=0.0), made.wrong(theta)
    monkeypatch.setattr("fedpriv.simulations.run.metrics.evaluation._CHUNK", 7)
    assert made.measure(theta, loss=0.0) == whole
    assert np.array_equal(made.wrong(theta), wrong)


@pytest.mark.parametrize(
    "loss", [Logistic(), HuberRegression(threshold=1.0)], ids=["classes", "numbers"]
)
def test_a_score_does_not_depend_on_who_computes_it(
    loss: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, theta, scores = evaluator(loss)
    plain = loss.value(torch.from_numpy(scores), made.labels).mean().item()
    monkeypatch.setattr("fedpriv.simulations.run.metrics.evaluation._FEW", 57)
    monkeypatch.setattr("fedpriv.simulations.run.metrics.evaluation._SMALL", 1)
    assert len(made._pieces) == 7
    found = {replace(made, crew=Crew(size)).score(theta) for size in (1, 2, 3, 9)}
    assert len(found) == 1
    score = found.pop()
    assert score is not None
    assert score.loss == pytest.approx(plain, rel=1e-5)
    if isinstance(loss, Logistic):
        assert score.accuracy == np.mean((scores >= 0) == (made.labels.numpy() > 0))


# In a run


STUDY: dict[str, Any] = {
    "data": {"name": "synthetic"},
    "model": {"l2": 0.01},
    "strategy": {"name": "output-perturbation"},
}


def test_a_table_gives_errors_in_its_own_unit(tmp_path: Path) -> None:
    """Labels from 100 to 300 are scaled to [-1, 1]; what is told is not."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, 600)
    y = np.clip(200 + 60 * x + rng.normal(scale=9, size=600), 100, 300)
    lines = ["x,y,clinic", *(f"{x[i]:.6f},{y[i]:.6f},c{i % 3}" for i in range(600))]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "t.toml").write_text(
        'label = "y"\nparty = "clinic"\n'
        '[columns.x]\nkind = "number"\nmin = -1\nmax = 1\n'
        '[columns.y]\nkind = "number"\nmin = 100\nmax = 300\n'
    )
    study = {
        "data": {"path": str(tmp_path / "t.csv"), "schema": str(tmp_path / "t.toml")},
        "model": {"name": "huber-regression", "l2": 1e-4},
        "strategy": {"name": "pooled"},
    }
    result = fedpriv.run(study)
    assert result.metrics["mae"] == pytest.approx(9 * np.sqrt(2 / np.pi), rel=0.15)
    assert result.metrics["rmse"] == pytest.approx(9, rel=0.15)
    assert result.metrics["r2"] == pytest.approx(1 - 81 / (60**2 / 3 + 81), abs=0.03)
    each = result.summary["per_party"]
    assert (each["metric"], each["on"], len(each["values"])) == ("rmse", "test", 3)
    assert result.summary["worst_party"] == max(each["values"])
    assert "RMSE" in repr(result)


def test_so_does_the_public_table_of_a_deployment(tmp_path: Path) -> None:
    """A model that always says 200 errs by 50 where labels are 150 and 250, and not by 0.5."""
    (tmp_path / "t.csv").write_text("x,y\n0.5,150\n-0.5,250\n")
    (tmp_path / "t.toml").write_text(
        'label = "y"\n'
        '[columns.x]\nkind = "number"\nmin = -1\nmax = 1\n'
        '[columns.y]\nkind = "number"\nmin = 100\nmax = 300\n'
    )
    files = {"path": str(tmp_path / "t.csv"), "schema": str(tmp_path / "t.toml")}
    study = {
        "data": {**files, "public_test": True},
        "model": {"name": "huber-regression"},
        "strategy": {"name": "gradient-perturbation"},
        "run": {"engine": "deployment"},
    }
    evaluator = prepare_deployed(parse_experiment(study), sizes=(9, 9)).evaluator
    theta = np.zeros(2)
    score = evaluator.score(theta)
    assert score is not None
    measured = evaluator.measure(theta, loss=score.loss)
    assert measured.rmse == pytest.approx(50)
    assert measured.mae == pytest.approx(50)


def test_a_party_is_measured_on_its_own_test_records() -> None:
    prepared = prepare(parse_experiment(STUDY))
    test = prepared.data.dataset.test
    assert test.party is not None
    theta = np.linspace(-1, 1, prepared.task.dimension)
    found = party_metrics(prepared, theta)
    assert (found.metric, found.on) == ("accuracy", "test")
    named = np.where(test.X @ theta.astype(np.float32) >= 0, 1, -1)
    for party, value in enumerate(found.values):
        own = test.party == party
        assert value == (
            pytest.approx((named == test.y)[own].mean()) if own.sum() >= LEAST else None
        )
    assert found.worst == min(found.known)
    assert found.gap == pytest.approx(max(found.known) - min(found.known))


def test_where_test_records_are_nobodys_a_party_is_measured_on_what_it_trains_on() -> None:
    data = {"name": "synthetic", "partition": "dirichlet", "parties": 12, "alpha": 0.3}
    prepared = prepare(parse_experiment({**STUDY, "data": data}))
    theta = np.linspace(-1, 1, prepared.task.dimension)
    found = party_metrics(prepared, theta)
    assert found.on == "training"
    for party, value in enumerate(found.values):
        own = prepared.data.party(party)
        right = np.where(own.X @ theta.astype(np.float32) >= 0, 1, -1) == own.y
        assert value == (pytest.approx(right.mean()) if len(own) >= LEAST else None)


def test_a_simulation_tells_all_of_them_and_party_alone_has_no_common_model() -> None:
    result = simulate(parse_experiment(STUDY))
    assert 0.5 < result["auc"] < 1
    assert result["worst_party"] <= result["accuracy"]
    assert result["fairness_gap"] >= 0
    json.dumps(result, allow_nan=False)
    alone = simulate(parse_experiment({**STUDY, "strategy": {"name": "party-alone"}}))
    assert result.keys() - alone.keys() <= {"exchanges"}
    assert alone["auc"] is alone["worst_party"] is None


@pytest.mark.parametrize("public", [False, True])
def test_a_release_tells_of_public_test_records_and_of_no_party(
    tmp_path: Path, public: bool
) -> None:
    """Nothing that a release says may follow from records that nobody paid for."""
    data = {"name": "synthetic", "public_test": public, "test_fraction": 0.2}
    result = fedpriv.run(
        {**STUDY, "data": data},
        release=True,
        ledger=tmp_path / "l.ledger",
        new_ledger=True,
        out=tmp_path / "out",
    )
    told = json.loads((tmp_path / "out" / "result.json").read_text())
    assert set(told) <= set(outcome.RESULT)
    assert not {"per_party", "worst_party", "fairness_gap", "majority_accuracy"} & set(told)
    assert (told["auc"] is not None) is public
    assert (result.metrics["f1"] is not None) is public
    for name in MEASURES:
        assert outcome.RESULT[name] is outcome.Origin.TESTED


def test_metrics_do_not_count_as_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever metrics cost, it is not in the seconds that a comparison reports."""
    clock = iter(range(10**6))
    monkeypatch.setattr("fedpriv.simulations.run.history.perf_counter", lambda: float(next(clock)))
    measured: list[int] = []

    def slow(*arguments: Any) -> Any:
        measured.extend(next(clock) for _ in range(1000))
        return party_metrics(*arguments)

    monkeypatch.setattr("fedpriv.simulations.run.summary.party_metrics", slow)
    assert simulate(parse_experiment(STUDY))["seconds"] < 1000
    assert measured


@settings(max_examples=25)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_a_gap_is_none_or_at_least_zero(values: list[float]) -> None:
    from fedpriv.simulations.run.metrics.party_metrics import PartyMetrics

    each = PartyMetrics(metric="accuracy", on="test", values=(None, *values))
    assert each.gap is not None
    assert each.gap >= 0
    assert each.worst == min(values)
    assert replace(each, metric="rmse").worst == max(values)
    nobody = replace(each, values=(None,))
    assert nobody.worst is nobody.gap is None
