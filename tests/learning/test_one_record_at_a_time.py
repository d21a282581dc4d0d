"""What a module does to a batch reaches no gradient and no score, also where no check looked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn

from fedpriv.learning.batch import RecordBatch
from fedpriv.learning.clipping.clipped_sum import Clipping, clipped_gradient_sums
from fedpriv.learning.losses import Logistic
from fedpriv.learning.network import NetworkModel
from fedpriv.learning.training import general
from fedpriv.learning.training.settings import LocalSgd
from fedpriv.learning.training.trainer import LocalTrainer

if TYPE_CHECKING:
    from collections.abc import Iterator

FEATURES, RECORDS, C = 6, 40, 0.02


class Dense(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(FEATURES, 8), nn.Linear(8, 1)

    def between(self, hidden: Tensor, _records: Tensor) -> Tensor:
        return torch.tanh(hidden)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.last(self.between(self.first(x), x))
        return scores


class NormalisesManyRecords(Dense):
    """By the batch, where there are enough records for its statistics."""

    def between(self, hidden: Tensor, _records: Tensor) -> Tensor:
        if len(hidden) >= 16:
            hidden = (hidden - hidden.mean(0)) / (hidden.std(0) + 1e-3)
        return torch.tanh(hidden)


class Limited(Dense):
    """Passes on the first eight records with a positive unit, as a gate with a capacity does."""

    def between(self, hidden: Tensor, _records: Tensor) -> Tensor:
        positive = (hidden > 0).to(hidden.dtype)
        return torch.tanh(hidden) * positive * (positive.cumsum(0) <= 8)


class Scaled(Dense):
    """By the largest of all records, if one is beyond what a check tries."""

    def between(self, hidden: Tensor, records: Tensor) -> Tensor:
        top = records.abs().amax()
        return torch.tanh(hidden / torch.where(top > 1e6, top, 1.0))


class SortedByLength(nn.Module):
    """As for packing: longest sequences first, where zeros are padding. No length, no difference.

    Layers before and after see records in two orders: a row of gradients was half one record's and
    half another's, and one record moved a sum by 4.6 C instead of 2 C.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(2, 4), nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        steps = x.view(len(x), 3, 2)
        lengths = (steps != 0).any(-1).sum(1)
        order = lengths.argsort(descending=True, stable=True)
        hidden = torch.tanh(self.first(steps))[order].mean(1)
        scores: Tensor = self.last(hidden)
        return scores[order.argsort()]


KINDS: list[type[nn.Module]] = [NormalisesManyRecords, Limited, Scaled, SortedByLength]


def _records() -> tuple[Tensor, Tensor]:
    """Sequences of one to three steps, filled up with zeros; one record is huge."""
    rng = torch.Generator().manual_seed(0)
    x = 3 * torch.randn(RECORDS, FEATURES, generator=rng)
    lengths = torch.randint(1, 4, (RECORDS, 1), generator=rng)
    x[torch.arange(FEATURES) >= 2 * lengths] = 0.0
    x[-1] = 1e7
    return x, (torch.rand(RECORDS, generator=rng) < 0.5).float() * 2 - 1


def _model(kind: type[nn.Module]) -> tuple[NetworkModel, Tensor]:
    rng = torch.Generator().manual_seed(1)
    model = NetworkModel(module=kind(), input_shape=(FEATURES,))
    return model, torch.randn(model.dimension, generator=rng)


def _sums(kind: type[nn.Module], *, each: bool) -> Iterator[Tensor]:
    """Clipped sums of the records up to each of them; or of each alone."""
    (model, theta), (x, y) = _model(kind), _records()
    for last in range(1, RECORDS + 1):
        rows = slice(last - 1 if each else 0, last)
        batch = RecordBatch(features=x[rows].contiguous(), labels=y[rows])
        yield clipped_gradient_sums(model, Logistic(), theta, batch, Clipping(clip_norm=C)).value[0]


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_adds_what_it_is_alone(kind: type[nn.Module]) -> None:
    """Before, by these modules, one record moved a sum by up to 23 times its bound."""
    total = torch.zeros(())
    for together, alone in zip(_sums(kind, each=False), _sums(kind, each=True), strict=True):
        assert float(alone.norm()) <= C
        total = total + alone
        torch.testing.assert_close(together, total, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_has_the_score_that_it_has_alone(kind: type[nn.Module]) -> None:
    (model, theta), (x, _) = _model(kind), _records()
    alone = torch.cat([model.scores(theta, x[i : i + 1]) for i in range(RECORDS)])
    torch.testing.assert_close(model.scores(theta, x), alone)


class Remembering(Dense):
    """Divides gradients by the norm of those before, which it keeps from one call to the next."""

    before = 1.0

    def _divided(self, errors: Tensor) -> Tensor:
        before, self.before = self.before, float(errors.norm())
        return errors / before

    def between(self, hidden: Tensor, _records: Tensor) -> Tensor:
        if hidden.requires_grad:
            hidden.register_hook(self._divided)  # type: ignore[no-untyped-call]
        return torch.tanh(hidden)


class Keeping(Dense):
    """Adds what it saw in its latest call to this one, where gradients are asked for."""

    before: Tensor | None = None

    def between(self, hidden: Tensor, _records: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            before, self.before = self.before, hidden.detach()
            hidden = hidden if before is None else hidden + before
        return torch.tanh(hidden)


@pytest.mark.parametrize("kind", [Remembering, Keeping])
def test_a_module_remembers_nothing(kind: type[nn.Module]) -> None:
    """A copy that computed was used again: records of two rounds met in it."""
    (model, theta), (x, y) = _model(kind), _records()
    batch = RecordBatch(features=x, labels=y)
    first, second = (
        clipped_gradient_sums(model, Logistic(), theta, batch, Clipping(clip_norm=C)).value
        for _ in range(2)
    )
    assert torch.equal(first, second)


def test_nor_of_parties_that_were_trained_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parties of the second group added what those of the first had shown the module."""
    monkeypatch.setattr(general, "_MEMORY", 1)  # one party at a time
    (model, theta), (x, y) = _model(Keeping), _records()

    def updates(features: Tensor) -> Tensor:
        trainer = LocalTrainer(
            model=model,
            loss=Logistic(),
            batch=RecordBatch(features=features, labels=y, offsets=torch.tensor([0, 20, 40])),
            settings=LocalSgd(epochs=1, learning_rate=0.1),
        )
        return torch.from_numpy(trainer.updates(theta, key=0))

    x[-1] = 1.0
    assert torch.equal(updates(x)[1], updates(torch.cat([-x[:20], x[20:]]))[1])


class Halved(Dense):
    """Computes in bfloat16, which only float32 is cast to: not the float64 of a check."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            hidden = torch.tanh(self.first(x))
            hidden = hidden.bfloat16() if hidden.dtype == torch.float32 else hidden
            scores: Tensor = self.last(hidden)
        return scores


def test_a_norm_is_that_of_what_is_added_up() -> None:
    """Errors were measured in bfloat16 and added up in float32: a norm was 1.0008 C."""
    assert max(float(alone.norm()) for alone in _sums(Halved, each=True)) <= C


def test_products_may_not_be_rounded_further() -> None:
    """A file of the user's own may ask for that, for the whole process."""
    torch.set_float32_matmul_precision("medium")
    try:
        with pytest.raises(RuntimeError, match="matmul precision must be 'highest'"):
            next(_sums(Dense, each=True))
    finally:
        torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
@pytest.mark.parametrize("given", [False, True], ids=["zeros", "given"])
def test_recurrent_layers_have_their_own_gradients(kind: Any, given: bool) -> None:
    """PyTorch writes into a state that all records would share, which vmap refuses."""

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.head = kind(2, 4, batch_first=True), nn.Linear(4, 1)

        def forward(self, x: Tensor) -> Tensor:
            state = torch.zeros(1, len(x), 4, dtype=x.dtype)
            start = (state, state) if kind is nn.LSTM else state
            found = self.layer(x.view(len(x), 3, 2), *((start,) if given else ()))
            scores: Tensor = self.head(found[0][:, -1])
            return scores

    (model, theta), (x, y) = _model(Recurrent), _records()
    batch = RecordBatch(features=x[:5].double(), labels=y[:5])
    factors = model.gradient_factors(theta.double(), batch, Logistic())
    found = torch.cat([factor.rows() for factor in factors], dim=1)
    for i in range(5):
        point = theta.double().requires_grad_()
        value = Logistic().value(model.scores(point, batch.features[i : i + 1]), y[i : i + 1])
        (expected,) = torch.autograd.grad(value.sum(), point)
        torch.testing.assert_close(found[i], expected)
