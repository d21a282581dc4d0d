"""Intervals hold the truth as often as they say; those that ignore the noise do not.

A small form of `benchmarks.coverage`: d coefficients in each of 500 repetitions. Errors of
the coefficients of one repetition are correlated, so the mean coverage over them is held to the
bound for a single one: a binomial of 500 at 95 % has a standard deviation of 0.98 %, and leaves
95 ± 6 % with a probability below 1e-8 by its exact tail, in each of the tests below.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.stats import binom

from benchmarks.coverage import coverage
from fedpriv.privacy.adjacency import Adjacency

if TYPE_CHECKING:
    from benchmarks.coverage import Coverage, Kind

SPREAD = 0.06
CASES: list[tuple[Kind, int, float, Adjacency]] = [
    ("linear", 2_000, 1.0, Adjacency.ADD_REMOVE),
    ("linear", 10_000, 1.0, Adjacency.REPLACE_ONE),
    ("logistic", 2_000, 3.0, Adjacency.ADD_REMOVE),
    ("logistic", 10_000, 0.5, Adjacency.REPLACE_ONE),
]


def seen(
    kind: Kind, records: int, epsilon: float, adjacency: Adjacency, told: float = 1.0
) -> Coverage:
    return coverage(
        kind,
        records=records,
        dimension=4,
        epsilon=epsilon,
        design="clean",
        repetitions=500,
        rng=np.random.default_rng(11),
        adjacency=adjacency,
        told=told,
    )


def test_the_band_is_as_wide_as_stated() -> None:
    assert binom.sf(500 * (0.95 + SPREAD) - 1, 500, 0.95) == 0
    assert binom.cdf(500 * (0.95 - SPREAD), 500, 0.95) < 1e-7


@pytest.mark.parametrize(("kind", "records", "epsilon", "adjacency"), CASES)
def test_coverage_is_what_is_said(
    kind: Kind, records: int, epsilon: float, adjacency: Adjacency
) -> None:
    found = seen(kind, records, epsilon, adjacency)
    assert found.given >= 450
    assert abs(found.mean - 0.95) < SPREAD
    assert found.unaware < found.mean


def test_an_estimate_that_is_told_of_half_the_noise_covers_too_little() -> None:
    assert seen(*CASES[0], told=0.5).mean < 0.95 - SPREAD
    assert seen(*CASES[0]).unaware < 0.5
