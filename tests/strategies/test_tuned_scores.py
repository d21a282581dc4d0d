"""The score of a trial: what it counts, and how far one record moves it."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import Any

import numpy as np
import pytest

from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.federation.queries.kinds import LossQuery
from fedpriv.federation.task import PersonBounds
from fedpriv.learning.losses import HuberRegression
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.planning.tuning.trials import score_noise
from fedpriv.privacy.unit import Unit
from fedpriv.strategies.common.trial_score import TrialScore
from tests.federation.worlds import linear_task, party_data, streams

ONE = Adjacency.REPLACE_ONE


X = np.array([[0.6], [-0.8], [1.0], [0.2], [-0.4]])
Y = np.array([1.0, -1.0, 1.0, -1.0, 1.0])


def scored(score: TrialScore, X: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> float:
    """The exact score of the model x ↦ 40x, on these records of one party."""
    federation = VectorizedFederation(
        party_data(X, y, (len(y),)), task=score.task, sampling=streams(0, "s")
    )
    noise = score_noise(
        0.5,
        score_share=0.1,
        sensitivity=score.sensitivity(ONE),
        adjacency=ONE,
        unit=Unit.RECORD,
    )
    query = score.query(np.array([40.0]), run="s", number=1, event=noise.event())
    answer = federation.sum(query)
    (steps,) = score.exact(answer)
    return float(steps * answer.step)


@pytest.mark.parametrize("adjacency", list(Adjacency), ids=lambda each: each.value)
@pytest.mark.parametrize("kind", ["accuracy", "loss"])
def test_one_record_moves_a_score_by_its_sensitivity_and_no_more(
    kind: Any, adjacency: Adjacency
) -> None:
    """Over all records of a small world; the bound is attained."""
    task = linear_task((5,), 1)
    score = TrialScore(task=task, kind=kind, clip=0.7)
    whole, moves = scored(score, X, Y), []
    for place in range(5):
        keep = np.arange(5) != place
        if adjacency is Adjacency.ADD_REMOVE:
            moves.append(abs(whole - scored(score, X[keep], Y[keep])))
            continue
        for x, y in ((1.0, 1.0), (1.0, -1.0), (-0.3, 1.0), (0.0, -1.0)):
            others, labels = X.copy(), Y.copy()
            others[place], labels[place] = x, y
            moves.append(abs(whole - scored(score, others, labels)))
    expected = {"accuracy": adjacency.sum_sensitivity, "loss": 0.7}[kind]
    assert score.sensitivity(adjacency) == expected
    assert expected - 2 * score.step <= max(moves) <= expected


def test_what_scores_count() -> None:
    score = TrialScore(task=linear_task((5,), 1), kind="accuracy")
    assert scored(score, X, Y) == 1.0  # three are right, two are wrong
    loss = TrialScore(task=linear_task((5,), 1), kind="loss", clip=1.0)
    exact = -np.minimum(np.log1p(np.exp(-40 * X[:, 0] * Y)), 1.0).sum()
    assert scored(loss, X, Y) == pytest.approx(exact, abs=6 * loss.step)


def test_persons_and_numbers_are_scored_by_their_loss() -> None:
    persons = replace(
        linear_task((40,), 1), in_place=False, persons=PersonBounds(records=3, parties=2)
    )
    assert TrialScore.usual(persons) == "loss"
    score = TrialScore(task=persons, kind="loss", clip=0.5)
    assert {score.sensitivity(adjacency) for adjacency in Adjacency} == {1.0}
    query = score.query(np.zeros(1), run="s", number=0, event=_event())
    assert isinstance(query, LossQuery)
    numbers = linear_task((40,), 1, loss=HuberRegression(threshold=0.5))
    assert TrialScore.usual(numbers) == "loss"
    for task in (persons, numbers):
        with pytest.raises(ValueError, match=r"tuning\.score must be 'loss'"):
            TrialScore(task=task, kind="accuracy")


def _event() -> Any:
    noise = score_noise(1.0, score_share=0.1, sensitivity=1.0, adjacency=ONE, unit=Unit.PERSON)
    assert noise.stddev == pytest.approx(sqrt(10))
    return noise.event()
