"""Shuffles: the order in which a party goes through its records, from a key and its index.

A 64-bit key, the party's index among all parties and the epoch determine the order, and nothing
else: not the engine, not the chunk in which a party is computed, not how many others take part.
SplitMix64 (Steele, Lea and Flood 2014) turns them into numbers, Fisher and Yates' shuffle turns
these into an order; Lemire's rejection (2019, arXiv:1805.10941) makes all orders equally likely
for uniform numbers. Orders are no secret and protect nothing: a party's whole update is clipped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedpriv._compiled import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

KEYS = 1 << 64
"""Keys are the integers below this."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_HALF, _LOW = np.uint64(32), np.uint64(0xFFFFFFFF)


def checked_key(key: int) -> np.uint64:
    """The key for compiled code."""
    if type(key) is not int or not 0 <= key < KEYS:
        raise ValueError(f"key must be an integer from 0 to 2^64 - 1, got {key!r}.")
    return np.uint64(key)


@compiled()
def _mixed(z: np.uint64) -> np.uint64:
    """The output function of SplitMix64, a bijection of 64 bits."""
    z = (z ^ (z >> np.uint64(30))) * _FIRST
    z = (z ^ (z >> np.uint64(27))) * _SECOND
    return z ^ (z >> np.uint64(31))


@compiled()
def shuffle(key: np.uint64, party: int, epoch: int, order: NDArray[np.int64]) -> None:
    """Write a random order of 0 … n - 1, n < 2³², into ``order``."""
    state = _mixed(key + _GOLDEN)
    state = _mixed(state + np.uint64(party) * _GOLDEN)
    state = _mixed(state + np.uint64(epoch) * _GOLDEN)
    for i in range(len(order)):
        order[i] = i
    for i in range(len(order) - 1, 0, -1):
        bound = np.uint64(i + 1)
        state += _GOLDEN
        product = (_mixed(state) >> _HALF) * bound
        if product & _LOW < bound:
            least = (_LOW + np.uint64(1) - bound) % bound
            while product & _LOW < least:
                state += _GOLDEN
                product = (_mixed(state) >> _HALF) * bound
        j = np.int64(product >> _HALF)
        order[i], order[j] = order[j], order[i]


@compiled()
def batch_at(
    key: np.uint64, party: int, step: int, batch_size: int, order: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The records of a step, which are the next of ``order``; shuffled anew before an epoch.

    Args:
        key: The key of the round.
        party: The index of the party among all.
        step: Counted from 0; steps must be asked for one after another.
        batch_size: Records in a batch; 0 for all.
        order: (n,), n ≥ 1; kept by the caller between two steps.
    """
    size = batch_size if batch_size else len(order)
    batches = (len(order) + size - 1) // size
    if step % batches == 0:
        shuffle(key, party, step // batches, order)
    first = step % batches * size
    return order[first : min(first + size, len(order))]


@compiled()
def schedule(
    key: np.uint64,
    parties: NDArray[np.int64],
    starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    steps: NDArray[np.int64],
    batch_size: int,
    places: NDArray[np.int64],
) -> None:
    """Write which records every party uses in every step, (m, S, B); -1 where there is none.

    Args:
        key: The key of the round.
        parties: (m,), their indices among all.
        starts: (m,), the first record of every party.
        sizes: (m,), their numbers of records.
        steps: (m,), their numbers of steps, at most S.
        batch_size: Records in a batch; 0 for all of a party.
        places: Overwritten.
    """
    places[:] = -1
    for j in range(len(parties)):
        order = np.empty(sizes[j], np.int64)
        for step in range(steps[j]):
            batch = batch_at(key, parties[j], step, batch_size, order)
            for i in range(len(batch)):
                places[j, step, i] = starts[j] + batch[i]
