"""Shares of noise against whoever counts them: together they are never less than was stated."""

from __future__ import annotations

from fractions import Fraction

import pytest

from fedpriv.privacy.mechanisms.shares import NoiseShare


@pytest.mark.parametrize("honest", [1, 2, 3, 5, 6, 7, 10, 11, 41, 47, 49, 90, 97, 103])
def test_polya_shares_of_the_honest_parties_are_at_least_one_discrete_laplace(honest: int) -> None:
    """Exactly: a sum of shape below 1, by however little, would not be pure at the stated ε.

    A shape above 1 is one discrete Laplace draw and independent noise more: post-processing.
    """
    share = NoiseShare(law="polya", parameter=3.0, minimum=honest + 2, colluders=2)
    shape = getattr(share.sampler(1), "shape")  # noqa: B009  # of all laws only this one has it
    assert 1 <= honest * Fraction(shape) < 1 + Fraction(1, 2**50)
