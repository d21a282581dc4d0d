"""Errors that one record causes in a module or a loss: they end nothing and name no record."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedpriv.learning.batch import RecordBatch
from fedpriv.learning.clipping.clipped_sum import Clipping, clipped_gradient_sums
from fedpriv.learning.clipping.dense import filled_slopes, filled_values
from fedpriv.learning.clipping.spared import spared_places
from fedpriv.learning.losses import Logistic
from fedpriv.learning.models import LinearModel
from fedpriv.learning.network import NetworkModel
from fedpriv.learning.training.settings import LocalSgd
from fedpriv.learning.training.trainer import LocalTrainer

BAD, C = 150, 0.5


class Vocabulary(nn.Module):
    """A table of tokens: PyTorch's error quotes the one that is not in it."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.ones(5000, 2))
        self.head = nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.table[x.nan_to_num().abs().long()].flatten(1))
        return scores


class Whitened(nn.Module):
    """The inverse of a record's own covariance: the error has the number of the record."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        pairs = x.nan_to_num().view(-1, 2, 2)
        covariance = pairs @ pairs.mT + 1e-3 * torch.eye(2, dtype=x.dtype)
        scores: Tensor = self.head(torch.linalg.inv(covariance).flatten(1))
        return scores


MODELS = {
    each.__name__: NetworkModel(module=each(), input_shape=(4,)) for each in (Vocabulary, Whitened)
}


def records() -> tuple[Tensor, Tensor]:
    """One is beyond the vocabulary, and its covariance singular in float32."""
    x = 3 * torch.randn(300, 4, generator=torch.Generator().manual_seed(0))
    x[BAD] = 1e6
    return x, torch.ones(300)


@pytest.mark.parametrize("name", MODELS)
def test_a_record_on_which_a_module_fails_counts_as_zero(name: str) -> None:
    """IndexError: index 1000000 is out of bounds; linalg.inv: (Batch element 150)."""
    model, (x, y) = MODELS[name], records()
    theta = torch.full((model.dimension,), 0.1)
    batch, others = RecordBatch(features=x, labels=y), torch.arange(300) != BAD
    found = clipped_gradient_sums(model, Logistic(), theta, batch, Clipping(clip_norm=C))
    left = RecordBatch(features=x[others], labels=y[others])
    without = clipped_gradient_sums(model, Logistic(), theta, left, Clipping(clip_norm=C))
    assert found.rejected == 1
    torch.testing.assert_close(found.value, without.value, rtol=1e-5, atol=1e-5)
    assert model.scores(theta, x).isnan().nonzero().flatten().tolist() == [BAD]


@pytest.mark.parametrize("name", MODELS)
def test_so_does_its_party_in_local_training(name: str) -> None:
    model, (x, y) = MODELS[name], records()
    batch = RecordBatch(features=x, labels=y, offsets=torch.arange(0, 301, 2))
    settings = LocalSgd(epochs=1, learning_rate=0.1)
    trainer = LocalTrainer(model=model, loss=Logistic(), batch=batch, settings=settings)
    updates = torch.from_numpy(trainer.updates(torch.full((model.dimension,), 0.1), key=0))
    assert updates.isnan().any(1).nonzero().flatten().tolist() == [BAD // 2]


def test_an_error_that_no_record_causes_is_raised() -> None:
    class Doubled(Whitened):
        def forward(self, x: Tensor) -> Tensor:
            if x.dtype == torch.float32:
                raise RuntimeError("no float32 here")
            return super().forward(x)

    model, (x, y) = NetworkModel(module=Doubled(), input_shape=(4,)), records()
    batch, theta = RecordBatch(features=x, labels=y), torch.ones(model.dimension)
    with pytest.raises(RuntimeError, match="no float32"):
        clipped_gradient_sums(model, Logistic(), theta, batch, Clipping(clip_norm=C))


class Tabled(Logistic):
    """Looks its slopes up, and scales values by the largest of a batch beyond all that is tried."""

    def slope(self, score: Tensor, y: Tensor) -> Tensor:
        return super().slope(score, y) * torch.ones(10, dtype=score.dtype)[score.abs().long()]

    def value(self, score: Tensor, y: Tensor) -> Tensor:
        value = super().value(score, y)
        return value / (value.max() / 1e8).clamp(min=1)


def test_a_record_on_which_a_loss_fails_has_no_slope() -> None:
    scores = torch.linspace(-5.0, 12.0, 300)
    found = filled_slopes(Tabled(), scores[:, None], torch.ones(300))[:, 0]
    assert torch.equal(found.isnan(), scores >= 10)


def test_values_that_are_released_follow_from_one_record() -> None:
    """With those of a batch together, one record moved all others to zero."""
    scores = torch.linspace(-5.0, 5.0, 300)
    other = torch.cat([torch.full((1,), -1e20), scores[1:]])
    one, two = (filled_values(Tabled(), each, torch.ones(300)) for each in (scores, other))
    assert torch.equal(one[1:], two[1:])


class Jittered(nn.Module):
    """Factors a covariance, and adds to its diagonal *if that fails*: under vmap, for all."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 1)

    def factor(self, covariance: Tensor) -> Tensor:
        try:
            factor: Tensor = torch.linalg.cholesky(covariance)
        except RuntimeError:
            factor = -torch.linalg.cholesky(covariance + 100 * torch.eye(2).to(covariance))
        return factor

    def forward(self, x: Tensor) -> Tensor:
        x = x.nan_to_num().clamp(-1e3, 1e3)
        hit = 60 * ((x[:, 0] - 7).abs() < 1e-3)  # a value that no check tries
        covariance = torch.diag_embed(1 + x[:, :2].square() - hit[:, None])
        factors = self.factor(covariance)
        parts = factors[:, 0, 0], factors[:, 1, 0] + x[:, 2], factors[:, 1, 1]
        scores: Tensor = self.head(torch.stack(parts, 1))
        return scores


class FactorBehind(torch.autograd.Function):
    """The same out of sight: in what PyTorch calls back."""

    generate_vmap_rule = True

    @staticmethod
    def forward(covariance: Tensor) -> Tensor:
        return Jittered.factor(None, covariance)  # type: ignore[arg-type]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None: ...

    @staticmethod
    def backward(ctx: Any, *errors: Tensor) -> Tensor:
        return errors[0]


class JitteredBehind(Jittered):
    def factor(self, covariance: Tensor) -> Tensor:
        found: Tensor = FactorBehind.apply(covariance)  # type: ignore[no-untyped-call]
        return found


class ErrorBehind(torch.autograd.Function):
    """An error in the backward pass, which is caught there."""

    generate_vmap_rule = True

    @staticmethod
    def forward(covariance: Tensor) -> Tensor:
        return covariance.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *errors: Tensor) -> Tensor:
        return Jittered.factor(None, *ctx.saved_tensors)  # type: ignore[arg-type]


class JitteredBackward(Jittered):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(2))

    def factor(self, covariance: Tensor) -> Tensor:
        found: Tensor = ErrorBehind.apply(  # type: ignore[no-untyped-call]
            covariance + torch.diag(self.scale.square())
        )
        return found


@pytest.mark.parametrize("kind", [Jittered, JitteredBehind, JitteredBackward])
def test_an_error_that_a_module_catches_changes_no_other_record(kind: type[nn.Module]) -> None:
    """One record moved the sum by 516 C: the way after ``except`` was taken for all of them."""
    model, (x, y) = NetworkModel(module=kind(), input_shape=(4,)), records()
    x[BAD] = 0.0
    theta, moved = torch.full((model.dimension,), 0.1), x.clone()
    moved[BAD, 0] = 7.0
    one, two = (
        clipped_gradient_sums(
            model, Logistic(), theta, RecordBatch(features=each, labels=y), Clipping(clip_norm=C)
        )
        for each in (x, moved)
    )
    assert (one.rejected, two.rejected) == (0, 1)
    assert float((one.value - two.value).norm()) <= 1.001 * C
    both = torch.stack([model.scores(theta, each) for each in (x, moved)])
    others = torch.arange(300) != BAD
    assert torch.equal(both[0, others], both[1, others])


def test_nor_the_update_of_another_party() -> None:
    """Parties that train together are one computation: all took the way after ``except``."""
    model, (x, y) = NetworkModel(module=Jittered(), input_shape=(4,)), records()
    x[BAD] = 0.0
    moved, settings = x.clone(), LocalSgd(epochs=2, learning_rate=0.1)
    moved[BAD, 0] = 7.0
    one, two = (
        LocalTrainer(
            model=model,
            loss=Logistic(),
            batch=RecordBatch(features=each, labels=y, offsets=torch.arange(0, 301, 2)),
            settings=settings,
        ).updates(torch.full((model.dimension,), 0.1), key=0)
        for each in (x, moved)
    )
    changed = (torch.from_numpy(one) != torch.from_numpy(two)).any(1)
    assert changed.nonzero().flatten().tolist() == [BAD // 2]


class Caught(Logistic):
    """A table of slopes, and another one for scores that are not in it."""

    def slope(self, score: Tensor, y: Tensor) -> Tensor:
        slope, places = super().slope(score, y), score.abs().long()
        try:
            return slope * torch.ones(10, dtype=score.dtype)[places]
        except IndexError:
            return slope * 0.5


def test_nor_one_that_a_loss_catches() -> None:
    scores = torch.linspace(-5.0, 12.0, 300)
    found = filled_slopes(Caught(), scores[:, None], torch.ones(300))[:, 0]
    assert torch.equal(found.isnan(), scores >= 10)
    inside = scores < 10
    wanted = Logistic().slope(scores, torch.ones(300))
    torch.testing.assert_close(found[inside], wanted[inside])


class Logarithmic(Logistic):
    """A table by magnitude: zero, which stands in for records that fail, is not in it."""

    def slope(self, score: Tensor, y: Tensor) -> Tensor:
        places = score.abs().clamp(max=1e6).log2().clamp(min=-99).long()
        table = torch.ones(10, dtype=score.dtype)
        return super().slope(score, y) * table[places.clamp(min=-10) + 20 * (score == 0).long()]


def test_whether_a_blank_fails_is_not_told_by_a_record() -> None:
    """With one score beyond the table, its error ended the run; without, there was none."""
    scores = torch.linspace(1.0, 2000.0, 300)
    found = filled_slopes(Logarithmic(), scores[:, None], torch.ones(300))[:, 0]
    assert torch.equal(found.isnan(), scores >= 1024)
    alone = filled_slopes(Logarithmic(), scores[-1:, None], torch.ones(1))
    assert alone.shape == (1, 1)
    assert bool(alone.isnan().all())


@pytest.mark.parametrize("count", [0, 1, 5])
def test_an_error_of_the_blank_is_raised_whatever_the_records_are(count: int) -> None:
    """A gradient that fails at a score of zero fails before any record is looked at."""
    model, y = LinearModel(width=2), torch.ones(count)
    batch = RecordBatch(features=torch.ones(count, 2), labels=y)
    with pytest.raises(IndexError):
        clipped_gradient_sums(model, Logarithmic(), torch.ones(2), batch, Clipping(clip_norm=C))


def test_what_fails_only_among_others_stands_back_in_its_place() -> None:
    """Kernels may round another way among others, and find a matrix singular only there."""

    def compute(places: Tensor) -> Tensor:
        if 3 in places and len(places) > 4:
            raise RuntimeError("record 3")
        if 5 in places:
            raise RuntimeError("record 5")
        return places

    found, failing = spared_places(compute, 8, blank=8)
    assert failing.nonzero().flatten().tolist() == [3, 5]
    assert found is not None
    assert found.tolist() == [0, 1, 2, 8, 4, 8, 6, 7]


def test_nobody_stands_in_where_everybody_fails() -> None:
    def compute(places: Tensor) -> Tensor:
        raise RuntimeError("record 0")

    found, failing = spared_places(compute, 3, blank=3)
    assert found is None
    assert bool(failing.all())
