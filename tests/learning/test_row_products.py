"""Row products and outer sums: the same to the bit, wherever a record or a party stands."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from fedpriv.learning.batch import RecordBatch
from fedpriv.learning.losses import HuberHinge
from fedpriv.learning.models import MlpModel
from fedpriv.learning.row_products import patch_products, row_products
from fedpriv.learning.segments import BLOCK, Segments

PRECISIONS = (torch.float32, torch.float64)
SIZES = (3, 0, 1, BLOCK, 2 * BLOCK + 5, 40)


def draw(seed: int, *shape: int, dtype: torch.dtype) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape)).to(dtype)


def outer_sums(left: Tensor, right: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Of every party, between a column that is not touched and another."""
    k, p = left.shape[1], right.shape[1]
    sums = torch.zeros((len(sizes), 1 + k * p + k + 1), dtype=torch.float64)
    offsets = torch.tensor([0, *np.cumsum(sizes).tolist()])
    Segments(offsets=offsets).add_outer_sums(left, right, sums, first=1, bias=True)
    assert not sums[:, [0, -1]].any()
    return sums[:, 1:-1]


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("width", [1, 5, 16, 20, 33, 130])
@pytest.mark.parametrize("length", [1, 7, 30, 784])
def test_a_product_does_not_depend_on_the_place_of_its_row(
    length: int, width: int, dtype: torch.dtype
) -> None:
    rows, matrix = draw(0, 203, length, dtype=dtype), draw(1, length, width, dtype=dtype)
    whole = row_products(rows, matrix)
    tolerance = 1e-3 if dtype is torch.float32 else 1e-11
    exact = rows.double() @ matrix.double()
    torch.testing.assert_close(whole.double(), exact, rtol=0, atol=tolerance)
    turned = matrix.T.contiguous().T
    assert torch.equal(row_products(rows, turned), whole)
    for first, last in ((1, 203), (2, 203), (3, 200), (7, 100), (0, 2), (5, 6), (202, 203), (9, 9)):
        part = row_products(rows[first:last], matrix)
        assert torch.equal(part, whole[first:last])
    rows[::3] = torch.nan
    assert torch.equal(row_products(rows, matrix)[1::3], whole[1::3])


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize(("k", "p"), [(1, 1), (1, 30), (3, 5), (20, 784), (10, 33)])
def test_outer_sums_of_a_party_follow_from_its_own_records(
    k: int, p: int, dtype: torch.dtype
) -> None:
    left, right = draw(0, sum(SIZES), k, dtype=dtype), draw(1, sum(SIZES), p, dtype=dtype)
    whole = outer_sums(left, right, SIZES)
    exact = (left.double().unsqueeze(2) * right.double().unsqueeze(1)).flatten(1)
    start = 0
    for party, size in enumerate(SIZES):
        own = slice(start, start + size)
        alone = outer_sums(left[own], right[own], (size,))
        assert torch.equal(alone[0], whole[party])
        tolerance = size * 2e-5 if dtype is torch.float32 else 1e-11
        torch.testing.assert_close(alone[0, : k * p], exact[own].sum(0), rtol=0, atol=tolerance)
        torch.testing.assert_close(alone[0, k * p :], left[own].double().sum(0), rtol=0, atol=1e-12)
        start += size


def test_outer_sums_are_those_of_an_accelerator_up_to_rounding() -> None:
    left, right = (draw(seed, sum(SIZES), 4, dtype=torch.float64) for seed in (0, 1))
    segments = Segments(offsets=torch.tensor([0, *np.cumsum(SIZES).tolist()]))
    there = torch.cat([segments.outer_sums(left, right), segments.sums(left)], dim=1)
    torch.testing.assert_close(outer_sums(left, right, SIZES), there, rtol=0, atol=1e-11)


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize(("k", "positions", "p"), [(1, 1, 1), (1, 30, 7), (5, 3, 16), (16, 49, 70)])
def test_patch_products_of_a_record_follow_from_it_alone(
    k: int, positions: int, p: int, dtype: torch.dtype
) -> None:
    errors, records = draw(0, 9, k, positions, dtype=dtype), draw(1, 9, 40, dtype=dtype)
    indices = torch.from_numpy(np.random.default_rng(2).integers(0, 40, (positions, p)))
    whole = patch_products(errors, records, indices)
    exact = errors.double() @ records.double()[:, indices]
    tolerance = 1e-4 if dtype is torch.float32 else 1e-12
    torch.testing.assert_close(whole.double(), exact, rtol=0, atol=tolerance)
    turned = errors.transpose(1, 2).contiguous().transpose(1, 2)
    assert torch.equal(patch_products(turned, records, indices), whole)
    for first, last in ((1, 9), (0, 8), (5, 6), (9, 9)):
        part = patch_products(errors[first:last], records[first:last], indices)
        assert torch.equal(part, whole[first:last])


def test_patch_products_read_no_errors_of_other_records() -> None:
    """A hook that crops what a convolution returns: compiled code read on behind every record."""
    errors, records = torch.ones(2, 3, 4), torch.ones(2, 36)
    with pytest.raises(RuntimeError, match="one number per record and position"):
        patch_products(errors, records, torch.zeros(16, 9, dtype=torch.int64))
    with pytest.raises(RuntimeError, match="one number per record and position"):
        patch_products(errors[:1], records, torch.zeros(4, 9, dtype=torch.int64))


@pytest.mark.parametrize("activation", ["relu", "sigmoid", "tanh"])
@pytest.mark.parametrize("widths", [(30, 16, 1), (784, 20, 1), (50, 128, 10, 1)])
def test_gradients_at_a_kink_do_not_depend_on_the_place_of_their_record(
    widths: tuple[int, ...], activation: str
) -> None:
    """Of a hinge so narrow that the last digit of a score decides, and of ReLU."""
    model, loss = MlpModel(widths=widths, activation=activation), HuberHinge(smoothing=1e-8)
    theta = draw(0, model.dimension, dtype=torch.float32) / 8
    X, y = draw(1, 401, model.features, dtype=torch.float32), torch.ones(401)

    def of(first: int, last: int) -> list[Tensor]:
        batch = RecordBatch(features=X[first:last], labels=y[first:last])
        factors = model.gradient_factors(theta, batch, loss)
        return [part for factor in factors for part in (factor.squares(), factor.rows())]

    whole = of(0, 401)
    for first, last in ((1, 401), (0, 400), (2, 386), (7, 8)):
        for part, of_all in zip(of(first, last), whole, strict=True):
            assert torch.equal(part, of_all[first:last])
