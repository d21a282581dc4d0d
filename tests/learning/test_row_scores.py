"""Row scores: the same to the bit, wherever a record stands."""

from __future__ import annotations

import numpy as np
import pytest
import torch

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
