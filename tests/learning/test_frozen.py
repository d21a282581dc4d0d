"""Frozen layers: constants of a network, outside gradients, clipping and parameters."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.functional import softplus

from fedpriv.learning import LinearModel, Logistic, MlpModel
from fedpriv.learning.batch import RecordBatch
from fedpriv.learning.clipping.clipped_sum import CLIP_MARGIN, Clipping, clipped_gradient_sums
from fedpriv.learning.frozen import freeze
from fedpriv.learning.network import small_cnn
from tests.learning.differentiable import differentiable_scores

MLP = MlpModel(widths=(5, 4, 3, 1), activation="tanh")
CLIP = 0.3


def _records(count: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(1)
    features = torch.from_numpy(rng.normal(size=(count, width)))
    return features, torch.from_numpy(rng.choice([-1.0, 1.0], count))


def _batch(features: torch.Tensor, labels: torch.Tensor) -> RecordBatch:
    return RecordBatch(features=features, labels=labels)


def test_nothing_but_the_layers_that_train_has_a_gradient() -> None:
    """Against autograd, record by record, over the whole network, clipped by the trained part."""
    parameters = MLP.initial(np.random.default_rng(0)).numpy() + 0.1
    frozen = freeze(MLP, layers=["dense1", "dense3"], parameters=parameters)
    features, labels = _records(30, 5)
    expected = torch.zeros(15, dtype=torch.float64)
    norms = []
    for x, y in zip(features, labels, strict=True):
        whole = torch.from_numpy(parameters).requires_grad_()
        loss = softplus(-y * differentiable_scores(MLP, whole, x[None])).sum()
        (gradient,) = torch.autograd.grad(loss, whole)
        trained = gradient[24:39]  # 5·4 + 4 before, 3 + 1 after
        norms.append(float(trained.norm()))
        expected += trained * min(1.0, (1 - CLIP_MARGIN) * CLIP / norms[-1])
    assert min(norms) < CLIP < max(norms)
    summed = clipped_gradient_sums(
        model=frozen.model,
        loss=Logistic(),
        batch=_batch(features, labels),
        clipping=Clipping(clip_norm=CLIP),
        theta=torch.from_numpy(frozen.start),
    )
    np.testing.assert_allclose(summed.value.numpy().ravel(), expected.numpy(), rtol=1e-6, atol=1e-9)


def test_the_network_scores_as_before() -> None:
    parameters = MLP.initial(np.random.default_rng(0)).numpy() + 0.1
    frozen = freeze(MLP, layers=["dense2"], parameters=parameters)
    features = _records(7, 5)[0].float()
    np.testing.assert_allclose(
        frozen.model.scores(torch.from_numpy(frozen.start), features),
        MLP.scores(torch.from_numpy(parameters), features),
        rtol=1e-5,
        atol=1e-6,
    )


def test_the_whole_network_has_the_frozen_values_to_the_bit() -> None:
    model = small_cnn(shape=(1, 8, 8), classes=3)
    parameters = np.random.default_rng(0).normal(size=model.dimension)
    frozen = freeze(model, layers=["conv1", "conv2"], parameters=parameters)
    assert frozen.model.dimension == frozen.trainable.sum() < model.dimension
    whole = frozen.whole(np.zeros(frozen.model.dimension))
    assert (whole[: 16 * 9 + 16] == parameters[: 16 * 9 + 16]).all()
    assert (whole[-3:] == 0).all()
    np.testing.assert_array_equal(frozen.whole(frozen.start), parameters)


def test_frozen_convolutions_leave_the_fast_rules_to_the_others() -> None:
    """Vectorised autograd would be correct, too, and much slower."""
    model = small_cnn(shape=(1, 8, 8), classes=3)
    frozen = freeze(model, layers=["conv1"], parameters=model.weights.numpy())
    assert frozen.model._plan is not None
    assert len(frozen.model._plan.layers) == 3


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        (["dense9"], "dense1, dense2, dense3"),
        (["activation1"], "layers with parameters"),
        (["dense"], "layers with parameters"),  # no beginning of a name
        (["dense1", "dense2", "dense3"], "leave a layer"),
    ],
)
def test_layers_that_cannot_be_frozen_are_refused(layers: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        freeze(MLP, layers=layers, parameters=np.zeros(MLP.dimension))


def test_other_parameters_and_other_models_are_refused() -> None:
    with pytest.raises(ValueError, match="shape"):
        freeze(MLP, layers=["dense1"], parameters=np.zeros(3))
    with pytest.raises(ValueError, match="networks"):
        freeze(LinearModel(width=3), layers=["dense1"], parameters=np.zeros(3))
