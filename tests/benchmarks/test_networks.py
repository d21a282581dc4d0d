"""Perceptrons of the benchmark, against the engine's clipped sums."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.networks import HIDDEN, clipped_sums, settings
from benchmarks.settings import cut, task_of, whole
from fedpriv.learning.losses import Logistic
from fedpriv.learning.models import MlpModel
from fedpriv.learning.optimisers import Averaged
from tests.federation.worlds import build
from tests.learning.differentiable import differentiable_scores


def test_clipped_sums_are_those_of_autograd_record_by_record() -> None:
    torch.manual_seed(0)
    X, y = torch.randn(30, 4), torch.sign(torch.randn(30))
    model = MlpModel(widths=(4, HIDDEN, 1))
    theta = model.initial(np.random.default_rng(0)).float()
    clip, total = 0.4, torch.zeros_like(theta)
    for row, label in zip(X, y, strict=True):
        leaf = theta.clone().requires_grad_()
        scores = differentiable_scores(model, leaf, row[None])
        loss = Logistic().value(scores, label[None]).sum()
        (gradient,) = torch.autograd.grad(loss, leaf)
        total += gradient * min(1.0, clip / float(gradient.norm()))
    both = clipped_sums(
        torch.stack([theta, theta]), X, y, Logistic(), torch.tensor([[clip], [9.0]])
    )
    assert torch.allclose(both[0], total, atol=1e-5)
    assert not torch.allclose(both[1], total, atol=1e-2)


def test_a_perceptron_of_the_benchmark_takes_the_steps_of_the_strategy() -> None:
    data = cut(whole("synthetic")[0], 400, 0)
    task = replace(
        task_of(data, Logistic(), 1e-5), model=MlpModel(widths=(data.train.X.shape[1], HIDDEN, 1))
    )
    for epsilon in (1.0, 30.0):
        chosen, last, shrink = settings(data, Logistic(), epsilon)
        strategy: Any = build("gradient-perturbation", task, epsilon=epsilon, delta=1e-6)
        optimiser = strategy._optimiser
        assert last != isinstance(optimiser, Averaged)
        clip, rate, noise = chosen[0]
        steps = optimiser if last else optimiser.optimiser
        assert rate == pytest.approx(steps.learning_rate, rel=1e-3)
        assert clip == strategy.fixed_clip
        assert shrink == pytest.approx(strategy._shrink.factors[-1], rel=1e-3)
        assert noise == pytest.approx(strategy.plan.mechanisms[0].noise_stddev, rel=1e-3)
