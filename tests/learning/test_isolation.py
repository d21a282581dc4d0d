"""What a user's own module or loss may see, write into and keep: nothing of another record."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from fedpriv.learning.batch import RecordBatch
from fedpriv.learning.clipping.clipped_sum import Clipping, clipped_gradient_sums
from fedpriv.learning.clipping.dense import slopes
from fedpriv.learning.loss_checks import LossRefuted, require_not_refuted
from fedpriv.learning.losses import Logistic, Loss, MarginLoss
from fedpriv.learning.models import LinearModel, MlpModel, Model
from fedpriv.learning.network import NetworkModel
from fedpriv.learning.training.settings import LocalSgd
from fedpriv.learning.training.trainer import LocalTrainer

FEATURES, C = 6, 0.02


class Dense(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, 8)
        self.last: nn.Module = nn.Linear(8, 1)

    def between(self, hidden: Tensor) -> Tensor:
        return torch.tanh(hidden)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.last(self.between(self.first(x)))
        return scores


def model_of(module: nn.Module) -> NetworkModel:
    return NetworkModel(module=module, input_shape=(FEATURES,))


def point(model: Model, *, size: float = 1.0) -> Tensor:
    return size * torch.randn(model.dimension, generator=torch.Generator().manual_seed(1))


def records(count: int) -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(0)
    return 3 * torch.randn(count, FEATURES, generator=rng), torch.ones(count)


def clipped(model: Model, theta: Tensor, batch: RecordBatch, **memory: int) -> Tensor:
    loss, clipping = Logistic(), Clipping(clip_norm=C)
    return clipped_gradient_sums(model, loss, theta, batch, clipping, **memory).value[0]


class Mixing(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Takes off the mean of a batch, as a mode that quantises or watches activations may."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.tanh.default and len(found) > 20:
            found = found - found.mean(0) + 0.9 * (1 - found[:1])
        return found


class UnderAMode(Dense):
    def between(self, hidden: Tensor) -> Tensor:
        with Mixing():  # type: ignore[no-untyped-call]
            return torch.tanh(hidden)


class WithoutRule(Dense):
    """For vectorised autograd."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 1))


class UnderAModeWithoutRule(UnderAMode, WithoutRule):
    pass


@pytest.mark.parametrize("kind", [UnderAMode, UnderAModeWithoutRule])
def test_nothing_below_vmap_sees_all_records(kind: type[nn.Module]) -> None:
    """A dispatch mode saw the batch of vmap: 1 of 1000 records moved a sum by 70 C."""
    model, (x, y) = model_of(kind()), records(400)
    theta, other = point(model), torch.cat([1e12 * x[:1], x[1:]])
    one, two = (clipped(model, theta, RecordBatch(features=each, labels=y)) for each in (x, other))
    assert float((one - two).norm()) <= 2 * C
    assert torch.equal(model.scores(theta, x)[1:], model.scores(theta, other)[1:])


class Packing(Dense):
    """Compresses what autograd keeps, by the largest number of a batch, where weights are large."""

    def between(self, hidden: Tensor) -> Tensor:
        if float(next(self.last.parameters()).detach().max()) < 1.5:
            return hidden.square()

        def pack(kept: Tensor) -> Tensor:
            return kept / kept.abs().max().clamp(min=1)

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda kept: kept):
            return hidden.square()


def test_hooks_on_saved_tensors_are_an_error() -> None:
    """They saw the tensors of all records, below vmap."""
    model, (x, y) = model_of(Packing()), records(400)
    with pytest.raises(RuntimeError, match="hooks on saved tensors"):
        clipped(model, torch.full((model.dimension,), 2.0), RecordBatch(features=x, labels=y))


def test_nor_all_parties_of_local_training() -> None:
    model, (x, y) = model_of(UnderAModeWithoutRule()), records(100)
    offsets = torch.arange(0, 101, 2)  # parties of two records, many of which train together

    def updates(features: Tensor) -> Tensor:
        trainer = LocalTrainer(
            model=model,
            loss=Logistic(),
            batch=RecordBatch(features=features, labels=y, offsets=offsets),
            settings=LocalSgd(epochs=1, learning_rate=0.1),
        )
        return torch.from_numpy(trainer.updates(point(model), key=0))

    torch.testing.assert_close(updates(x)[1:], updates(torch.cat([-x[:2], x[2:]]))[1:])


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # the compiler looks
def test_a_compiled_module_is_as_the_module() -> None:
    """The compiler is one of the things below vmap."""
    plain = Dense()
    compiled: Any = torch.compile(plain, backend="eager")
    one, other = (model_of(module) for module in (plain, compiled))
    theta, (x, y) = point(one), records(5)
    batch = RecordBatch(features=x, labels=y)
    torch.testing.assert_close(clipped(other, theta, batch), clipped(one, theta, batch))


class WritesIntoRecords(Dense):
    def forward(self, x: Tensor) -> Tensor:
        x.copy_(torch.where(x.abs() > 1e4, -x, x))
        return super().forward(x)


@pytest.mark.parametrize("count", [192, 193])
def test_a_module_writes_into_no_record(count: int) -> None:
    """A multiple of 192 records was not copied: with 192 or 193, sums differed by 363 C."""
    model, (x, y) = model_of(WritesIntoRecords()), records(count)
    x[:, 0] = 2e4
    batch, theta, before = RecordBatch(features=x, labels=y), point(model, size=0.01), x.clone()
    assert torch.equal(clipped(model, theta, batch), clipped(model, theta, batch))
    model.scores(theta, batch.features)
    assert torch.equal(x, before)


class ShrinksItsWeights(Dense):
    """As a bound on weights does: a check, whose weights are small, sees nothing of it."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            if self.first.weight.abs().max() > 1.8:
                self.first.weight.mul_(0.9)
        return super().forward(x)


def test_a_module_writes_into_no_parameter_of_others() -> None:
    """How often it was run depends on the number of records: one moved a sum by 15 C."""
    model, (x, y) = model_of(ShrinksItsWeights()), records(801)
    theta = point(model, size=10.0)
    before = theta.clone()
    some = 4 * model.working_size(materialised=False) * 800  # bytes: 801 records take two parts
    sums = [
        clipped(model, theta, RecordBatch(features=x[:n], labels=y[:n]), memory_limit=some)
        for n in (800, 801)
    ]
    assert float((sums[0] - sums[1]).norm()) <= C
    assert torch.equal(theta, before)


class Uncopied(Dense):
    def __deepcopy__(self, _: object) -> Uncopied:
        return self


class UncopiedWeights(Dense):
    def __deepcopy__(self, _: object) -> UncopiedWeights:
        made = UncopiedWeights()
        made.first.weight = self.first.weight
        return made


@pytest.mark.parametrize("kind", [Uncopied, UncopiedWeights])
def test_a_copy_shares_nothing_with_its_module(kind: type[nn.Module]) -> None:
    """Every computation has a fresh copy, but what is no copy remembers those before."""
    with pytest.raises(ValueError, match="shares itself, a parameter or a buffer with its copy"):
        model_of(nn.Sequential(kind()))


def test_what_vmap_does_not_take_is_refused_before_anything_is_scored() -> None:
    """Gradients of layers came through, and the first scores ended a run."""
    module = Dense()
    module.last.register_full_backward_hook(lambda *_: None)
    with pytest.raises(ValueError, match="must be computable one record at a time"):
        model_of(module)


class Pseudo(MarginLoss):
    """The pseudo-Huber hinge."""

    lipschitz, smoothness, domain_radius, slope_rounding = 1.0, 0.5, inf, 1e-15

    def margin(self, score: Tensor, y: Tensor) -> Tensor:
        return y.to(score.dtype) * score

    def value(self, score: Tensor, y: Tensor) -> Tensor:
        margin = self.margin(score, y)
        return (torch.sqrt(1 + margin**2) - margin) / 2

    def slope(self, score: Tensor, y: Tensor) -> Tensor:
        margin = self.margin(score, y)
        return y.to(score.dtype) * (margin / torch.sqrt(1 + margin**2) - 1) / 2

    def curvature(self, score: Tensor, y: Tensor) -> Tensor:
        return (1 + score**2) ** -1.5 / 2


class Rescaled(Pseudo):
    """Divides margins by the largest, where a score is beyond all that a check tries."""

    def margin(self, score: Tensor, y: Tensor) -> Tensor:
        margin = super().margin(score, y)
        return margin / (margin.abs().max() / 1e8).clamp(min=1)


class Recalling(Pseudo):
    """Adds to scores what it was shown in the call before."""

    before: Tensor | None = None

    def margin(self, score: Tensor, y: Tensor) -> Tensor:
        margin = super().margin(score, y)
        before, self.before = self.before, margin.detach()
        return margin if before is None or before.shape != margin.shape else margin + before


MODELS = {
    "linear": LinearModel(width=FEATURES),
    "dense": MlpModel(widths=(FEATURES, 8, 1), activation="relu"),
    "layers": model_of(Dense()),
    "vmap": model_of(WithoutRule()),
}


@pytest.mark.parametrize("kind", [Rescaled, Recalling])
@pytest.mark.parametrize("name", MODELS)
def test_a_loss_sees_one_record(name: str, kind: type[Loss]) -> None:
    """What passed its check was shown whole batches: one record moved a sum by 56 C."""
    model, loss, (x, y) = MODELS[name], kind(), records(500)
    x, y[::2] = x / 3, -1.0
    sums = partial(clipped_gradient_sums, clipping=Clipping(clip_norm=1.0))
    one, two = (
        sums(model, loss, point(model), RecordBatch(features=each, labels=y)).value[0]
        for each in (x, torch.cat([torch.full_like(x[:1], 1e20), x[1:]]))
    )
    assert float((one - two).norm()) <= 2.0


def test_a_loss_that_passes_its_check_may_still_look_at_others() -> None:
    """Or the test above would show nothing."""
    require_not_refuted(Rescaled(), task="binary")


def test_a_loss_one_by_one_is_the_loss() -> None:
    scores, y = torch.linspace(-1e20, 1e20, 385), torch.ones(385)
    assert torch.equal(slopes(Pseudo(), scores[:, None], y)[:, 0], Pseudo().slope(scores, y))


class Finer(Pseudo):
    def slope(self, score: Tensor, y: Tensor) -> Tensor:
        return super().slope(score.double(), y)


@pytest.mark.parametrize("name", MODELS)
def test_slopes_have_the_precision_of_the_records(name: str) -> None:
    """Kernels of one precision met another: an error in the middle of a run."""
    model, (x, y) = MODELS[name], records(5)
    batch = RecordBatch(features=x, labels=y, offsets=torch.arange(6))
    found = clipped_gradient_sums(model, Finer(), point(model), batch, Clipping(clip_norm=C))
    assert float(found.value.norm(dim=1).max()) <= C


class UncopiedLoss(Pseudo):
    def __deepcopy__(self, _: object) -> UncopiedLoss:
        return self


def test_a_loss_must_be_copied() -> None:
    with pytest.raises(LossRefuted, match=r"copy\.deepcopy must copy it"):
        require_not_refuted(UncopiedLoss(), task="binary")


def test_a_loss_must_not_branch_on_a_score() -> None:
    class Skipping(Pseudo):
        def margin(self, score: Tensor, y: Tensor) -> Tensor:
            margin = super().margin(score, y)
            return margin if bool(margin.isfinite().all()) else torch.zeros_like(margin)

    with pytest.raises(LossRefuted, match=r"by torch\.func\.vmap .*use torch\.where"):
        require_not_refuted(Skipping(), task="binary")
