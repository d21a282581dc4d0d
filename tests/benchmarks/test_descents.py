"""Descents in one product, against the engine that runs them one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from benchmarks.descents import Descent, descend, judged
from benchmarks.settings import cut, means, misses, settings, summary, task_of, whole
from fedpriv.data import PartitionedDataset
from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.learning.losses import HuberHinge, Logistic, Loss, Softmax
from fedpriv.learning.optimisers import Averaged
from fedpriv.simulations.run.metrics.evaluation import Evaluator
from tests.federation.worlds import build, streams, train

if TYPE_CHECKING:
    from fedpriv.data import Dataset

ROUNDS = 12
CASES: list[tuple[Loss, float, float, bool]] = [
    (Logistic(), 0.2, 0.0, False),
    (Logistic(), 0.6, 0.9, True),
    (HuberHinge(smoothing=0.5), 0.3, 0.5, True),
    (Softmax(classes=10), 0.4, 0.9, True),
]


def table(loss: Loss) -> Dataset:
    """A few hundred records, whose labels are classes of the loss."""
    if loss.outputs > 1:
        pytest.importorskip("sklearn", reason="the table comes with the extra 'data'")
    return cut(whole("synthetic" if loss.outputs == 1 else "digits")[0], 400, 0)


@pytest.mark.parametrize(("loss", "clip", "momentum", "tail"), CASES)
def test_a_descent_is_that_of_the_engine(
    loss: Loss, clip: float, momentum: float, tail: bool
) -> None:
    data, l2, rate = table(loss), 1e-3, 1.5
    one = Descent(clip=clip, noise=0.0, rate=rate, momentum=momentum, l2=l2, tail=tail)
    others = replace(one, rate=0.1), replace(one, clip=1e-3)
    halved = replace(one, shrink=0.5)
    *models, half = descend(data, loss, [one, *others, halved], rounds=ROUNDS, seed=0)
    assert torch.equal(half, 0.5 * models[0])
    task = task_of(data, loss, l2)
    heavy: dict[str, Any] = {"momentum": momentum} if momentum else {}
    strategy = build(
        "gradient-perturbation",
        task,
        noise_free=True,
        rounds=ROUNDS,
        clip=clip,
        learning_rate=rate,
        optimiser="momentum" if momentum else "sgd",
        **heavy,
        averaging="tail" if tail else "last",
    )
    parties = PartitionedDataset(
        dataset=data,
        kind="iid",
        offsets=np.cumsum([0, *task.sizes]),
        order=np.arange(task.records),
    )
    train(strategy, VectorizedFederation(parties, task=task, sampling=streams(0, "sampling")))
    assert models[0].ravel().numpy() == pytest.approx(strategy.theta, abs=2e-4)
    for other in models[1:]:
        assert float((models[0] - other).abs().max()) > 0.01
    accuracy, losses = judged(data, loss, torch.stack(models))
    score = Evaluator.of(task.model, loss, data.test).score(strategy.theta)
    assert score is not None
    assert score.accuracy is not None
    assert accuracy[0] == pytest.approx(100 * score.accuracy, abs=0.2)
    assert losses[0] == pytest.approx(score.loss, abs=1e-3)


def test_noise_is_as_large_as_it_is_said_to_be() -> None:
    """One plain step of length 1: σ/N on a coordinate. Off by a half with a chance below 1e-4."""
    data = table(Logistic())
    quiet = Descent(clip=0.5, noise=0.0, rate=1.0, momentum=0.0, l2=0.0, tail=False)
    loud = replace(quiet, noise=40.0)
    moved = []
    for seed in range(6):
        models = descend(data, Logistic(), [quiet, loud], rounds=1, seed=seed)
        moved += (models[1] - models[0]).ravel().tolist()
    expected = 40.0 / len(data.train.y)
    assert 0.5 * expected < float(np.std(moved)) < 1.5 * expected


def test_settings_are_those_that_the_strategy_would_plan() -> None:
    data, loss = table(Logistic()), Logistic()
    fixed, ruled, *grid = settings(data, loss, 1.0)
    task = task_of(data, loss, 1e-5)
    strategy: Any = build("gradient-perturbation", task, epsilon=1.0, delta=1e-6)
    steps = getattr(strategy._optimiser, "optimiser", strategy._optimiser)
    assert (ruled.rate, ruled.momentum) == (steps.learning_rate, steps.decay)
    assert ruled.clip == strategy.fixed_clip
    noise = strategy.plan.mechanisms[0].noise_stddev
    assert ruled.noise == pytest.approx(noise, rel=1e-3)
    assert fixed.noise == pytest.approx(noise / ruled.clip, rel=1e-3)
    assert ruled.tail == isinstance(strategy._optimiser, Averaged)
    assert ruled.shrink == pytest.approx(strategy._shrink.factors[-1], rel=1e-3)
    assert len(set(grid)) == len(grid) == 36


def test_a_choice_by_the_seeds_that_measure_it_is_flattered_and_a_crossed_one_is_not() -> None:
    """18 settings that are all alike: the best of them is luck."""
    random = np.random.default_rng(0)
    accuracy, losses = random.normal(80, 5, (40, 20)), np.full((40, 20), 0.4)
    found = summary(accuracy, losses)
    assert found["grid"][0] > 80.5
    assert abs(found["cross"] - 80) < 2.5  # three standard deviations
    row = {"table": "t", "records": 1, **found}
    rows = [{**row, "epsilon": epsilon} for epsilon in (0.1, 0.3, 1.0, 3.0)]
    behind = -means(rows)[1.0]["to_grid"][0]
    assert any(text.startswith("epsilon 1:") for text in misses(rows)) == (behind > 0.5)
