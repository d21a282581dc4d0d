"""The joint minimiser where records join and leave, measured against its bound."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.learning.losses import HuberHinge, Squared
from tests.federation.worlds import build, linear_task, party_data, streams


def joint_minimiser(positive: int, *, adjacency: str) -> tuple[float, float]:
    """What a joint fit finds on records x = 1, y = 1, of which 60 are declared; and its noise."""
    task = linear_task((40, 20), 1, loss=HuberHinge(smoothing=0.5), regulariser=4.0)
    first = 2 * positive // 3  # neither party has more than twice what it declares
    data = party_data(np.ones((positive, 1)), np.ones(positive), (first, positive - first))
    strategy: Any = build("output-perturbation", task, fit="joint", adjacency=adjacency)
    found: list[float] = []

    def ended(theta: np.ndarray) -> np.ndarray:
        found.append(float(theta[0]))
        return theta

    strategy._end = ended
    world = VectorizedFederation(data, task=task, sampling=streams(0, "p"))
    while (query := strategy.ask()) is not None:
        strategy.learn(world.sum(query))
    return found[0], strategy.plan.mechanisms[0].sensitivity


@pytest.mark.parametrize("records", [60, 41, 119])
def test_a_joint_minimiser_moves_by_all_of_its_bound_where_a_record_joins(records: int) -> None:
    """On the straight part of a hinge θ = n/(Nλ): N is declared, and n does not show in the noise.

    So it is up to twice the declared number of records, for which the solver is certified.
    """
    here, noise = joint_minimiser(records, adjacency="add-remove")
    there, same = joint_minimiser(records + 1, adjacency="add-remove")
    assert here == pytest.approx(records / (60 * 4.0), abs=1e-5)
    assert noise == same
    assert 0.97 * noise <= abs(there - here) <= noise
    assert noise < 0.52 * joint_minimiser(60, adjacency="replace-one")[1]


def ridge(x: float, y: float, records: float, *, more: tuple[float, float] | None) -> float:
    """The minimiser of (1/N)Σ(θx − y)²/2 + (λ/2)θ², N = 60, of so many copies; by its formula."""
    xy, xx = records * x * y, records * x * x
    if more is not None:
        xy, xx = xy + more[0] * more[1], xx + more[0] ** 2
    return xy / (xx + 60 * RIDGE)


RIDGE = 25.0


def test_no_record_that_joins_moves_least_squares_by_more_than_its_bound() -> None:
    """By brute force, up to twice the declared records; half of the bound is exceeded."""
    loss = Squared(radius=(2 / RIDGE) ** 0.5, label_bound=1.0)
    task = linear_task((40, 20), 1, loss=loss, regulariser=RIDGE)
    plan: Any = build("output-perturbation", task, fit="joint", adjacency="add-remove").plan
    bound, worst = plan.mechanisms[0].sensitivity, 0.0
    grid = np.linspace(0.02, 1.0, 50)
    for records in (0, 1, 59, 60, 118, 119):
        for x in grid:
            for other in (-1.0, 1.0):
                for label in (-1.0, 1.0):
                    here = ridge(x, 1.0, records, more=None)
                    there = ridge(x, 1.0, records, more=(other, label))
                    worst = max(worst, abs(here - there))
    assert worst <= bound < 2 * worst
