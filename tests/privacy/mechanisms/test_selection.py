from dataclasses import replace
from itertools import permutations, product
from math import exp, inf, nan
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import BoundedRangeEvent, PureEvent
from fedpriv.privacy.mechanisms.selection import ExponentialMechanism, ReportNoisyMax, Selection
from fedpriv.privacy.randomness import RandomStream
from tests.statistical import assert_counts_follow

ADD_REMOVE = Adjacency.ADD_REMOVE
EXPONENTIAL = ExponentialMechanism(epsilon=1.3, sensitivity=0.5, adjacency=ADD_REMOVE)
NOISY_MAX = ReportNoisyMax(epsilon=1.3, sensitivity=0.5, adjacency=ADD_REMOVE)
both_rules = pytest.mark.parametrize("rule", [EXPONENTIAL, NOISY_MAX], ids=lambda r: r.name)


@pytest.fixture
def stream(request: pytest.FixtureRequest) -> RandomStream:
    return RandomStream.seeded(3, request.node.name)


def _law(rule: Selection, scores: tuple[float, ...]) -> NDArray[np.float64]:
    """Exact selection probabilities, by enumeration.

    The exponential mechanism from its definition; permute-and-flip as its paper states it: visit
    the candidates in every order, flip, stop at the first heads.
    """
    coins = [exp(-rule.rate * (max(scores) - score)) for score in scores]
    if isinstance(rule, ExponentialMechanism):
        return np.array(coins) / sum(coins)
    law = np.zeros(len(scores))
    orders = list(permutations(range(len(scores))))
    for order in orders:
        alive = 1.0
        for candidate in order:
            law[candidate] += alive * coins[candidate] / len(orders)
            alive *= 1 - coins[candidate]
    return law


def _frequencies(
    rule: Selection, scores: tuple[float, ...], draws: int, stream: RandomStream
) -> NDArray[np.int64]:
    chosen = [rule.select(scores, stream) for _ in range(draws)]
    return np.bincount(chosen, minlength=len(scores))


@both_rules
@pytest.mark.parametrize(
    "scores", [(0.0,), (1.0, 1.0), (0.0, 0.7, 1.5), (3.0, 2.9, 2.0, 0.0), (-1e6, 0.0, -0.2)]
)
def test_candidates_are_selected_with_their_exact_probabilities(
    rule: Selection, scores: tuple[float, ...], stream: RandomStream
) -> None:
    """False failure 1e-9."""
    counts = _frequencies(rule, scores, 10_000, stream)
    assert_counts_follow(counts, _law(rule, scores))


@both_rules
def test_selection_at_twice_the_cost_is_caught(rule: Selection, stream: RandomStream) -> None:
    counts = _frequencies(replace(rule, epsilon=2.6), (0.0, 0.7, 1.5), 10_000, stream)
    with pytest.raises(AssertionError, match="outside"):
        assert_counts_follow(counts, _law(rule, (0.0, 0.7, 1.5)))


def test_noisy_max_is_the_largest_score_plus_exponential_noise(stream: RandomStream) -> None:
    """False failure 1e-9: the enumeration above, against the rule it is said to equal."""
    scores = np.array([0.0, 0.7, 1.5])
    noise = stream.exponential(300_000).reshape(-1, 3) / NOISY_MAX.rate
    counts = np.bincount((scores + noise).argmax(axis=1), minlength=3)
    assert_counts_follow(counts, _law(NOISY_MAX, tuple(scores.tolist())))


def _largest_loss(rule: Selection, moves: list[tuple[float, ...]]) -> tuple[float, float]:
    """Largest privacy loss, and largest range of it, over a grid of neighbouring scores."""
    levels = (0.0, 0.25, 0.5, 1.0, 3.0)
    loss, spread = 0.0, 0.0
    for scores in product(levels, repeat=3):
        here = np.log(_law(rule, scores))
        for move in moves:
            losses = here - np.log(_law(rule, tuple(np.add(scores, move).tolist())))
            loss = max(loss, float(np.abs(losses).max()))
            spread = max(spread, float(losses.max() - losses.min()))
    return loss, spread


STEPS = (-0.5, -0.2, 0.0, 0.5)
ANY = list(product(STEPS, repeat=3))
MONOTONE = list(product((0.0, 0.2, 0.5), repeat=3))


@both_rules
@pytest.mark.parametrize(("monotone", "moves"), [(False, ANY), (True, MONOTONE)])
def test_no_neighbour_exceeds_epsilon_and_some_come_close(
    rule: Selection, *, monotone: bool, moves: list[tuple[float, ...]]
) -> None:
    loss, _ = _largest_loss(replace(rule, monotone=monotone), moves)
    assert 0.75 * rule.epsilon < loss <= rule.epsilon * (1 + 1e-9)


def test_the_exponential_mechanism_has_a_bounded_range_and_noisy_max_does_not() -> None:
    """Hence their different events: a loss of ±ε both ways would have a range of 2ε."""
    assert _largest_loss(EXPONENTIAL, ANY)[1] <= EXPONENTIAL.epsilon * (1 + 1e-9)
    assert _largest_loss(NOISY_MAX, ANY)[1] > 1.2 * NOISY_MAX.epsilon


@both_rules
def test_the_promise_of_monotone_scores_matters(rule: Selection) -> None:
    """Scores that move both ways break what the doubled rate claims."""
    loss, _ = _largest_loss(replace(rule, monotone=True), ANY)
    assert loss > 1.4 * rule.epsilon


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=5))
def test_noisy_max_is_never_worse_than_the_exponential_mechanism(scores: list[float]) -> None:
    gaps = max(scores) - np.array(scores)
    noisy_max, exponential = (_law(rule, tuple(scores)) @ gaps for rule in (NOISY_MAX, EXPONENTIAL))
    assert noisy_max <= exponential + 1e-12


def test_events_state_the_cost() -> None:
    assert EXPONENTIAL.event() == BoundedRangeEvent(adjacency=ADD_REMOVE, epsilon=1.3)
    assert NOISY_MAX.event() == PureEvent(adjacency=ADD_REMOVE, epsilon=1.3)


def test_one_candidate_far_ahead_is_certain(stream: RandomStream) -> None:
    for rule in (EXPONENTIAL, NOISY_MAX):
        assert rule.select([0.0, 1e9, 0.0], stream) == 1


@both_rules
def test_monotone_needs_add_remove(rule: Selection) -> None:
    assert replace(rule, monotone=True).rate == 2 * rule.rate
    assert replace(rule, adjacency=Adjacency.REPLACE_ONE).adjacency is Adjacency.REPLACE_ONE
    with pytest.raises(ValueError, match="monotone must be False"):
        replace(rule, monotone=True, adjacency=Adjacency.REPLACE_ONE)


@both_rules
@pytest.mark.parametrize("scores", [[], [[1.0, 2.0]], [1.0, nan], [inf, 0.0], 3.0])
def test_scores_that_are_not_finite_numbers_are_refused(
    rule: Selection, scores: Any, stream: RandomStream
) -> None:
    with pytest.raises(ValueError, match="scores must be"):
        rule.select(scores, stream)


@both_rules
@pytest.mark.parametrize("bad", [0.0, -1.0, nan, inf])
def test_parameters_that_are_not_positive_are_refused(rule: Selection, bad: float) -> None:
    with pytest.raises(ValueError, match="epsilon must be positive"):
        replace(rule, epsilon=bad)
    with pytest.raises(ValueError, match="sensitivity must be positive"):
        replace(rule, sensitivity=bad)
