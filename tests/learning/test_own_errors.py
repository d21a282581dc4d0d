"""Errors that one record causes in a module or a loss: they end nothing and name no record."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from fedpriv.learning.batch import RecordBatch
from fedpriv.learning.clipping.clipped_sum import Clipping, clipped_gradient_sums
from fedpriv.learning.clipping.dense import filled_slopes, filled_values
from fedpriv.learning.losses import Logistic
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
