"""Auxiliary tasks of meta-training: support vectors, squares, perceptrons, minibatches, a gate."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fedpriv.learning.losses import HuberHinge, Logistic, Loss, Squared
from fedpriv.learning.models import MlpModel
from fedpriv.learning.protector import (
    Allowance,
    AuxiliaryTask,
    MetaTraining,
    NetworkTask,
    Protector,
    Recipe,
    Surroundings,
    final_models,
)
from fedpriv.learning.protector.protector import FIRST_GATE, OUTPUT_SCALE
from fedpriv.learning.threads import one_thread

RECIPE = Recipe(
    noises=(0.002,), horizons=(6,), epochs=15, batches=6, steps=3, records=40, projector_rate=0.03
)
WIDTH, HIDDEN = 5, 3


def records() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, WIDTH))
    X /= np.linalg.norm(X, axis=1, keepdims=True) * 1.001
    y = np.sign(X @ np.linspace(-1, 1, WIDTH) + 0.01)
    return {
        "features": torch.tensor(X, dtype=torch.float32),
        "labels": torch.tensor(y, dtype=torch.float32),
    }


def linear(loss: Loss) -> AuxiliaryTask:
    return AuxiliaryTask(**records(), loss=loss, clip_norm=0.3)


def network(*, clip: float = 0.3) -> NetworkTask:
    model = MlpModel(widths=(WIDTH, HIDDEN, 1))
    return NetworkTask(**records(), loss=Logistic(), clip_norm=clip, model=model)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def score(theta: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The perceptron written out: the oracle."""
    W, b, v, c = torch.split(theta, [HIDDEN * WIDTH, HIDDEN, HIDDEN, 1])
    return torch.sigmoid(W.view(HIDDEN, WIDTH) @ x + b) @ v + c[0]


def test_a_look_at_perceptrons_is_that_of_autograd_record_by_record() -> None:
    task = replace(network(clip=0.2), regulariser=0.1)
    thetas = task.start(2, generator())
    look = task.look(thetas)
    for run, theta in enumerate(thetas):
        variable = theta.clone().requires_grad_()
        clipped, exact, loss = torch.zeros_like(theta), torch.zeros_like(theta), 0.0
        for x, y in zip(task.features, task.labels, strict=True):
            value = task.loss.value(score(variable, x), y)
            (gradient,) = torch.autograd.grad(value, variable)
            loss += float(value.detach())
            exact += gradient
            clipped += gradient / max(0.2, float(gradient.norm()))
        n = len(task.labels)
        torch.testing.assert_close(look.clipped[run], clipped / n)
        torch.testing.assert_close(look.slope[run], exact / n + 0.1 * theta)
        expected = loss / n + 0.05 * float(theta.square().sum())
        assert float(look.loss[run]) == pytest.approx(expected, rel=1e-5)
    assert float(look.clipped.norm(dim=1).max()) <= 1


def test_runs_of_a_perceptron_start_from_weights_of_their_own() -> None:
    one, other = network().start(2, generator())
    assert not torch.equal(one, other)
    assert torch.equal(network().start(2, generator())[0], one)
    assert float(linear(Logistic()).start(2, generator()).abs().max()) == 0


def test_a_perceptron_that_does_not_fit_the_records_is_refused() -> None:
    with pytest.raises(ValueError, match="5 features"):
        replace(network(), model=MlpModel(widths=(4, 2, 1)))
    with pytest.raises(ValueError, match="one score"):
        replace(network(), model=MlpModel(widths=(5, 2, 2)))
    with pytest.raises(ValueError, match="at most one long"):
        replace(network(), features=2 * network().features)


@pytest.mark.parametrize(
    "task",
    [linear(HuberHinge(smoothing=0.5)), linear(Squared(radius=10, label_bound=1)), network()],
    ids=["svm", "squared", "mlp"],
)
def test_training_lowers_the_loss_on_every_kind_of_task(task: AuxiliaryTask) -> None:
    """Below that of models that stay where they started, by noise that it was trained for."""
    training = MetaTraining(RECIPE, task)
    with one_thread():
        while training.epoch < RECIPE.epochs:
            training.run_epoch()
    allowance = Allowance(noise=0.002, horizon=6, norm_share=RECIPE.norm_share)
    models = final_models(training.protector, task, allowance, runs=4, generator=generator())
    start = task.look(task.start(4, generator())).loss.mean()
    assert float(task.look(models).loss.mean()) < 0.95 * float(start)


def test_every_task_is_drawn_and_one_alone_is_trained_on_as_if_there_were_no_choice() -> None:
    recipe = replace(RECIPE, batches=40)
    tasks = linear(Logistic()), linear(HuberHinge(smoothing=0.5))
    drawn = [type(task.loss) for _, task in MetaTraining(recipe, *tasks)._unrolls()]
    assert set(drawn) == {Logistic, HuberHinge}
    with pytest.raises(ValueError, match="at least one public problem"):
        MetaTraining(recipe)


def test_a_minibatch_is_drawn_anew_for_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, float]] = []
    whole = AuxiliaryTask.look

    def look(task: AuxiliaryTask, theta: torch.Tensor) -> object:
        seen.append((len(task.labels), float(task.features.sum())))
        return whole(task, theta)

    monkeypatch.setattr(AuxiliaryTask, "look", look)
    MetaTraining(replace(RECIPE, minibatch=10, batches=2), linear(Logistic())).run_epoch()
    assert {size for size, _ in seen} == {10}
    assert len({total for _, total in seen}) == len(seen) == 8  # 2 batches of 3 steps, and a start
    with pytest.raises(ValueError, match="minibatch"):
        replace(RECIPE, minibatch=0)


def test_a_gated_projector_starts_as_plain_gradient_descent() -> None:
    protector = Protector(gated=True).seeded(generator())
    gradient = torch.tensor([[0.3, -0.2, 0.1, 0.0]])
    around = Surroundings(dimension=4, horizon=10, gradient_noise=0.1, norm_noise=0.1)
    step, _ = protector.project(
        gradient, noise=torch.ones(1), elapsed=0.0, around=around, state=protector.start(4)
    )
    size = gradient.square().mean().sqrt()
    torch.testing.assert_close(step, -OUTPUT_SCALE * FIRST_GATE * gradient / size)
