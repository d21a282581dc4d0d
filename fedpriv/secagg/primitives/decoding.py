"""Reed-Solomon decoding over GF(65537): the shares that lie on one polynomial, others being wrong.

The values of a polynomial of degree below t at n points are a code word. If at most (n - t)/2 of
them are wrong, exactly one polynomial passes through all others, and Gao's algorithm finds it (Gao
2003, "A new algorithm for decoding Reed-Solomon codes"): the Euclidean algorithm on Π(x - x_i) and
the polynomial through all values, stopped halfway. It takes O(n²) steps, however many are wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedpriv.secagg.primitives.shamir import PRIME, inverse

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Polynomial = NDArray[np.int64]  # coefficients, the constant one first, no zero at the end


def on_one_polynomial(
    points: NDArray[np.int64], values: NDArray[np.int64], threshold: int
) -> NDArray[np.bool_] | None:
    """Which values belong to the one polynomial of degree < ``threshold``; None if there is none.

    Args:
        points: Of shape (n,): distinct.
        values: Field elements of shape (n,), at most (n - threshold)/2 of them wrong.
        threshold: t.
    """
    before, rest = _vanishing(points), _through(points, values)
    last, factor = np.zeros(0, np.int64), np.ones(1, np.int64)
    while 2 * (rest.size - 1) >= points.size + threshold:
        quotient, remainder = _divided(before, rest)
        before, rest = rest, remainder
        last, factor = factor, _difference(last, _times(quotient, factor))
    found, remainder = _divided(rest, factor)
    if remainder.size or found.size > threshold:
        return None
    return np.asarray(_at(found, points) == values)


def _vanishing(points: NDArray[np.int64]) -> Polynomial:
    """Π(x - x_i)."""
    product = np.ones(1, np.int64)
    for point in points:
        product = _by_root(product, point)
    return product


def _through(points: NDArray[np.int64], values: NDArray[np.int64]) -> Polynomial:
    """The polynomial through all values, by Newton's divided differences."""
    steps = values.copy()
    for k in range(1, points.size):
        gaps = inverse((points[k:] - points[:-k]) % PRIME)
        steps[k:] = (steps[k:] - steps[k - 1 : -1]) % PRIME * gaps % PRIME
    found = steps[-1:]
    for step, point in zip(steps[-2::-1], points[-2::-1], strict=True):
        found = _by_root(found, point)
        found[0] = (found[0] + step) % PRIME
    return _trimmed(found)


def _by_root(polynomial: Polynomial, root: np.int64) -> Polynomial:
    """Times (x - root)."""
    product = np.concatenate([[0], polynomial])
    product[:-1] = (product[:-1] - polynomial * root) % PRIME
    return product


def _divided(dividend: Polynomial, divisor: Polynomial) -> tuple[Polynomial, Polynomial]:
    """Quotient and remainder."""
    rest, size = dividend.copy(), divisor.size
    leading = inverse(divisor[-1:])[0]
    quotient = np.zeros(max(0, rest.size - size + 1), np.int64)
    for at in range(quotient.size - 1, -1, -1):
        quotient[at] = rest[at + size - 1] * leading % PRIME
        rest[at : at + size] = (rest[at : at + size] - quotient[at] * divisor) % PRIME
    return quotient, _trimmed(rest)


def _times(one: Polynomial, other: Polynomial) -> Polynomial:
    product = np.zeros(one.size + other.size, np.int64)
    for at, coefficient in enumerate(one):
        place = slice(at, at + other.size)
        product[place] = (product[place] + coefficient * other) % PRIME
    return _trimmed(product)


def _difference(one: Polynomial, other: Polynomial) -> Polynomial:
    difference = np.zeros(max(one.size, other.size), np.int64)
    difference[: one.size] = one
    difference[: other.size] = (difference[: other.size] - other) % PRIME
    return _trimmed(difference)


def _at(polynomial: Polynomial, points: NDArray[np.int64]) -> NDArray[np.int64]:
    values = np.zeros_like(points)
    for coefficient in polynomial[::-1]:
        values = (values * points + coefficient) % PRIME
    return values


def _trimmed(polynomial: Polynomial) -> Polynomial:
    used = np.flatnonzero(polynomial)
    return polynomial[: used[-1] + 1] if used.size else polynomial[:0]
