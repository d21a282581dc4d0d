from collections.abc import Callable
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.secagg.primitives import shamir
from fedpriv.secagg.primitives.shamir import LIMBS, PRIME
from tests.secagg.cohort import Dice
from tests.statistical import assert_counts_follow


def words(values: list[int]) -> Callable[[int], bytes]:
    """An entropy source that yields these field elements as 32-bit words."""
    stream = iter(values)
    return lambda count: b"".join(next(stream).to_bytes(4, "little") for _ in range(count // 4))


def oracle_share(coefficients: list[int], point: int) -> int:
    """The polynomial's value, in Python's big integers."""
    return int(sum(c * point**k for k, c in enumerate(coefficients)) % PRIME)


def oracle_secret(points: list[int], values: list[int]) -> int:
    """Lagrange interpolation at zero, in Python's big integers."""
    total = 0
    for j, (x, y) in enumerate(zip(points, values, strict=True)):
        others = points[:j] + points[j + 1 :]
        top, bottom = prod(-o for o in others), prod(x - o for o in others)
        total += y * top * pow(bottom, -1, PRIME)
    return total % PRIME


@given(st.data())
def test_shares_and_secrets_agree_with_big_integers(data: st.DataObject) -> None:
    threshold = data.draw(st.integers(1, 8))
    holders = sorted(data.draw(st.sets(st.integers(0, 65_535), min_size=threshold, max_size=12)))
    secrets = data.draw(st.lists(st.integers(0, 65_535), min_size=1, max_size=3))
    count = (threshold - 1) * len(secrets)
    random = data.draw(st.lists(st.integers(0, PRIME - 1), min_size=count, max_size=count))
    points = shamir.points(holders)
    shares = shamir.split(np.array(secrets), points, threshold, words(random))
    for s, secret in enumerate(secrets):
        coefficients = [secret, *random[s :: len(secrets)]]
        expected = [oracle_share(coefficients, point) for point in points.tolist()]
        assert shares[:, s].tolist() == expected
    chosen = data.draw(st.permutations(range(len(holders))))[:threshold]
    combined = shamir.combine(shamir.weights(points[chosen]), shares[chosen])
    assert combined.tolist() == secrets
    assert combined.tolist() == [
        oracle_secret(points[chosen].tolist(), shares[chosen, s].tolist())
        for s in range(len(secrets))
    ]


def test_the_largest_cohort_and_values_stay_exact() -> None:
    """All entries at their maximum: the products of floats must not round."""
    threshold = 2000
    points = shamir.points(range(65_536 - threshold, 65_536))
    secrets = np.full(2, 65_535)
    shares = shamir.split(secrets, points, threshold, words([PRIME - 1] * (threshold - 1) * 2))
    coefficients = [65_535] + [PRIME - 1] * (threshold - 1)
    for i in (0, 1, threshold - 1):
        point = int(points[i])
        horner = 0
        for c in reversed(coefficients):
            horner = (horner * point + c) % PRIME
        assert shares[i].tolist() == [horner, horner]
    assert shamir.combine(shamir.weights(points), shares).tolist() == secrets.tolist()


def test_weights_interpolate_anywhere_and_in_batches() -> None:
    generator = np.random.default_rng(0)
    points = np.stack([generator.choice(np.arange(1, PRIME), 5, replace=False) for _ in range(4)])
    at = np.array([[0], [7], [65_535], [12]])
    values = generator.integers(0, PRIME, size=(4, 5, 3))
    batched = shamir.combine(shamir.weights(points, at=at), values)
    for row, expected in enumerate(batched):
        shifted = [int(p - at[row, 0]) for p in points[row]]
        for s in range(3):
            assert oracle_secret(shifted, values[row, :, s].tolist()) == expected[s]


def test_too_few_shares_say_nothing() -> None:
    """Two of three shares of a one-limb secret: every secret explains them, with one polynomial."""
    points = shamir.points([0, 5])
    seen = shamir.split(np.array([4242]), shamir.points([0, 5, 9]), 3, Dice("secrecy"))[:2, 0]
    for secret in (0, 1, 4242, 65_535):
        with_secret = np.array([0, *points.tolist()])
        weights = shamir.weights(with_secret, at=10)
        share = int(shamir.combine(weights, np.array([[secret], *seen[:, None]]))[0])
        full = shamir.points([0, 5, 9])
        assert full[2] == 10
        combined = shamir.combine(shamir.weights(full), np.array([*seen, share])[:, None])
        assert combined.tolist() == [secret]


def test_coefficients_are_uniform() -> None:
    """The share at point 1 of a zero secret with threshold 2 is the coefficient: 16 equal bins.

    False failure below 1e-9.
    """
    count = 200_000
    shares = shamir.split(np.zeros(count, np.int64), shamir.points([0]), 2, Dice("uniform"))[0]
    bins = np.bincount(shares * 16 // PRIME, minlength=16)
    sizes = np.bincount(np.arange(PRIME) * 16 // PRIME, minlength=16)
    assert_counts_follow(bins, sizes / PRIME)
    assert shares.max() < PRIME


def test_the_one_biased_word_is_drawn_again() -> None:
    shares = shamir.split(
        np.array([1]), shamir.points([0]), 2, words([0xFFFF_FFFF, 0xFFFF_FFFF, 5])
    )
    assert shares.tolist() == [[6]]


@given(st.lists(st.lists(st.integers(0, PRIME - 1), min_size=LIMBS, max_size=LIMBS), max_size=5))
def test_packing_is_inverted_by_unpacking(rows: list[list[int]]) -> None:
    shares = np.array(rows, dtype=np.int64).reshape(-1, LIMBS)
    packed = shamir.pack(shares)
    assert all(len(row) == shamir.SHARE_BYTES for row in packed)
    unpacked = shamir.unpack(packed)
    assert (unpacked == shares).all()
    assert shamir.in_field(unpacked).all()


def test_a_share_beyond_the_field_is_recognised() -> None:
    good = shamir.pack(np.full((1, LIMBS), PRIME - 1))[0]
    low_bit = b"\x01" + good[1:]  # 65536 + 1
    assert shamir.in_field(shamir.unpack([good, low_bit])).tolist() == [True, False]


def test_a_secret_is_16_limbs_of_16_bits() -> None:
    secret = bytes(range(32))
    assert shamir.secret_bytes(shamir.limbs(secret)) == secret
    beyond = shamir.limbs(secret)
    beyond[3] = 65_536
    assert shamir.secret_bytes(beyond) is None


@pytest.mark.parametrize("threshold", [1, 2, 51])
def test_any_threshold_of_a_hundred_holders_suffices(threshold: int) -> None:
    secret = Dice("secret")(64)
    points = shamir.points(range(100))
    shares = shamir.split(shamir.limbs(secret), points, threshold, Dice("poly"))
    chosen = np.random.default_rng(threshold).permutation(100)[:threshold]
    combined = shamir.combine(shamir.weights(points[chosen]), shares[chosen])
    assert shamir.secret_bytes(combined) == secret
