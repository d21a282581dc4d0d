"""Every gradient kernel against one slow oracle: a record at a time, autograd, float64."""

from __future__ import annotations

from math import inf, nan

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fedpriv.learning.batch import RecordBatch
from fedpriv.learning.clipping.clipped_sum import (
    CLIP_MARGIN,
    ClippedGradient,
    Clipping,
    clipped_gradient_sums,
)
from fedpriv.learning.losses import HuberHinge, HuberRegression, Logistic, Loss, Softmax, Squared
from fedpriv.learning.models import LinearModel, MlpModel, Model
from fedpriv.learning.network import NetworkModel
from tests.learning.differentiable import differentiable_scores


class Scaled(nn.Module):
    """A module whose parameters are in no layer: only vectorised autograd can treat it."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.inner = nn.Linear(12, outputs)
        self.gain = nn.Parameter(torch.ones(12))

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.inner(torch.tanh(x * self.gain))
        return scores


def _convolutional(outputs: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 2, stride=1, padding=1),
        nn.GroupNorm(2, 4),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16, outputs, bias=False),
    )


def _per_position(outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(3, 2), nn.Sigmoid(), nn.Flatten(), nn.Linear(8, outputs))


MODELS: dict[str, dict[int, Model]] = {
    "linear": {k: LinearModel(width=12, classes=k) for k in (1, 3)},
    "mlp": {k: MlpModel(widths=(12, 5, k)) for k in (1, 3)},
    "deep": {k: MlpModel(widths=(12, 4, 3, k), activation="tanh") for k in (1, 3)},
    "relu": {k: MlpModel(widths=(12, 4, k), activation="relu") for k in (1, 3)},
    "flat": {k: MlpModel(widths=(12, k), activation="identity") for k in (1, 3)},
    "layers": {
        k: NetworkModel(module=_convolutional(k), input_shape=(1, 3, 4), classes=k) for k in (1, 3)
    },
    "positions": {
        k: NetworkModel(module=_per_position(k), input_shape=(4, 3), classes=k) for k in (1, 3)
    },
    "vmap": {k: NetworkModel(module=Scaled(k), input_shape=(12,), classes=k) for k in (1, 3)},
}
LOSSES: dict[str, Loss] = {
    "logistic": Logistic(),
    "hinge": HuberHinge(smoothing=0.3),
    "huber": HuberRegression(threshold=0.7),
    "squared": Squared(radius=10.0, label_bound=1.0),
    "softmax": Softmax(classes=3),
}


def oracle(
    model: Model, loss: Loss, theta: Tensor, x: Tensor, y: Tensor, clipping: Clipping
) -> Tensor:
    """Σ clipped gradients, one record at a time, from the value of the loss alone."""
    total = torch.zeros(model.dimension, dtype=torch.float64)
    threshold = clipping.clip_norm * (1 - CLIP_MARGIN)
    for row, label in zip(x.double(), y, strict=True):
        point = theta.double().clone().requires_grad_()
        value = loss.value(differentiable_scores(model, point, row[None]), label[None]).sum()
        (gradient,) = torch.autograd.grad(value, point)
        if clipping.centre is not None:
            gradient = gradient - clipping.centre
        if clipping.scale is not None:
            gradient = gradient / clipping.scale
        norm = float(gradient.norm())
        total += gradient * min(1.0, threshold / norm) if norm > 0 else gradient
    return total


def problem(
    model: Model, loss: Loss, *, seed: int, records: int, spread: float
) -> tuple[Tensor, Tensor, Tensor]:
    rng = np.random.default_rng(seed)
    theta = torch.from_numpy(rng.normal(0, 0.7, model.dimension))
    x = torch.from_numpy(rng.normal(0, spread, (records, model.features)))
    if loss.outputs > 1:
        return theta, x, torch.from_numpy(rng.integers(0, loss.outputs, records))
    return theta, x, torch.from_numpy(rng.choice([-1.0, 1.0], records))


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", MODELS)
@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    records=st.integers(0, 7),
    spread=st.sampled_from([0.0, 1e-6, 0.3, 4.0, 1e4]),
    clip_norm=st.sampled_from([2.0**-20, 1e-3, 0.4, 2.0, 1e6]),
    adaptive=st.booleans(),
)
def test_every_kernel_agrees_with_the_oracle(
    kind: str,
    loss: str,
    *,
    seed: int,
    records: int,
    spread: float,
    clip_norm: float,
    adaptive: bool,
) -> None:
    ell = LOSSES[loss]
    model = MODELS[kind][ell.outputs]
    theta, x, y = problem(model, ell, seed=seed, records=records, spread=spread)
    clipping = Clipping(clip_norm=clip_norm)
    if adaptive:
        rng = np.random.default_rng(seed + 1)
        clipping = Clipping(
            clip_norm=clip_norm,
            centre=torch.from_numpy(rng.normal(size=model.dimension)),
            scale=torch.from_numpy(rng.uniform(0.1, 10.0, model.dimension)),
        )
    sums = clipped_gradient_sums(model, ell, theta, RecordBatch(features=x, labels=y), clipping)
    expected = oracle(model, ell, theta, x, y, clipping)
    assert sums.value.dtype == torch.float64
    assert sums.value.shape == (1, model.dimension)
    torch.testing.assert_close(
        sums.value[0], expected, rtol=1e-9, atol=1e-9 * max(1, records) * min(clip_norm, 1e4)
    )
    assert sums.norms.shape == (records,)
    assert sums.rejected == 0


@pytest.mark.parametrize("kind", MODELS)
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), records=st.integers(1, 300))
def test_float32_kernels_agree_to_single_precision(kind: str, seed: int, records: int) -> None:
    model = MODELS[kind][1]
    theta, x, y = problem(model, Logistic(), seed=seed, records=records, spread=0.5)
    theta, x = theta.float(), x.float()
    clipping = Clipping(clip_norm=0.2)
    single = clipped_gradient_sums(
        model, Logistic(), theta, RecordBatch(features=x, labels=y), clipping
    )
    precise = clipped_gradient_sums(
        model, Logistic(), theta, RecordBatch(features=x.double(), labels=y), clipping
    )
    assert float((single.value - precise.value).norm()) < 3e-5 * 0.2 * records


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("poison", [nan, inf, -inf, 3e38])
def test_a_record_that_is_not_finite_contributes_zero_and_touches_nothing_else(
    kind: str, poison: float
) -> None:
    model = MODELS[kind][1]
    theta, x, y = problem(model, Logistic(), seed=3, records=5, spread=0.5)
    x, theta = x.float(), theta.float()
    keep = torch.tensor([0, 1, 3, 4])
    clipping = Clipping(clip_norm=0.3)
    clean = clipped_gradient_sums(
        model, Logistic(), theta, RecordBatch(features=x[keep], labels=y[keep]), clipping
    )
    x[2, 4] = poison
    spoiled = clipped_gradient_sums(
        model, Logistic(), theta, RecordBatch(features=x, labels=y), clipping
    )
    torch.testing.assert_close(spoiled.value, clean.value, rtol=1e-5, atol=1e-7)
    assert (clean.rejected, spoiled.rejected) == (0, 1)


@pytest.mark.parametrize("kind", MODELS)
def test_a_label_that_is_not_finite_or_no_class_is_rejected_alone(kind: str) -> None:
    for loss, bad in ((HuberRegression(threshold=1.0), nan), (Softmax(classes=3), 3)):
        model = MODELS[kind][loss.outputs]
        theta, x, y = problem(model, loss, seed=4, records=4, spread=0.5)
        clean = clipped_gradient_sums(
            model,
            loss,
            theta,
            RecordBatch(features=x[1:], labels=y[1:]),
            Clipping(clip_norm=0.3),
        )
        y[0] = bad
        batch = RecordBatch(features=x, labels=y)
        spoiled = clipped_gradient_sums(model, loss, theta, batch, Clipping(clip_norm=0.3))
        torch.testing.assert_close(spoiled.value, clean.value, rtol=1e-9, atol=1e-12)
        assert spoiled.rejected == 1


def test_overflow_inside_a_model_is_rejected_not_propagated() -> None:
    model = MlpModel(widths=(2, 3, 1), activation="relu")
    theta = torch.full((model.dimension,), 1e30)
    x = torch.tensor([[1e20, 1.0], [0.0, 0.0]])
    batch = RecordBatch(features=x, labels=torch.tensor([1.0, 1.0]))
    sums = clipped_gradient_sums(model, Logistic(), theta, batch, Clipping(clip_norm=1.0))
    assert bool(sums.value.isfinite().all())
    assert float(sums.value.norm()) <= 2.0


@pytest.mark.parametrize("kind", MODELS)
def test_a_prepared_gradient_serves_many_rounds_and_keeps_no_graph(kind: str) -> None:
    model = MODELS[kind][1]
    theta, x, y = problem(model, Logistic(), seed=9, records=6, spread=0.5)
    batch, clipping = RecordBatch(features=x, labels=y), Clipping(clip_norm=0.3)
    gradient = ClippedGradient(model=model, loss=Logistic(), batch=batch, clipping=clipping)
    for point in (theta, 2 * theta, theta.clone().requires_grad_()):
        value = gradient(point).value
        assert torch.equal(
            value, clipped_gradient_sums(model, Logistic(), point, batch, clipping).value
        )
        assert not value.requires_grad


def test_adaptive_clipping_maps_back_what_it_scaled() -> None:
    centre, scale = torch.tensor([1.0, -2.0]), torch.tensor([0.5, 4.0])
    clipping = Clipping(clip_norm=1e3, centre=centre, scale=scale)
    x, y = torch.tensor([[1.0, 2.0], [3.0, -1.0]]), torch.tensor([1.0, -1.0])
    args = (LinearModel(width=2), Logistic(), torch.zeros(2), RecordBatch(features=x, labels=y))
    scaled = clipped_gradient_sums(*args, clipping).value[0]
    plain = clipped_gradient_sums(*args, Clipping(clip_norm=1e3)).value[0]
    torch.testing.assert_close(clipping.restore(scaled / 2), plain / 2)
    torch.testing.assert_close(Clipping(clip_norm=1.0).restore(plain), plain)


def test_diagnostics_count_what_was_clipped() -> None:
    x = torch.tensor([[0.1], [1.0], [nan], [2.0]])
    batch = RecordBatch(features=x, labels=torch.ones(4))
    sums = clipped_gradient_sums(
        LinearModel(width=1), Logistic(), torch.zeros(1), batch, Clipping(clip_norm=0.4)
    )
    torch.testing.assert_close(sums.norms, torch.tensor([0.05, 0.5, inf, 1.0]).double())
    assert sums.clipped_fraction == 0.75
    assert sums.rejected == 1


def test_arguments_that_do_not_fit_together_are_refused() -> None:
    batch = RecordBatch(features=torch.zeros(2, 3), labels=torch.ones(2))
    clipping = Clipping(clip_norm=1.0)
    with pytest.raises(ValueError, match=r"theta must have shape \(3,\)"):
        clipped_gradient_sums(LinearModel(width=3), Logistic(), torch.zeros(4), batch, clipping)
    with pytest.raises(ValueError, match="features must have 4 columns"):
        clipped_gradient_sums(LinearModel(width=4), Logistic(), torch.zeros(4), batch, clipping)
    with pytest.raises(ValueError, match="model must have one output per score of the loss, 2"):
        clipped_gradient_sums(
            LinearModel(width=3), Softmax(classes=2), torch.zeros(3), batch, clipping
        )
    with pytest.raises(ValueError, match="labels must be integers for 2 classes"):
        clipped_gradient_sums(
            LinearModel(width=3, classes=2), Softmax(classes=2), torch.zeros(6), batch, clipping
        )
    with pytest.raises(ValueError, match="scale must have shape"):
        clipped_gradient_sums(
            LinearModel(width=3),
            Logistic(),
            torch.zeros(3),
            batch,
            Clipping(clip_norm=1.0, scale=torch.ones(2)),
        )
    with pytest.raises(ValueError, match="memory_limit must be an integer of at least 1"):
        clipped_gradient_sums(
            LinearModel(width=3), Logistic(), torch.zeros(3), batch, clipping, memory_limit=0
        )
