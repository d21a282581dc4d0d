"""Decoding finds the wrong values, as trying all sets does, and none where there are too many."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.secagg.primitives.decoding import on_one_polynomial
from fedpriv.secagg.primitives.shamir import PRIME


def value(coefficients: list[int], point: int) -> int:
    """In Python's big integers."""
    return int(sum(c * point**k for k, c in enumerate(coefficients)) % PRIME)


def most_agreeing(points: list[int], values: list[int], threshold: int) -> set[int]:
    """By brute force: the largest set of values that lie on one polynomial."""
    found: set[int] = set()
    for chosen in combinations(range(len(points)), threshold):
        right = {
            i for i, x in enumerate(points) if _lagrange(points, values, chosen, x) == values[i]
        }
        found = max(found, right, key=len)
    return found


def _lagrange(points: list[int], values: list[int], chosen: tuple[int, ...], at: int) -> int:
    total = 0
    for j in chosen:
        top, bottom = 1, 1
        for other in chosen:
            if other != j:
                top, bottom = top * (at - points[other]), bottom * (points[j] - points[other])
        total += values[j] * top * pow(bottom, -1, PRIME)
    return total % PRIME


@given(st.data())
def test_wrong_values_are_found_as_by_brute_force(data: st.DataObject) -> None:
    threshold = data.draw(st.integers(1, 4))
    points = data.draw(
        st.lists(st.integers(1, PRIME - 1), min_size=threshold, max_size=9, unique=True)
    )
    element = st.integers(0, PRIME - 1)
    coefficients = data.draw(st.lists(element, min_size=threshold, max_size=threshold))
    values = [value(coefficients, point) for point in points]
    most = (len(points) - threshold) // 2
    for index in data.draw(st.sets(st.integers(0, len(points) - 1), max_size=most)):
        values[index] = data.draw(element)
    right = on_one_polynomial(np.array(points), np.array(values), threshold)
    assert right is not None
    assert set(np.flatnonzero(right).tolist()) == most_agreeing(points, values, threshold)


@pytest.mark.parametrize("count", [12, 60])
def test_values_of_no_polynomial_are_not_decoded(count: int) -> None:
    """A false failure has a probability below 2^-32: so many values would agree by chance."""
    values = np.random.default_rng(count).integers(0, PRIME, count)
    assert on_one_polynomial(np.arange(1, count + 1), values, count // 3) is None
