"""Hessians of parties: what they are, how far one record moves them, and who may ask for them."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv.data.dataset import Records
from fedpriv.federation.party.answered import digest_of
from fedpriv.federation.party.answers import Holdings
from fedpriv.federation.party.draws import Draws
from fedpriv.federation.party.guard import Policy, QueryRefused, check_query
from fedpriv.federation.party.stack import stack
from fedpriv.federation.queries.encoding import from_bytes, to_bytes
from fedpriv.federation.queries.hessian import hessian_sensitivity
from fedpriv.federation.queries.kinds import HessianQuery, RiskGradientQuery
from fedpriv.learning.losses import HuberHinge
from fedpriv.learning.moments import symmetric
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import ApproximateEvent
from fedpriv.secagg import FixedPoint
from tests.federation.worlds import linear_task

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedpriv.federation.task import Task

GRID = FixedPoint(step=2.0**-30, bits=64)
EVENT = ApproximateEvent(epsilon=1.0, delta=1e-6, adjacency=Adjacency.REPLACE_ONE)
THETA = np.array([1.0, -2.0, 0.5])
QUERY = HessianQuery(run="r", round=0, grid=GRID, event=EVENT, theta=THETA, exchange=3)
TASK = linear_task((40,), 3)


def answer(X: NDArray[Any], query: HessianQuery = QUERY) -> NDArray[np.float64]:
    records = Records(X=X.astype(np.float32), y=np.ones(len(X), np.float32))
    held = Holdings(TASK, stack(records, np.array([0, len(X)]), TASK), sizes=TASK.sizes)
    return np.asarray(held.answer(query, Draws()).vectors[0])


def test_the_answer_is_the_hessian_of_the_logistic_losses() -> None:
    """Against central differences of the sum of gradients."""
    rng = np.random.default_rng(2)
    X = rng.uniform(-0.5, 0.5, (40, 3)).astype(np.float32).astype(float)

    def gradient(theta: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(-(1 / (1 + np.exp(X @ theta))) @ X)

    steps = 1e-5 * np.eye(3)
    rows = [(gradient(THETA + h) - gradient(THETA - h)) / 2e-5 for h in steps]
    assert symmetric(answer(X)) == pytest.approx(np.array(rows), abs=1e-4)


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_no_record_moves_it_further_than_its_sensitivity_and_some_as_far(
    adjacency: Adjacency,
) -> None:
    rng = np.random.default_rng(4)
    base = rng.normal(size=(20, 3))
    base /= np.linalg.norm(base, axis=1, keepdims=True) * (1 + 2.0**-20)
    flat = np.array([2.0, 1.0, 0.0]) / sqrt(5)  # ⟂ θ: its weight is ¼; and one ⟂ to both
    other = np.cross(flat, THETA / np.linalg.norm(THETA))
    pool = [*base[:8], flat * (1 - 2.0**-22), other * (1 - 2.0**-22)]
    most = hessian_sensitivity(TASK, adjacency=adjacency, step=GRID.step)
    sums = [answer(np.vstack([base, x])) for x in pool]
    if adjacency is Adjacency.ADD_REMOVE:
        without = answer(base)
        found = [float(np.linalg.norm(each - without)) for each in sums]
    else:
        found = [float(np.linalg.norm(a - b)) for a, b in combinations(sums, 2)]
    assert 0.999 * most < max(found) <= most
    assert most == pytest.approx((0.25 if len(found) == len(pool) else sqrt(2) / 4), rel=1e-5)


def test_it_serves_the_release_of_the_fit_that_it_ends() -> None:
    fit = RiskGradientQuery(run="r", round=0, grid=GRID, event=EVENT, theta=THETA, exchange=2)
    assert digest_of(fit) == digest_of(QUERY)
    again = from_bytes(to_bytes(QUERY))
    assert isinstance(again, HessianQuery)
    assert to_bytes(again) == to_bytes(QUERY)


@pytest.mark.parametrize(
    ("task", "query", "reason"),
    [
        (replace(TASK, loss=HuberHinge(smoothing=0.5)), QUERY, "logistic weights"),
        (TASK, replace(QUERY, theta=np.zeros(2)), "theta must be finite with 3"),
        (
            TASK,
            replace(QUERY, event=replace(EVENT, adjacency=Adjacency.ADD_REMOVE)),
            "headroom must be at least 2",
        ),
    ],
)
def test_a_party_refuses_what_it_is_not_proved_for(
    task: Task, query: HessianQuery, reason: str
) -> None:
    check_query(QUERY, TASK, Policy())
    with pytest.raises(QueryRefused, match=reason):
        check_query(query, task, Policy())


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_rounding_to_the_grid_is_part_of_the_sensitivity(adjacency: Adjacency) -> None:
    """√d·step, d being the six numbers of a symmetric matrix of three rows."""
    fine, coarse = (
        hessian_sensitivity(TASK, adjacency=adjacency, step=step) for step in (2.0**-60, 2.0**-4)
    )
    assert coarse - fine == pytest.approx(sqrt(6) * 2.0**-4, rel=1e-9)
