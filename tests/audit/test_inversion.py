"""Gradient inversion: records off gradients of torch's own."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedpriv.audit.inversion import likeness, read_record


@pytest.mark.parametrize("outputs", [1, 3])
def test_a_gradient_is_the_record(outputs: int) -> None:
    """By automatic differentiation of a loss that is written out here."""
    generator = torch.Generator().manual_seed(0)
    x = torch.cat([torch.rand(5, generator=generator, dtype=torch.float64), torch.ones(1)])
    theta = torch.randn(outputs, 6, generator=generator, dtype=torch.float64, requires_grad=True)
    scores = theta @ x.double()
    if outputs == 1:
        loss = torch.nn.functional.softplus(scores[0])
    else:
        loss = torch.nn.functional.cross_entropy(scores[None], torch.tensor([1]))
    (slopes,) = torch.autograd.grad(loss, theta)
    gradient = slopes.numpy().ravel()
    for factor in (1.0, 0.01, -3.0):  # a clip is a factor
        found = read_record(factor * gradient, outputs=outputs)
        assert likeness(found, x.numpy()) == pytest.approx(1)
        assert found[-1] > 0
        assert found / found[-1] == pytest.approx(x.numpy())  # the intercept tells the length


def test_noise_hides_it_and_nothing_is_nothing() -> None:
    rng = np.random.default_rng(0)
    record = rng.normal(size=400)
    noisy = record + 100 * np.linalg.norm(record) * rng.normal(size=400)
    assert likeness(read_record(noisy), record) < 0.3
    assert not read_record(np.zeros(4)).any()
    assert likeness(np.zeros(4), np.ones(4)) == 0
