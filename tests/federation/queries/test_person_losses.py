"""What a person can do to a sum of losses, by brute force: the scores that adaptive descent has."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.federation.party import losses
from fedpriv.federation.party.counting import PersonTotals, party_sums
from fedpriv.federation.party.guard import Policy, check_query
from fedpriv.federation.queries.kinds import LossQuery
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import PureEvent
from fedpriv.privacy.unit import Unit
from fedpriv.secagg import FixedPoint
from fedpriv.strategies.adaptive_gradient import AdaptiveGradient
from tests.federation.queries.person_scenes import (
    PARTIES,
    WIDTH,
    Visit,
    data,
    homes,
    linear_task,
    neighbours,
    visits,
)
from tests.federation.worlds import build, streams, train

if TYPE_CHECKING:
    from fedpriv.federation.task import Task

ONE, TWO = Adjacency.REPLACE_ONE, Adjacency.ADD_REMOVE
CLIP, STEP = 0.6, 2.0**-12
POINTS = np.array([np.zeros(WIDTH), np.full(WIDTH, -3.0), np.full(WIDTH, 3.0), [1.0, -2.0, 0.5]])


def make_query(adjacency: Adjacency, **changes: Any) -> LossQuery:
    event = PureEvent(adjacency=adjacency, unit=Unit.PERSON, epsilon=0.1)
    query = LossQuery(
        run="r", round=0, grid=FixedPoint(step=STEP), event=event, points=POINTS, clip=CLIP
    )
    return replace(query, **changes)


def scores(rows: list[Visit], task: Task, query: LossQuery) -> np.ndarray:
    federation = VectorizedFederation(data(rows), task=task, sampling=streams(0, "s"), workers=1)
    return federation.sum(query).value


def moves(task: Task, adjacency: Adjacency, *, parties: int) -> np.ndarray:
    """By how much each neighbour's scores are less, or more."""
    rows = [row for row in visits() if homes(visits(), row[0]) <= parties]
    query = make_query(adjacency)
    whole = scores(rows, task, query)
    return np.array(
        [whole - scores(other, task, query) for other in neighbours(rows, adjacency, parties)]
    )


@pytest.mark.parametrize("adjacency", [ONE, TWO])
@pytest.mark.parametrize("parties", [1, 2])
def test_no_person_moves_a_score_by_more_than_the_clip_at_each_party(
    parties: int, adjacency: Adjacency
) -> None:
    moved = moves(linear_task(parties), adjacency, parties=parties)
    assert np.abs(moved).max() <= parties * CLIP
    assert np.abs(moved).max() > 0.9 * parties * CLIP
    if adjacency is TWO:  # who leaves takes something from all scores, or nothing
        assert moved.min() >= 0


def test_losses_that_are_clipped_one_by_one_and_a_person_at_two_parties_are_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = linear_task(1)
    assert np.abs(moves(task, TWO, parties=2)).max() > 1.8 * CLIP
    monkeypatch.setattr(
        PersonTotals,
        "sums",
        lambda self, most: party_sums(self._totals, self._parties),
    )
    roomy = replace(task, sizes=(60,) * PARTIES)  # for such sums
    assert np.abs(moves(roomy, TWO, parties=1)).max() > 2 * CLIP


def test_a_score_is_the_sum_of_the_persons_clipped_losses() -> None:
    rows, expected = visits(), np.zeros(len(POINTS))
    for who, party in {(row[0], row[1]) for row in rows}:
        own = [row for row in rows if row[:2] == (who, party)]
        margins = np.array([row[3] * (POINTS @ np.array(row[2])) for row in own])
        expected += np.minimum(CLIP, np.log1p(np.exp(-margins)).sum(axis=0))
    found = scores(rows, linear_task(4), make_query(TWO))
    np.testing.assert_allclose(found, expected, atol=len(rows) * STEP)
    # In parts of one record each, too: whoever has several is still one.
    check_query(make_query(TWO), linear_task(4), Policy())


def test_losses_of_a_person_are_added_across_parts_of_a_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = scores(visits(), linear_task(4), make_query(TWO))
    monkeypatch.setattr(losses, "_NUMBERS", 3)
    np.testing.assert_array_equal(scores(visits(), linear_task(4), make_query(TWO)), whole)


def test_many_points_take_no_more_memory_than_a_few_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server may ask at as many as fit a message: millions, each with a number a person."""
    whole, sizes = scores(visits(), linear_task(4), make_query(TWO)), []
    made = PersonTotals.__init__

    def watched(self: PersonTotals, persons: Any, width: int) -> None:
        sizes.append(width * len(persons))
        made(self, persons, width)

    monkeypatch.setattr(PersonTotals, "__init__", watched)
    monkeypatch.setattr(losses, "_TOTALS", most := 2 * len(visits()))
    np.testing.assert_array_equal(scores(visits(), linear_task(4), make_query(TWO)), whole)
    many = make_query(TWO, points=np.tile(POINTS, (50, 1)))
    np.testing.assert_array_equal(scores(visits(), linear_task(4), many), np.tile(whole, 50))
    assert max(sizes) <= 2 * most


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_adaptive_descent_selects_with_noise_for_all_parties_of_a_person(adjacency: str) -> None:
    task = linear_task(2)
    strategy = build("agd", task, adjacency=adjacency, unit="person", splits=4, loss_clip=CLIP)
    assert isinstance(strategy, AdaptiveGradient)
    assert strategy.plan is not None
    assert strategy.plan.unit is Unit.PERSON
    chooser, gradient = strategy._chooser(), strategy._gradient(1.0)
    assert chooser is not None
    assert gradient is not None
    assert chooser.sensitivity == 2 * CLIP
    assert chooser.monotone is (adjacency == "add-remove")
    reach = 2 * Adjacency(adjacency).sum_sensitivity * 3.0
    assert reach <= gradient.sensitivity <= 1.02 * reach
    federation = VectorizedFederation(
        data(visits()), task=task, sampling=streams(0, "s"), workers=1
    )
    train(strategy, federation)
    assert np.isfinite(strategy.theta).all()
    released = [strategy.plan.event(index) for index in range(len(strategy.plan.made))]
    assert {event.unit for event in released} == {Unit.PERSON}
