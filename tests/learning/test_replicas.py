"""Replicas: no two computations hold the same copy, and the original is left as it was."""

from __future__ import annotations

import pickle
from copy import deepcopy
from threading import Barrier, Thread
from typing import TypeVar

import numpy as np
import pytest
import torch
from torch import nn

from fedpriv.learning.network import NetworkModel
from fedpriv.learning.replicas import Replicas

Anything = TypeVar("Anything")


def sent(value: Anything) -> Anything:
    """As it arrives in another process."""
    arrived: Anything = pickle.loads(pickle.dumps(value))  # noqa: S301 - our own bytes
    return arrived


def test_each_computation_has_a_copy_to_itself_that_nobody_used_before() -> None:
    original = [0]
    replicas = Replicas(original)
    with replicas.one() as first, replicas.one() as second:
        first.append(1)
        assert second == [0]
    with replicas.one() as later:
        assert later == [0]
    assert original == [0]


def test_threads_never_hold_the_same_copy() -> None:
    replicas, together = Replicas([0]), Barrier(4)
    held: list[int] = []

    def hold() -> None:
        with replicas.one() as mine:
            held.append(id(mine))
            together.wait(10)

    threads = [Thread(target=hold) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(held)) == 4


def test_a_copy_whose_computation_failed_is_dropped() -> None:
    replicas = Replicas([0])

    def fail() -> None:
        with replicas.one() as spoilt:
            spoilt.append(1)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    with replicas.one() as fresh:
        assert fresh == [0]


def test_copies_of_replicas_begin_from_the_original() -> None:
    replicas = Replicas([0])
    with replicas.one() as mine:
        mine.append(1)
    for copy in (deepcopy(replicas), sent(replicas)):
        with copy.one() as fresh:
            assert fresh == [0]


def test_a_network_computes_in_copies_only() -> None:
    """After a failure, too: neither hooks nor parameters of a call are left behind."""
    module = nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 1))
    model = NetworkModel(module=module, input_shape=(3,))
    before = model.weights
    theta = model.initial(np.random.default_rng(0))
    features = torch.ones(2, 3, dtype=torch.float64)
    expected = model.scores(theta, features)
    with pytest.raises(ValueError, match="3 columns"):
        model.scores(theta, torch.ones(2, 4, dtype=torch.float64))
    assert torch.equal(model.scores(theta, features), expected)
    assert torch.equal(model.weights, before)
    assert not any(layer._forward_hooks for layer in model.module.modules())
    for copy in (deepcopy(model), sent(model)):
        assert torch.equal(copy.scores(theta, features), expected)
