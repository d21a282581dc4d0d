"""Any PyTorch module as a model: the right gradients, and no layer that mixes records."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from fedpriv.learning.batch import RecordBatch
from fedpriv.learning.clipping.clipped_sum import Clipping, clipped_gradient_sums
from fedpriv.learning.losses import Logistic, Softmax
from fedpriv.learning.models import unflatten
from fedpriv.learning.network import NetworkModel, small_cnn
from fedpriv.learning.record_wise import require_record_wise
from fedpriv.learning.replicas import Replicas


def _rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_the_small_network_has_26010_parameters_and_runs_layer_by_layer() -> None:
    model = small_cnn()
    assert model.dimension == 26_010
    assert model._plan is not None
    assert (len(model._plan.layers), len(model._plan.pools)) == (4, 2)
    theta, x = model.initial(_rng()), torch.from_numpy(_rng().normal(size=(3, 784))).float()
    assert model.scores(theta, x).shape == (3, 10)


def test_layers_and_vectorised_autograd_agree_on_the_small_network() -> None:
    model = small_cnn()
    slow = small_cnn()
    object.__setattr__(slow, "_copies", Replicas((slow.module, None)))
    assert slow._plan is None
    theta = model.initial(_rng())
    batch = RecordBatch(
        features=torch.from_numpy(_rng().normal(size=(5, 784))),
        labels=torch.tensor([0, 3, 9, 1, 4]),
    )
    args = (Softmax(classes=10), theta, batch, Clipping(clip_norm=0.7))
    torch.testing.assert_close(
        clipped_gradient_sums(model, *args).value, clipped_gradient_sums(slow, *args).value
    )


class Twice(nn.Module):
    """One layer, used twice: the rule for a layer would see half of its gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.layer(torch.tanh(self.layer(x))).sum(1)
        return scores


class Behind(nn.Module):
    """A layer that is called once, whose weight is used a second time without a call."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.layer(x) @ self.layer.weight.sum(1)
        return scores


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.second(torch.tanh(self.first(x))).sum(1)
        return scores


class Overwriting(nn.Module):
    """Changes the output of a layer in place; the rule knows the error before that."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = torch.sigmoid_(self.layer(x)).squeeze(1)
        return scores


@pytest.mark.parametrize("kind", [Twice, Behind, Tied, Overwriting])
def test_modules_beyond_the_rules_get_the_gradient_of_autograd(kind: type[nn.Module]) -> None:
    module = kind().double()
    model = NetworkModel(module=module, input_shape=(3,))
    assert (model._plan is None) == (kind is not Overwriting)
    x = torch.from_numpy(_rng().normal(size=(4, 3)))
    y = torch.tensor([1.0, -1.0, 1.0, 1.0])
    found = clipped_gradient_sums(
        model,
        Logistic(),
        model.weights,
        RecordBatch(features=x, labels=y),
        Clipping(clip_norm=1e6),
    ).value[0]
    total = Logistic().value(module(x), y).sum()
    expected = torch.autograd.grad(total, list(module.parameters()))
    torch.testing.assert_close(found, torch.cat([part.flatten() for part in expected]))


class Viewing(nn.Module):
    """Reshapes by ``view``, which asks for channels first."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.pool, self.head = nn.Conv2d(1, 2, 2), nn.MaxPool2d(2, 1), nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.pool(self.conv(x)).view(-1, 8))
        return scores


def test_pooling_is_laid_out_channels_last_only_where_the_module_bears_it() -> None:
    fussy = NetworkModel(module=Viewing(), input_shape=(1, 4, 4))
    assert fussy._plan is not None
    assert (len(fussy._plan.layers), len(fussy._plan.pools)) == (2, 0)


def test_frozen_parameters_and_buffers_are_constants() -> None:
    frozen, head = nn.Linear(4, 3), nn.Linear(3, 1)
    frozen.requires_grad_(requires_grad=False)
    module = nn.Sequential(frozen, nn.Tanh(), head)
    model = NetworkModel(module=module, input_shape=(4,))
    assert model.dimension == 4
    torch.testing.assert_close(
        model.weights, torch.cat([p.detach().flatten() for p in head.parameters()]).double()
    )
    x = torch.from_numpy(_rng().normal(size=(2, 4)))
    torch.testing.assert_close(
        model.scores(model.weights, x), module.double()(x).squeeze(1).detach()
    )


def test_the_model_keeps_a_copy_of_the_module() -> None:
    first, relu = nn.Linear(2, 2), nn.ReLU(inplace=True)
    model = NetworkModel(
        module=nn.Sequential(first, relu, nn.Linear(2, 1)).eval(), input_shape=(2,)
    )
    before = model.weights
    with torch.no_grad():
        first.weight.zero_()
    assert torch.equal(model.weights, before)
    assert relu.inplace
    assert not first.training


def test_initial_weights_depend_on_the_generator_and_not_on_how_the_module_was_built() -> None:
    def build() -> NetworkModel:
        module = nn.Sequential(
            nn.Conv2d(1, 4, 2), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(16, 1)
        )
        return NetworkModel(module=module, input_shape=(1, 3, 3))

    one, other = build(), build()
    assert not torch.equal(one.weights, other.weights)
    assert torch.equal(one.initial(_rng(3)), other.initial(_rng(3)))
    assert not torch.equal(one.initial(_rng(3)), one.initial(_rng(4)))
    trainable = dict(one.module.named_parameters())
    shapes = [parameter.shape for parameter in trainable.values()]
    named = dict(zip(trainable, unflatten(one.initial(_rng()), shapes), strict=True))
    assert float(named["0.weight"].abs().max()) <= 0.5
    assert not named["0.bias"].any()
    assert bool((named["1.weight"] == 1).all())


def test_working_memory_is_estimated_above_the_tensors_in_play() -> None:
    model = small_cnn()
    activations = 3136 * 2 + 2704 + 800 * 2 + 512
    assert model.working_size(materialised=False) > 2 * activations
    assert model.working_size(materialised=True) > 2 * activations + 26_010


@pytest.mark.parametrize(
    "layer",
    [nn.BatchNorm2d(2), nn.SyncBatchNorm(2), nn.BatchNorm2d(2, track_running_stats=False)],
)
def test_batch_normalisation_is_refused_with_its_substitute(layer: nn.Module) -> None:
    module = nn.Sequential(nn.Conv2d(1, 2, 2), layer, nn.Flatten(), nn.Linear(8, 1))
    with pytest.raises(ValueError, match=r"layer '1' \(\w*BatchNorm\w*\) normalises .*GroupNorm"):
        NetworkModel(module=module, input_shape=(1, 3, 3))


def test_running_statistics_of_instances_are_refused() -> None:
    norm = nn.InstanceNorm2d(2, track_running_stats=True)
    module = nn.Sequential(nn.Conv2d(1, 2, 2), norm, nn.Flatten(), nn.Linear(8, 1))
    with pytest.raises(ValueError, match="track_running_stats=False"):
        NetworkModel(module=module, input_shape=(1, 3, 3))


@pytest.mark.parametrize("layer", [nn.Dropout(0.5), nn.AlphaDropout(0.1)])
def test_dropout_is_refused_and_p_zero_is_not(layer: nn.Module) -> None:
    with pytest.raises(ValueError, match="global generator"):
        require_record_wise(nn.Sequential(nn.Linear(2, 2), layer), (2,))
    require_record_wise(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.0)), (2,))


def test_layers_without_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="has no parameters yet"):
        require_record_wise(nn.Sequential(nn.LazyLinear(2)), (2,))


class CentreOnBatch(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(0, keepdim=True)


class DivideByBatchSize(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x / len(x)


class OnlyLargeOnesMix(nn.Module):
    """Invisible unless some record is large: a perturbation by noise would miss it."""

    def forward(self, x: Tensor) -> Tensor:
        return x + (x.abs().amax() > 100).to(x.dtype)


class Attention(nn.Module):
    """Attention over dimension 0, where the records are."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.inner(x.unsqueeze(1), x.unsqueeze(1), x.unsqueeze(1))[0]
        return result.squeeze(1)


class TimeFirst(nn.Module):
    """A recurrent layer that takes dimension 0 for time."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.GRU(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.inner(x.unsqueeze(1))[0]
        return result.squeeze(1)


class HiddenByZeroGain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.gain * x.mean(0)


@pytest.mark.parametrize(
    "mixer",
    [CentreOnBatch, DivideByBatchSize, OnlyLargeOnesMix, Attention, TimeFirst, HiddenByZeroGain],
)
def test_modules_that_mix_records_are_caught_by_what_they_do(mixer: type[nn.Module]) -> None:
    module = nn.Sequential(mixer(), nn.Linear(4, 1))
    with pytest.raises(ValueError, match=r"changing one record .*GroupNorm"):
        NetworkModel(module=module, input_shape=(4,))


class Noisy(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.randn_like(x)


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        assert isinstance(self.seen, Tensor)
        self.seen += x.detach().sum(0)
        return x


def test_random_modules_are_refused_and_leave_the_global_generator_alone() -> None:
    modules = [nn.Sequential(layer, nn.Linear(4, 1)) for layer in (Noisy(), nn.RReLU())]
    state = torch.random.get_rng_state()
    for module in modules:
        with pytest.raises(ValueError, match="two runs on the same records disagree"):
            NetworkModel(module=module, input_shape=(4,))
    small_cnn()
    assert torch.equal(torch.random.get_rng_state(), state)


def test_modules_that_remember_records_are_refused() -> None:
    counting = Counting()
    module = nn.Sequential(counting, nn.Linear(4, 1))
    with pytest.raises(ValueError, match=r"changed its buffer '0\.seen'"):
        require_record_wise(module, (4,))
    assert torch.equal(torch.as_tensor(counting.seen), torch.zeros(4))
    with pytest.raises(ValueError, match="buffer"):
        require_record_wise(spectral_norm(nn.Linear(4, 1)), (4,))


@pytest.mark.parametrize(
    "layer",
    [
        nn.GroupNorm(2, 4),
        nn.LayerNorm(4),
        nn.GRU(4, 4, batch_first=True),
        nn.Softmax(dim=1),
        nn.Identity(),
    ],
)
def test_layers_that_keep_records_apart_are_accepted(layer: nn.Module) -> None:
    class First(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.head = layer, nn.Linear(4, 1)

        def forward(self, x: Tensor) -> Tensor:
            gated = isinstance(layer, nn.GRU)
            x = self.layer(x.unsqueeze(1))[0].squeeze(1) if gated else self.layer(x)
            scores: Tensor = self.head(x)
            return scores

    NetworkModel(module=First(), input_shape=(4,))


def test_outputs_of_the_wrong_shape_are_refused() -> None:
    with pytest.raises(ValueError, match="one row of scores per record"):
        NetworkModel(module=nn.Flatten(0), input_shape=(4,))
    with pytest.raises(ValueError, match="module must return 1 scores per record"):
        NetworkModel(module=nn.Linear(4, 2), input_shape=(4,))
    with pytest.raises(ValueError, match="parameters that require gradients"):
        NetworkModel(module=nn.Flatten(), input_shape=(1,))
