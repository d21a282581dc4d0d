"""Row scores: the same to the bit, wherever a record stands."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedpriv.learning import LinearModel, RecordBatch, Softmax
from fedpriv.learning.row_scores import row_scores


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [1, 30, 105, 784])
@pytest.mark.parametrize("points", [1, 2, 21])
def test_a_score_does_not_depend_on_the_place_of_its_record(
    points: int, width: int, dtype: torch.dtype
) -> None:
    rng = np.random.default_rng(0)
    X = torch.from_numpy(rng.normal(size=(401, width))).to(dtype)
    theta = torch.from_numpy(rng.normal(size=(points, width)))
    whole = row_scores(X, theta)
    for first in (1, 2, 3, 7):
        assert (row_scores(X[first:].contiguous(), theta) == whole[first:]).all()
    exact = X.double() @ theta.to(dtype).double().T
    tolerance = 1e-3 if dtype is torch.float32 else 1e-10
    torch.testing.assert_close(whole.double(), exact, rtol=0, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("classes", [2, 3, 10, 33, 70])
def test_softmax_gradients_and_losses_do_not_depend_on_the_place_of_their_record(
    classes: int, dtype: torch.dtype
) -> None:
    """With a matrix product for the scores, many of them differ in a last bit."""
    rng = np.random.default_rng(1)
    model, loss = LinearModel(width=64, classes=classes), Softmax(classes=classes)
    X = torch.from_numpy(rng.normal(size=(401, 64))).to(dtype)
    y = torch.from_numpy(rng.integers(0, classes, 401))
    theta = torch.from_numpy(rng.normal(size=model.dimension)).to(dtype)

    def of(first: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        records = slice(first, None)
        batch = RecordBatch(
            features=X[records].contiguous(),
            labels=y[records].contiguous(),
            offsets=torch.tensor([0, len(X) - first]),
        )
        (factor,) = model.gradient_factors(theta, batch, loss)
        scores = row_scores(batch.features, theta.reshape(classes, -1))
        return factor.rows(), factor.squares(), loss.value(scores, batch.labels)

    whole = of(0)
    for first in (1, 2, 3, 7):
        for part, all_of_them in zip(of(first), whole, strict=True):
            assert (part == all_of_them[first:]).all()
