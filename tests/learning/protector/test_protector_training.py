"""Meta-training: deterministic, resumable, and it learns."""

from __future__ import annotations

import json
from dataclasses import replace
from math import sqrt
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.learning.losses import Logistic, Softmax
from fedpriv.learning.protector import (
    Allowance,
    AuxiliaryTask,
    Card,
    Horizon,
    MetaTraining,
    Recipe,
    final_models,
    to_bytes,
)
from fedpriv.learning.protector.lagrangian import AugmentedLagrangian, expected_loss, tent
from fedpriv.learning.protector.unroll import beginning, unroll

RECIPE = Recipe(
    noises=(0.02, 0.002),
    horizons=(4, 6),
    epochs=4,
    batches=6,
    steps=3,
    runs=2,
    records=40,
    norm_share=0.1,
)
CARD = Card(
    trained_on="made",
    version="1",
    clip_norm=0.3,
    norm_share=0.1,
    horizons=(Horizon(noise=0.01, rounds=30),),
)


def made_task(records: int = 60, width: int = 5, *, clip: float = 0.3) -> AuxiliaryTask:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(records, width))
    X /= np.linalg.norm(X, axis=1, keepdims=True) * 1.001
    y = np.sign(X @ np.linspace(-1, 1, width) + 0.01)
    return AuxiliaryTask(
        features=torch.tensor(X, dtype=torch.float32),
        labels=torch.tensor(y, dtype=torch.float32),
        loss=Logistic(),
        clip_norm=clip,
    )


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def trained(recipe: Recipe = RECIPE, epochs: int | None = None) -> MetaTraining:
    training = MetaTraining(recipe, made_task())
    for _ in range(recipe.epochs if epochs is None else epochs):
        training.run_epoch()
    return training


def file_of(training: MetaTraining) -> bytes:
    return to_bytes(training.protector, CARD)


def test_two_trainings_give_the_same_bytes_and_another_seed_others() -> None:
    assert file_of(trained()) == file_of(trained())
    assert file_of(trained()) != file_of(trained(replace(RECIPE, seed=1)))


@pytest.mark.parametrize("stopped", [0, 1, 3])
def test_a_training_that_was_interrupted_ends_with_the_same_bytes(stopped: int) -> None:
    state = json.loads(json.dumps(trained(epochs=stopped).state(), allow_nan=False))
    again = MetaTraining(RECIPE, made_task())
    again.restore(state)
    assert again.epoch == stopped
    while again.epoch < RECIPE.epochs:
        again.run_epoch()
    assert file_of(again) == file_of(trained())
    assert again.state() == trained().state()


def test_a_damaged_state_is_refused() -> None:
    state = trained(epochs=1).state()
    del state["tensors"]["projector.readout.bias"]
    with pytest.raises(ValueError, match="must be exactly"):
        MetaTraining(RECIPE, made_task()).restore(state)


def test_training_lowers_the_loss_that_a_budget_buys() -> None:
    """From models that do not move, ln 2, to well below it, with noise that it was trained for."""
    recipe = replace(RECIPE, noises=(0.002,), horizons=(6,), epochs=30, projector_rate=0.03)
    training, task = trained(recipe), made_task()
    allowance = Allowance(noise=0.002, horizon=6, norm_share=recipe.norm_share)
    models = final_models(training.protector, task, allowance, runs=4, generator=generator())
    assert float(task.look(models).loss.max()) < 0.9 * np.log(2)
    assert float(task.accuracy(models).min()) > 0.8


def test_the_scheduler_learns_to_keep_within_its_budget() -> None:
    """Started at the least noise, where a round costs fifteen, it comes back to about one."""
    recipe = replace(RECIPE, noises=(0.002,), horizons=(6,), epochs=40, scheduler_rate=0.1)
    training = MetaTraining(recipe, made_task())
    with torch.no_grad():
        training.protector.scheduler.readout.bias.fill_(-6.0)
    first = training.run_epoch()
    assert first.cost > 10
    reports = [training.run_epoch() for _ in range(recipe.epochs - 1)]
    assert reports[-1].cost < 1.5


@pytest.mark.parametrize(
    ("epoch", "known"), [(0, 1), (1, 1), (2, 2), (4, 3), (6, 4), (9, 5), (10, 5), (19, 5)]
)
def test_budgets_join_from_the_hardest_on_and_then_all_count_alike(epoch: int, known: int) -> None:
    recipe = replace(RECIPE, noises=(5.0, 4.0, 3.0, 2.0, 1.0), epochs=20)
    noises, newest = recipe.budgets(epoch)
    assert noises == recipe.noises[:known]
    assert newest == (0.5 if epoch < 10 else 0.0)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"noises": ()}, "noises, horizons and"),
        ({"noises": (0.0,)}, "noises"),
        ({"horizons": (0,)}, "horizons"),
        ({"norm_share": 1.0}, "norm_share"),
        ({"epochs": 0}, "epochs"),
        ({"batches": 1}, "batches must be enough"),
        ({"projector_rate": float("nan")}, "projector_rate"),
    ],
)
def test_a_recipe_that_cannot_be_followed_is_refused(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        replace(RECIPE, **change)


# Public problems


def test_a_look_agrees_with_automatic_differentiation() -> None:
    task = made_task()
    theta = torch.randn(3, 5, generator=generator())
    look = task.look(theta)
    variable = theta.clone().requires_grad_()
    loss = task.loss.value(task.features @ variable.T, task.labels[:, None]).mean(0)
    (slope,) = torch.autograd.grad(loss.sum(), variable)
    torch.testing.assert_close(look.loss, loss)
    torch.testing.assert_close(look.slope, slope)


def test_gradients_are_clipped_record_by_record() -> None:
    task = made_task(clip=0.2)
    theta = torch.randn(1, 5, generator=generator())
    expected = torch.zeros(5)
    for x, y in zip(task.features, task.labels, strict=True):
        gradient = task.loss.slope(theta[0] @ x, y) * x
        expected += gradient * min(1.0, 0.2 / float(gradient.norm())) / 0.2
    torch.testing.assert_close(task.look(theta).clipped[0], expected / len(task.labels))
    assert float(task.look(theta).clipped.norm()) <= 1


def test_a_problem_that_does_not_fit_is_refused() -> None:
    task = made_task()
    with pytest.raises(ValueError, match="at most one long"):
        replace(task, features=2 * task.features)
    with pytest.raises(ValueError, match="one score per record"):
        replace(task, loss=Softmax(classes=3))


def test_a_sample_has_records_of_the_problem_each_once() -> None:
    task = made_task()
    part = task.sample(10, generator())
    rows = {tuple(row) for row in task.features.tolist()}
    drawn = [tuple(row) for row in part.features.tolist()]
    assert len(set(drawn)) == 10
    assert set(drawn) <= rows
    assert task.sample(1000, generator()) is task


# Budgets


@given(
    noise=st.floats(1e-4, 1),
    horizon=st.integers(1, 500),
    share=st.floats(0.01, 0.9),
)
def test_a_horizon_of_reference_rounds_costs_the_whole_budget(
    noise: float, horizon: int, share: float
) -> None:
    """In squared noise: Σ (noise/σ)² = 1 over T norms and T gradients."""
    around = Allowance(noise=noise, horizon=horizon, norm_share=share).around(7)
    spent = horizon * ((noise / around.norm_noise) ** 2 + (noise / around.gradient_noise) ** 2)
    assert spent == pytest.approx(1)


def test_a_round_costs_what_its_noise_costs() -> None:
    allowance = Allowance(noise=0.1, horizon=10, norm_share=0.2)
    chosen = torch.tensor([0.5, 1.0, 2.0])
    around = allowance.around(3)
    expected = [
        10 * ((0.1 / around.norm_noise) ** 2 + (0.1 / (around.gradient_noise * float(m))) ** 2)
        for m in chosen
    ]
    assert allowance.cost(chosen).tolist() == pytest.approx(expected)


def test_an_unroll_in_pieces_is_the_unroll() -> None:
    training, task = trained(epochs=1), made_task()
    allowance = Allowance(noise=0.01, horizon=6, norm_share=0.1)
    start = beginning(training.protector, task, runs=2, generator=generator())
    source = generator()
    whole, trace = unroll(training.protector, task, allowance, start, steps=6, generator=source)
    source, position, costs = generator(), start, []
    for _ in range(3):
        position, part = unroll(
            training.protector, task, allowance, position, steps=2, generator=source
        )
        costs.append(part.cost)
    torch.testing.assert_close(position.theta, whole.theta)
    torch.testing.assert_close(torch.cat(costs), trace.cost)
    torch.testing.assert_close(whole.spent, trace.cost.sum(0))


def test_a_run_that_is_judged_never_counts_a_step_that_it_cannot_pay_for() -> None:
    """At the least noise a round costs 0.1 + 0.9·16 = 14.5 of a budget of 6: no step at all."""
    training, task = trained(epochs=1), made_task()
    with torch.no_grad():
        training.protector.scheduler.readout.bias.fill_(-50.0)
    allowance = Allowance(noise=0.01, horizon=6, norm_share=0.1)
    models = final_models(training.protector, task, allowance, runs=3, generator=generator())
    assert float(models.abs().max()) == 0


def test_the_gradient_of_an_unroll_is_that_of_finite_differences_where_nothing_is_dropped() -> None:
    """One step from a fixed point has no second derivatives: the surrogate must be exact."""
    training, task = trained(epochs=2), made_task()
    protector = training.protector.double()
    task = replace(task, features=task.features.double(), labels=task.labels.double())
    allowance = Allowance(noise=0.01, horizon=6, norm_share=0.1)
    bias = protector.projector.readout.bias

    def objective() -> torch.Tensor:
        start = beginning(protector, task, runs=1, generator=generator())
        start = start._replace(
            theta=start.theta.double(),
            spent=start.spent.double(),
            state=type(start.state)(*(type(m)(m.values.double()) for m in start.state)),
        )
        _, trace = unroll(protector, task, allowance, start, steps=1, generator=generator())
        return trace.loss.sum()

    (derivative,) = torch.autograd.grad(objective(), bias)
    with torch.no_grad():
        bias.add_(1e-5)
        high = float(objective())
        bias.sub_(2e-5)
        low = float(objective())
    assert float(derivative) == pytest.approx((high - low) / 2e-5, rel=1e-5)


# The Lagrangian


def test_the_tent_stands_on_the_step_that_spends_the_budget() -> None:
    spent = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0])[:, None] * 4
    assert tent(spent, torch.tensor([4.0]))[:, 0].tolist() == [0, 0.5, 1, 0.5, 0, 0]


def test_the_expected_loss_is_the_loss_where_the_budget_ends() -> None:
    losses = torch.tensor([[3.0], [2.0], [1.0]])
    spent = torch.tensor([[0.0], [5.0], [10.0]])
    assert float(expected_loss(losses, spent, torch.tensor([5.0]))) == 2.0


def test_the_lagrangian_finds_the_constrained_minimum() -> None:
    """min (x - 2)² subject to x ≤ 1: x = 1, λ = 2."""
    lagrangian, x = AugmentedLagrangian(penalty=1.0), torch.tensor(0.0, requires_grad=True)
    for _ in range(200):
        (slope,) = torch.autograd.grad((x - 2) ** 2 + lagrangian.term(x - 1), x)
        with torch.no_grad():
            x.sub_(0.2 * slope)
        lagrangian = lagrangian.after(x.item() - 1)
    assert x.item() == pytest.approx(1, abs=1e-3)
    assert lagrangian.multiplier == pytest.approx(2, abs=1e-2)


def test_a_constraint_that_does_not_bind_costs_nothing() -> None:
    assert float(AugmentedLagrangian().term(torch.tensor(-0.5))) == 0
    assert AugmentedLagrangian(multiplier=0.2).after(-0.5).multiplier == 0


def test_the_reference_is_uniform_noise_but_for_the_share_of_the_norm() -> None:
    around = Allowance(noise=0.01, horizon=25, norm_share=0.36).around(3)
    assert around.gradient_noise == pytest.approx(0.01 * 5 / sqrt(0.64))
    assert around.norm_noise == pytest.approx(0.01 * 5 / 0.6)
