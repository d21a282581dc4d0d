"""Orders of records: permutations, fresh in every epoch, all equally likely, the same anywhere."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from fedpriv.learning.training.kernels.orders import batch_at, checked_key, schedule
from tests.learning.training.reference import order_of
from tests.statistical import assert_counts_follow

KEY = 0xFEDCBA9876543210


@pytest.mark.parametrize("records", [0, 1, 2, 3, 10, 257])
def test_an_order_is_a_permutation(records: int) -> None:
    assert sorted(order_of(KEY, 3, 1, records)) == list(range(records))


def test_orders_differ_between_epochs_parties_and_keys() -> None:
    orders = [
        tuple(order_of(key, party, epoch, 40))
        for key in (KEY, KEY + 1, 0)
        for party in (0, 1, 2)
        for epoch in (0, 1, 2)
    ]
    assert len(set(orders)) == len(orders)


def _mixed(z: int) -> int:
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
    return z ^ z >> 31


def _plain_order(key: int, party: int, epoch: int, records: int) -> list[int]:
    """The definition, in Python's integers."""
    golden, state = 0x9E3779B97F4A7C15, key
    for part in (1, party, epoch):
        state = _mixed((state + part * golden) % 2**64)
    order = list(range(records))
    for i in range(records - 1, 0, -1):
        while True:
            state = (state + golden) % 2**64
            product = (_mixed(state) >> 32) * (i + 1)
            if product % 2**32 >= 2**32 % (i + 1):
                break
        j = product >> 32
        order[i], order[j] = order[j], order[i]
    return order


def test_an_order_is_the_same_on_every_machine() -> None:
    """A deployed party must shuffle as its simulation does."""
    for key, party, epoch, records in ((1, 0, 0, 10), (KEY, 5, 2, 33), (2**64 - 1, 65_535, 9, 4)):
        assert order_of(key, party, epoch, records).tolist() == _plain_order(
            key, party, epoch, records
        )
    assert order_of(1, 0, 0, 10).tolist() == [1, 0, 5, 7, 4, 8, 6, 2, 9, 3]


def _counts(orders: list[tuple[int, ...]]) -> np.ndarray:
    number = {order: place for place, order in enumerate(permutations(range(4)))}
    counts = np.zeros(len(number), np.int64)
    for order in orders:
        counts[number[order]] += 1
    return counts


UNIFORM = np.full(24, 1 / 24)


@pytest.mark.parametrize("varied", ["party", "epoch", "key"])
def test_all_orders_are_equally_likely(varied: str) -> None:
    """A right shuffle fails with probability 1e-9 per test."""
    orders = []
    for i in range(24_000):
        key, party, epoch = (i if varied == name else 0 for name in ("key", "party", "epoch"))
        orders.append(tuple(order_of(key, party, epoch, 4).tolist()))
    assert_counts_follow(_counts(orders), UNIFORM)


def test_the_check_of_orders_has_teeth() -> None:
    """Swapping with any place, not only those before, is a known mistake: off by up to a half."""
    rng, orders = np.random.default_rng(3), []
    for _ in range(24_000):
        order = list(range(4))
        for i in range(4):
            j = int(rng.integers(4))
            order[i], order[j] = order[j], order[i]
        orders.append(tuple(order))
    with pytest.raises(AssertionError, match="outside"):
        assert_counts_follow(_counts(orders), UNIFORM)


@pytest.mark.parametrize("batch_size", [0, 1, 3, 7, 50])
def test_batches_make_up_the_order_of_each_epoch(batch_size: int) -> None:
    order, records = np.empty(7, np.int64), 7
    size = batch_size or records
    batches = -(-records // size)
    for epoch in range(3):
        seen: list[int] = []
        for batch in range(batches):
            step = epoch * batches + batch
            found = batch_at(np.uint64(KEY), 4, step, batch_size, order)
            assert len(found) == min(size, records - batch * size)
            seen += found.tolist()
        assert seen == order_of(KEY, 4, epoch, records).tolist()


def test_a_schedule_has_the_batches_of_every_party() -> None:
    parties, starts, sizes = np.array([8, 2]), np.array([5, 0]), np.array([4, 3])
    places = np.empty((2, 4, 3), np.int64)
    schedule(np.uint64(KEY), parties, starts, sizes, np.array([4, 1]), 3, places)
    first, second = order_of(KEY, 8, 0, 4) + 5, order_of(KEY, 8, 1, 4) + 5
    whole = [*first[:3], first[3], -1, -1, *second[:3], second[3], -1, -1]
    assert places[0].flatten().tolist() == whole
    assert places[1].flatten().tolist() == [*order_of(KEY, 2, 0, 3), *[-1] * 9]


@pytest.mark.parametrize("key", [-1, 2**64, 1.0, True])
def test_a_key_has_64_bits(key: int) -> None:
    with pytest.raises(ValueError, match="key must be"):
        checked_key(key)
