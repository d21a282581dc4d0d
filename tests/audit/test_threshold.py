"""The threshold audit: limits against a binomial sum, its coverage, and what it catches."""

from __future__ import annotations

from math import comb, exp

import numpy as np
import pytest

from fedpriv.audit.clopper_pearson import lower_limit, upper_limit
from fedpriv.audit.threshold import Operating, operating_point


@pytest.mark.parametrize(("hits", "draws"), [(1, 10), (3, 20), (19, 20)])
def test_limits_are_where_a_binomial_makes_what_was_seen_rare(hits: int, draws: int) -> None:
    def tail(p: float, numbers: range) -> float:
        return sum(comb(draws, k) * p**k * (1 - p) ** (draws - k) for k in numbers)

    low = float(lower_limit(hits, draws, failure=0.025))
    high = float(upper_limit(hits, draws, failure=0.025))
    assert tail(low, range(hits, draws + 1)) == pytest.approx(0.025)
    assert tail(high, range(hits + 1)) == pytest.approx(0.025)


def test_limits_at_the_ends() -> None:
    assert lower_limit(0, 10, failure=0.05) == 0
    assert upper_limit(10, 10, failure=0.05) == 1


def test_what_a_threshold_shows() -> None:
    point = Operating(threshold=0.0, true_positives=0.8, false_positives=0.1)
    assert point.mu == pytest.approx(0.841621 + 1.281552, abs=1e-6)
    assert exp(point.epsilon(0.0)) == pytest.approx(8)
    assert exp(point.epsilon(0.2)) == pytest.approx(6)
    none = Operating(threshold=0.0, true_positives=0.1, false_positives=0.1)
    assert none.mu == none.epsilon(0.0) == 0


def _shown(mu: float, n: int, repetitions: int, seed: int = 3) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.array(
        [
            operating_point(rng.normal(mu, 1, n), rng.normal(0, 1, n), confidence=0.95).mu
            for _ in range(repetitions)
        ]
    )


def test_it_hardly_ever_shows_more_than_there_is() -> None:
    """The two limits share 5 %, and both must fail together to be above: it is far less.

    More than 25 of 100 has a probability of 1e-12 if it were 5 %.
    """
    assert (_shown(1.0, 100, 100) > 1.0).sum() < 25


def test_half_the_noise_is_caught() -> None:
    assert (_shown(2.0, 1500, 10) > 1.0).all()


def test_each_rate_has_half_of_the_failure() -> None:
    """Of 20 measured draws on each side, all right: p²⁰ = 0.025 is where that is so rare."""
    point = operating_point(np.ones(40), np.zeros(40), confidence=0.95)
    assert point.true_positives == pytest.approx(0.025 ** (1 / 20))
    assert point.false_positives == pytest.approx(1 - 0.025 ** (1 / 20))


def test_what_chose_the_threshold_does_not_measure_it() -> None:
    """Draws at even places differ, those at odd places do not."""
    first = np.tile([1.0, 0.0], 50)
    assert operating_point(first, np.zeros(100), confidence=0.95).mu == 0
    assert operating_point(first[::-1], np.zeros(100), confidence=0.95).mu == 0


def test_a_choice_on_the_measured_draws_would_flatter() -> None:
    """The teeth of the halves: of pure chance they show nothing."""
    assert (_shown(0.0, 200, 50) > 0.2).sum() <= 5
    with pytest.raises(ValueError, match="4 draws"):
        operating_point(np.zeros(3), np.zeros(9), confidence=0.9)
