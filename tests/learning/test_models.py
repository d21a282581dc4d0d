from __future__ import annotations

from math import prod

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fedpriv.learning.models import LinearModel, MlpModel, flatten, unflatten


def _rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_the_perceptron_of_the_papers_has_15721_parameters() -> None:
    model = MlpModel(widths=(784, 20, 1))
    assert model.dimension == 784 * 20 + 20 + 20 + 1
    assert (model.features, model.outputs) == (784, 1)


def test_a_linear_model_scores_with_the_inner_product() -> None:
    x = torch.from_numpy(_rng().normal(size=(5, 3)))
    theta = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    torch.testing.assert_close(LinearModel(width=3).scores(theta, x), x @ theta)
    many = LinearModel(width=3, classes=2)
    both = torch.cat([theta, -theta])
    torch.testing.assert_close(many.scores(both, x), torch.stack([x @ theta, -(x @ theta)], 1))


@pytest.mark.parametrize("activation", ["sigmoid", "tanh", "relu", "identity"])
def test_a_perceptron_orders_its_parameters_as_pytorch_does(activation: str) -> None:
    layers = {
        "sigmoid": nn.Sigmoid(),
        "tanh": nn.Tanh(),
        "relu": nn.ReLU(),
        "identity": nn.Identity(),
    }
    module = nn.Sequential(nn.Linear(4, 3), layers[activation], nn.Linear(3, 2)).double()
    model = MlpModel(widths=(4, 3, 2), activation=activation)
    theta = flatten([parameter.detach() for parameter in module.parameters()])
    x = torch.from_numpy(_rng().normal(size=(6, 4)))
    torch.testing.assert_close(model.scores(theta, x), module(x).detach())


@given(shapes=st.lists(st.lists(st.integers(1, 4), max_size=3), min_size=1, max_size=5))
def test_flatten_and_unflatten_are_inverse(shapes: list[list[int]]) -> None:
    vector = torch.arange(float(sum(prod(shape) for shape in shapes)))
    tensors = unflatten(vector, shapes)
    assert [list(tensor.shape) for tensor in tensors] == shapes
    assert torch.equal(flatten(tensors), vector)


def test_unflatten_refuses_a_vector_of_another_length() -> None:
    with pytest.raises(ValueError, match=r"vector must have shape \(6,\), got \(5,\)"):
        unflatten(torch.zeros(5), [(2, 3)])


@pytest.mark.parametrize("model", [LinearModel(width=3), MlpModel(widths=(3, 4, 1))])
def test_initial_weights_depend_on_the_generator_alone(model: LinearModel | MlpModel) -> None:
    state = torch.random.get_rng_state()
    first, again = model.initial(_rng(7)), model.initial(_rng(7))
    assert torch.equal(first, again)
    assert first.dtype == torch.float64
    assert first.shape == (model.dimension,)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_initial_perceptrons_have_the_glorot_spread_and_zero_biases() -> None:
    model = MlpModel(widths=(300, 200, 1))
    weights, bias, *_ = unflatten(model.initial(_rng()), [(200, 300), (200,), (1, 200), (1,)])
    limit = (6 / 500) ** 0.5
    assert limit * 0.999 < float(weights.abs().max()) <= limit
    assert not bias.any()


def test_shapes_that_make_no_model_are_refused() -> None:
    with pytest.raises(ValueError, match="width must be an integer of at least 1"):
        LinearModel(width=0)
    with pytest.raises(ValueError, match="widths must name the features and the outputs"):
        MlpModel(widths=(3,))
    with pytest.raises(ValueError, match=r"widths\[1\] must be an integer of at least 1"):
        MlpModel(widths=(3, 0, 1))
    with pytest.raises(ValueError, match="Did you mean 'sigmoid'"):
        MlpModel(widths=(3, 1), activation="sigmoud")
