"""The budget of learned protection: no scheduler, however wild, spends more."""

from __future__ import annotations

from itertools import cycle
from math import inf, nan
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedpriv.learning.protector import LEAST_NOISE, MOST_NOISE, Protector
from fedpriv.privacy.accountants import account
from fedpriv.privacy.mechanisms import GaussianMechanism
from tests.federation.worlds import train
from tests.strategies.learned import federation, learned, mechanisms_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedpriv.learning.protector import State
    from fedpriv.strategies.learned_protection import LearnedProtection


class Says:
    """A chooser that answers what it is told to, whatever it sees."""

    def __init__(self, noises: Sequence[float], step: float = 0.1) -> None:
        self._noises, self._step = cycle(noises), step

    def start(self, dimension: int) -> State:
        return Protector().start(dimension)

    def schedule(self, norm: torch.Tensor, **others: Any) -> tuple[torch.Tensor, State]:
        return torch.tensor([next(self._noises)]), others["state"]

    def project(self, gradient: torch.Tensor, **others: Any) -> tuple[torch.Tensor, State]:
        return torch.full_like(gradient, self._step), others["state"]


def with_chooser(strategy: LearnedProtection, chooser: Says) -> LearnedProtection:
    strategy._protector = chooser
    return strategy


NOISES = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True, width=32),
    st.sampled_from([nan, inf, -inf, 0.0, -1.0, 1e-30, 1e30, LEAST_NOISE, MOST_NOISE]),
)


@given(
    noises=st.lists(NOISES, min_size=1, max_size=8),
    epsilon=st.floats(0.05, 5),
    adjacency=st.sampled_from(["replace-one", "add-remove"]),
    horizon=st.integers(1, 15),
)
@example(noises=[2.0], epsilon=1.0, adjacency="add-remove", horizon=2)
@settings(max_examples=25, deadline=None)
def test_no_scheduler_however_wild_exceeds_the_budget(
    untrained: str, noises: list[float], epsilon: float, adjacency: str, horizon: int
) -> None:
    strategy = with_chooser(
        learned(untrained, epsilon=epsilon, adjacency=adjacency, horizon=horizon), Says(noises)
    )
    reference = mechanisms_of(strategy).reference.stddev
    train(strategy, federation())
    plan = strategy.paid
    mechanisms = mechanisms_of(strategy)
    assert not plan.affords(mechanisms.norm, mechanisms.times(MOST_NOISE))
    # The cheapest rounds may spend the budget to the last bit: then there is no other to refuse.
    assert strategy.stopped.startswith("the budget is spent") or strategy.round == strategy.rounds
    report = account(plan.releases, delta=plan.budget.delta, accountant="gdp")
    assert report.epsilon is not None
    assert report.epsilon <= epsilon * (1 + 1e-9)
    chosen = [m.stddev / reference for m in plan.part() if isinstance(m, GaussianMechanism)]
    assert all(LEAST_NOISE * (1 - 1e-9) <= noise <= MOST_NOISE * (1 + 1e-9) for noise in chosen)
    assert len(plan.part("norm")) == len(plan.part()) == strategy.round


@pytest.mark.parametrize("horizon", [1, 3, 7, 10, 49])
def test_a_scheduler_that_keeps_to_the_reference_gets_exactly_its_horizon(
    untrained: str, horizon: int
) -> None:
    """T shares of 1/T: the last round is not lost to rounding, and there is no other."""
    strategy = with_chooser(learned(untrained, horizon=horizon), Says([1.0]))
    train(strategy, federation())
    assert strategy.round == horizon
    assert strategy.paid.filter.spent == pytest.approx(strategy.paid.filter.limit)


@pytest.mark.parametrize("noise", [LEAST_NOISE, 0.5, 0.9, 1.3, MOST_NOISE])
def test_a_run_leaves_less_than_its_cheapest_round(untrained: str, noise: float) -> None:
    strategy = with_chooser(learned(untrained, horizon=20), Says([noise]))
    train(strategy, federation())
    cheapest = strategy.paid.filter
    assert not strategy.paid.affords(
        mechanisms_of(strategy).norm, mechanisms_of(strategy).times(MOST_NOISE)
    )
    assert cheapest.left < 0.425 / 20 * cheapest.limit * 1.001  # 0.2 + 0.8/4 of a round, or less


def test_a_budget_of_less_than_a_round_is_spent_on_nothing_more(untrained: str) -> None:
    """A quiet first choice is answered with what the budget has, and ends the run."""
    strategy = with_chooser(learned(untrained, horizon=1), Says([LEAST_NOISE]))
    train(strategy, federation())
    assert strategy.round == 1
    assert strategy.paid.filter.spent == pytest.approx(strategy.paid.filter.limit)


def test_a_step_that_is_no_number_is_not_taken_and_ends_the_run(untrained: str) -> None:
    strategy = with_chooser(learned(untrained), Says([1.0], step=nan))
    train(strategy, federation())
    assert "not finite" in strategy.stopped
    assert strategy.round == 1
    assert (strategy.theta == 0).all()
