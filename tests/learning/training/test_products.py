"""Compiled products are those of a plain loop, of any shape, and write nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedpriv.learning.training.kernels.products import ADDED, FRESH, add_products

RECORDS, WIDEST = 7, 71
WIDTHS = (1, 3, 4, 7, 8, 15, 16, 20, 31, 32, 33, 47, 63, 64, 70, WIDEST)


def world(number: Any, outputs: int) -> tuple[Any, Any, Any, Any]:
    """Factors, which of their rows, what they multiply, and which rows of that."""
    rng = np.random.default_rng(outputs)
    factors = rng.normal(size=(12, RECORDS + 2)).astype(number)
    left = rng.normal(size=(9, WIDEST + 3)).astype(number)
    return factors, rng.permutation(12)[:outputs], left, rng.integers(0, 9, RECORDS)


@pytest.mark.parametrize("number", [np.float32, np.float64])
@pytest.mark.parametrize("fresh", [FRESH, ADDED], ids=["written", "added"])
@pytest.mark.parametrize("outputs", [1, 2, 4, 5, 11])
def test_products_are_sums_over_the_rows(number: Any, fresh: np.bool_, outputs: int) -> None:
    factors, picked, left, rows = world(number, outputs)
    for width in WIDTHS:
        room = np.full((outputs + 1, WIDEST + 1), 0.5, number)
        add_products(factors, picked, left, rows, width, room[:outputs], fresh)
        exact = factors[picked, :RECORDS].astype(float) @ left[rows, :width]
        expected = exact + (0.0 if fresh else 0.5)
        tolerance = 50 * np.finfo(number).eps
        np.testing.assert_allclose(room[:outputs, :width], expected, rtol=0, atol=tolerance)
        assert (room[outputs] == 0.5).all()
        assert (room[:, width:] == 0.5).all()


def test_a_sum_has_the_same_bits_wherever_it_is() -> None:
    """In whatever row and column of a tile: no record depends on those beside it."""
    factors, picked, left, rows = world(np.float32, 11)
    whole = np.zeros((11, WIDEST), np.float32)
    add_products(factors, picked, left, rows, WIDEST, whole, FRESH)
    for first in range(9):
        for begin in range(0, WIDEST, 5):
            part = np.zeros((2, WIDEST - begin), np.float32)
            some = np.ascontiguousarray(left[:, begin:])
            add_products(factors, picked[first:], some, rows, WIDEST - begin, part, FRESH)
            np.testing.assert_array_equal(part, whole[first : first + 2, begin:])


def test_factors_may_be_transposed_and_there_may_be_no_row() -> None:
    factors, picked, left, rows = world(np.float64, 5)
    found, same = np.empty((5, 20)), np.empty((5, 20))
    add_products(factors, picked, left, rows, 20, found, FRESH)
    turned = np.ascontiguousarray(factors.T).T
    add_products(turned, picked, left, rows, 20, same, FRESH)
    np.testing.assert_array_equal(same, found)
    add_products(factors, picked, left, rows[:0], 20, same, FRESH)
    assert not same.any()
