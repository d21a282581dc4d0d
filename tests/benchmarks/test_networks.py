"""Perceptrons of the benchmark, against the engine's clipped sums."""

from __future__ import annotations

import numpy as np
import torch

from benchmarks.networks import HIDDEN, clipped_sums
from fedpriv.learning.losses import Logistic
from fedpriv.learning.models import MlpModel
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
