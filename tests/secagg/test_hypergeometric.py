"""Tails of the hypergeometric law against exact fractions."""

from __future__ import annotations

from fractions import Fraction
from math import comb, inf, log

import numpy as np
import pytest

from fedpriv.secagg.hypergeometric import log_choose, log_tails


def exact_tail(x: int, *, population: int, marked: int, drawn: int) -> Fraction:
    ways = sum(
        comb(marked, j) * comb(population - marked, drawn - j)
        for j in range(x, min(drawn, marked) + 1)
    )
    return Fraction(ways, comb(population, drawn))


@pytest.mark.parametrize(
    ("population", "marked", "drawn"),
    [(128, 13, 24), (999, 100, 96), (999, 0, 10), (50, 50, 7), (50, 45, 20), (40_000, 4000, 60)],
)
def test_every_tail_is_the_exact_one_to_nine_digits(
    population: int, marked: int, drawn: int
) -> None:
    """Far beyond what an event of probability 2^-40 needs, and below what doubles could show."""
    tails = log_tails(population=population, marked=marked, drawn=drawn)
    assert tails.shape == (drawn + 2,)
    for x, tail in enumerate(tails):
        exact = exact_tail(x, population=population, marked=marked, drawn=drawn)
        if exact == 0:
            assert tail == -inf
        else:
            wanted = log(exact.numerator) - log(exact.denominator)
            assert tail == pytest.approx(wanted, abs=1e-9, rel=1e-9)


def test_many_numbers_of_marked_ones_give_the_rows_of_each() -> None:
    rows = log_tails(population=300, marked=np.array([3, 150, 299]), drawn=20)
    for row, marked in zip(rows, (3, 150, 299), strict=True):
        np.testing.assert_array_equal(row, log_tails(population=300, marked=marked, drawn=20))


def test_there_is_no_subset_larger_than_the_set() -> None:
    np.testing.assert_array_equal(log_choose([3, 3, 3], [-1, 4, 0]), [-inf, -inf, 0.0])
