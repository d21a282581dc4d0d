"""The private median against its exact probabilities."""

from __future__ import annotations

from itertools import product
from math import nan
from typing import TYPE_CHECKING

import numpy as np
import pytest

from fedpriv.privacy.median import private_median
from fedpriv.privacy.randomness import RandomStream
from tests.statistical import assert_counts_follow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

GRID = [0.0, 1.0, 2.0, 3.0]


def _law(values: Sequence[float], epsilon: float) -> NDArray[np.float64]:
    """Written down from the definition."""
    scores = [-abs(sum(x < c for x in values) - sum(x > c for x in values)) for c in GRID]
    weights: NDArray[np.float64] = np.exp(epsilon * np.array(scores, dtype=np.float64) / 4)
    law: NDArray[np.float64] = weights / weights.sum()
    return law


def test_the_median_is_drawn_by_the_exponential_mechanism() -> None:
    """False failure 1e-9; the law of twice the ε is caught."""
    values, stream = [0.0, 1.0, 1.0, 2.5, 3.0, 7.0], RandomStream.seeded(3, "median")
    drawn = [
        private_median(values, candidates=GRID, epsilon=1.5, stream=stream) for _ in range(4000)
    ]
    counts = np.array([drawn.count(c) for c in GRID])
    assert_counts_follow(counts, _law(values, 1.5))
    with pytest.raises(AssertionError, match="outside"):
        assert_counts_follow(counts, _law(values, 3.0))


def test_no_replaced_value_moves_a_probability_by_more_than_epsilon() -> None:
    """All data sets of three values, and all their neighbours: the bound holds, and is needed."""
    epsilon, worst, everything = 1.0, 0.0, [-1.0, 0.0, 0.5, 1.0, 2.0, 4.0]
    for values in product(everything, repeat=3):
        for replaced in everything:
            ratio = np.log(_law(values, epsilon) / _law((replaced, *values[1:]), epsilon))
            worst = max(worst, float(np.abs(ratio).max()))
    assert 0.4 * epsilon < worst <= epsilon


def test_what_is_no_list_of_numbers_is_refused() -> None:
    stream = RandomStream.seeded(0)
    for name, given in (("values", []), ("values", [nan]), ("candidates", [[1.0]])):
        arguments = {"values": [1.0], "candidates": [1.0], name: given}
        with pytest.raises(ValueError, match=name):
            private_median(
                arguments["values"], candidates=arguments["candidates"], epsilon=1.0, stream=stream
            )
