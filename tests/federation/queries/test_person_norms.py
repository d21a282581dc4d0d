"""Learned protection for persons: what one can do to a sum of gradients, and to its norm."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.privacy.accountants import account
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.unit import Unit
from fedpriv.strategies.learned_protection import LearnedProtection
from tests.federation.queries.person_scenes import (
    Visit,
    data,
    homes,
    linear_task,
    neighbours,
    visits,
)
from tests.federation.worlds import build, streams, train

if TYPE_CHECKING:
    from fedpriv.federation.federation import Sum

CLIP = 0.1
ONE, TWO = Adjacency.REPLACE_ONE, Adjacency.ADD_REMOVE


def learned(parties: int, adjacency: Adjacency, **options: Any) -> LearnedProtection:
    strategy = build(
        "learned-protection",
        linear_task(parties, size=4),
        adjacency=adjacency.value,
        unit="person",
        clip=CLIP,
        **options,
    )
    assert isinstance(strategy, LearnedProtection)
    return strategy


def answer_of(rows: list[Visit], strategy: LearnedProtection) -> Sum:
    task = strategy.task
    world = VectorizedFederation(data(rows), task=task, sampling=streams(0, "s"), workers=1)
    query = strategy.ask()
    assert query is not None
    return world.sum(query)


def norm_of(strategy: LearnedProtection, answer: Sum) -> float:
    """The norm as it is released, with noise that rounds to zero."""
    assert strategy._noises is not None
    silent = replace(strategy._noises.norm, stddev=1e-6 * answer.step)
    release = strategy._draw_norm(silent, answer, streams(0, "n")(0))
    return float(release[0]) * CLIP * sum(answer.sizes)


@pytest.mark.parametrize("adjacency", [ONE, TWO])
@pytest.mark.parametrize("parties", [1, 2, 4])
def test_no_person_moves_a_norm_or_a_sum_further_than_its_noise_is_for(
    parties: int, adjacency: Adjacency
) -> None:
    """By brute force, at as many parties as are declared; and the bounds are not loose."""
    strategy = learned(parties, adjacency)
    noises = strategy._noises
    assert noises is not None
    rows = [row for row in visits() if homes(visits(), row[0]) <= parties]
    # All along one direction, so that a norm moves by all that its sum does.
    aligned = [(who, home, visits()[-1][2], 1.0) for who, home, _, _ in rows]
    farthest = {"sum": 0.0, "norm": 0.0}
    for scene in (rows, aligned):
        whole = answer_of(scene, strategy)
        for other in neighbours(scene, adjacency, parties):
            changed = answer_of(other, strategy)
            moved = float(np.linalg.norm(whole.value - changed.value))
            length = abs(norm_of(strategy, whole) - norm_of(strategy, changed))
            farthest["sum"] = max(farthest["sum"], moved / noises.reference.sensitivity)
            farthest["norm"] = max(farthest["norm"], length / noises.norm.sensitivity)
    assert max(farthest.values()) <= 1
    if adjacency is TWO:
        assert min(farthest.values()) > 0.98  # for one party less it would be seen
    else:
        assert farthest["sum"] > 0.4  # another person at the same parties, but for p others


@pytest.mark.parametrize("adjacency", [ONE, TWO])
def test_every_release_is_charged_to_the_person(adjacency: Adjacency) -> None:
    strategy = learned(2, adjacency, horizon=5)
    task = strategy.task
    world = VectorizedFederation(data(visits()), task=task, sampling=streams(0, "s"), workers=1)
    plan = train(strategy, world).plan
    assert plan is not None
    events = [plan.event(index) for index in range(plan.rounds)]
    assert len(events) > 2
    assert {event.unit for event in events} == {Unit.PERSON}
    spent = account(plan.releases, delta=1e-6).epsilon
    assert spent is not None
    assert spent <= 1.0 + 1e-9
    assert spent == pytest.approx(1.0, rel=0.05)
    assert np.isfinite(strategy.theta).all()


@pytest.mark.parametrize("adjacency", [ONE, TWO])
def test_noise_is_for_all_parties_that_a_person_may_be_at(adjacency: Adjacency) -> None:
    moved = {}
    for parties in (1, 2, 4):
        noises = learned(parties, adjacency)._noises
        assert noises is not None
        moved[parties] = (noises.reference.sensitivity, noises.norm.sensitivity)
    for parties, found in moved.items():
        reach = parties * adjacency.sum_sensitivity * CLIP
        for sensitivity in found:
            assert reach < sensitivity < 1.01 * reach
