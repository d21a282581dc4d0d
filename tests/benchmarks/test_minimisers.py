"""Minimisers of the benchmark, against the strategies that find them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.minimisers import GRID, OBJECTIVE, OUTPUT, Noisy, found_models, planned
from benchmarks.settings import cut, task_of, whole
from fedpriv.data import PartitionedDataset
from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.learning.losses import Logistic, Loss, Softmax
from tests.federation.worlds import build, streams, train

L2 = 0.01
QUIET = Noisy(parties=10, l2=L2, extra=0.0, linear=0.0, output=0.0)


def world(data: Any, task: Any) -> VectorizedFederation:
    parties = PartitionedDataset(
        dataset=data,
        kind="iid",
        offsets=np.cumsum([0, *task.sizes]),
        order=np.arange(task.records),
    )
    return VectorizedFederation(parties, task=task, sampling=streams(0, "sampling"))


@pytest.mark.parametrize("loss", [Logistic(), Softmax(classes=10)], ids=["logistic", "softmax"])
@pytest.mark.parametrize(("peer", "parties"), [("non-private", 10), ("pooled", 1)])
def test_without_noise_a_model_is_that_of_the_engine(loss: Loss, peer: str, parties: int) -> None:
    pytest.importorskip("sklearn", reason="the table comes with the extra 'data'")
    data = cut(whole("synthetic" if loss.outputs == 1 else "digits")[0], 400, 0)
    task = task_of(data, loss, L2)
    strategy = train(build(peer, task), world(data, task))
    (model,) = found_models(data, loss, [replace(QUIET, parties=parties)], seed=0)
    assert model.ravel().numpy() == pytest.approx(strategy.theta, abs=2e-5)


def test_a_random_term_moves_the_minimiser_as_in_the_strategy() -> None:
    """∇(1/N)Σf + Λθ = -b/N at the model, whatever Λ is made of."""
    data = cut(whole("synthetic")[0], 400, 0)
    noisy = replace(QUIET, parties=1, extra=0.02, linear=3.0)
    model = found_models(data, Logistic(), [noisy], seed=4)[0].numpy().astype(float)
    b = 3.0 * np.random.default_rng(4).standard_normal((2, 1, data.train.X.shape[1]))[0]
    X, y = np.asarray(data.train.X, float), np.asarray(data.train.y, float)
    slopes = -y / (1 + np.exp(y * (X @ model[0])))
    gradient = slopes @ X / len(y) + (L2 + 0.02) * model[0]
    assert gradient == pytest.approx(-b[0] / len(y), abs=1e-6)
    other = found_models(data, Logistic(), [replace(noisy, output=0.5)], seed=4)[0].numpy()
    assert 0.25 < float(np.std(other - model)) < 1.0


@pytest.mark.parametrize("name", [OUTPUT, OBJECTIVE])
def test_noise_is_that_of_the_plan(name: str) -> None:
    data, loss = cut(whole("synthetic")[0], 400, 0), Logistic()
    fixed, ruled, *grid = planned(name, data, loss, 1.0)
    assert [each.l2 for each in grid] == list(GRID)
    assert fixed == grid[4]
    task = task_of(data, loss, 1e-3)
    auto: Any = build(name, task, epsilon=1.0, delta=1e-6, regulariser="auto")
    (mechanism,) = auto.plan.mechanisms
    assert ruled.l2 == auto.task.regulariser != 1e-3
    if name == OUTPUT:
        assert (ruled.parties, ruled.linear, ruled.extra) == (10, 0.0, 0.0)
        assert ruled.output == mechanism.noise_stddev
    else:
        assert (ruled.parties, ruled.extra) == (1, mechanism.extra_regulariser)
        assert ruled.linear == mechanism.linear.noise_stddev
        assert ruled.output == mechanism.output.noise_stddev
