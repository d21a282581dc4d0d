"""One-run audits: the bound against the exact law of a game, its coverage, and what it catches."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom, norm

from fedpriv.audit.one_run import (
    best_guesses,
    contradicts,
    epsilon_lower_bound,
    gaussian_inverse,
    mu_lower_bound,
    points_inverse,
    right_guesses,
)


def _right(mu: float, m: int, guesses: int, rng: np.random.Generator) -> int:
    """A Gaussian release with one coordinate for each canary: no f-DP release allows more."""
    coins = rng.random(m) < 0.5
    scores = np.where(coins, mu / 2, -mu / 2) + rng.normal(size=m)
    return right_guesses(scores, coins, guesses)


@pytest.mark.parametrize(("epsilon", "m"), [(0.5, 40), (1.0, 100), (2.0, 400)])
def test_randomised_response_reaches_the_bound(epsilon: float, m: int) -> None:
    """Each coin told truly with probability e^ε/(1 + e^ε): exactly ε-DP, and W is binomial.

    What is contradicted is rare under that law, and what is half as rare again is contradicted: the
    bound is neither false nor far from what is possible.
    """
    rate = float(np.exp(epsilon) / (1 + np.exp(epsilon)))
    curve = points_inverse([(epsilon, 0.0)])
    first = next(
        c for c in range(m + 1) if c == m or contradicts(c, m, m, inverse=curve, failure=0.05)
    )
    assert binom.sf(first - 1, m, rate) <= 0.05
    assert binom.sf(first - 1, m, rate) > 0.02


def test_all_guesses_of_the_best_gaussian_adversary_are_within_the_bound() -> None:
    """All m coins guessed of μ-GDP: W is Bin(m, Φ(μ/2)), and has no more than its tail."""
    for mu, m in ((0.5, 200), (1.0, 100), (2.0, 30)):
        law = binom(m, norm.cdf(mu / 2))
        for right in range(m // 2, m + 1):
            if contradicts(right, m, m, inverse=gaussian_inverse(mu), failure=0.05):
                assert law.sf(right - 1) <= 0.05


def test_least_tails_are_those_of_a_linear_programme() -> None:
    """The largest P(W ≥ c) under the same constraints, by a solver, for a curve of lines."""
    from scipy.optimize import linprog

    epsilon, m, r, c = 0.8, 12, 9, 8
    growth = np.exp(epsilon)
    w = np.arange(r + 1)
    rows, limits = [], []
    for j in range(1, r + 1):
        right = np.where(w >= j, w, 0) / m
        wrong = np.where(w >= j - 1, r - w, 0) / m
        rows += [right - growth * wrong, right - wrong / growth]
        limits += [0.0, 1 - 1 / growth]  # F(x) = min(e^ε·x, 1 - e^-ε·(1 - x))
    most = -linprog(
        -(w >= c).astype(float), A_ub=rows, b_ub=limits, A_eq=[np.ones(r + 1)], b_eq=[1.0]
    ).fun
    curve = points_inverse([(epsilon, 0.0)])
    assert contradicts(c, r, m, inverse=curve, failure=most * 1.001)
    assert not contradicts(c, r, m, inverse=curve, failure=most * 0.999)


def test_a_true_claim_is_rarely_contradicted_and_half_the_noise_nearly_always() -> None:
    """400 audits, 1,000 canaries: at most Bin(400, 0.05) false alarms, beyond 42 with 1e-5.

    With half the noise μ is twice what is claimed: 99.9 % of audits see it, and so 95 of 100 at the
    least, but for one time in 10⁹.
    """
    rng = np.random.default_rng(0)
    m, mu = 1000, 1.0
    guesses = best_guesses(m, mu=mu, confidence=0.95)
    curve = gaussian_inverse(mu)

    def alarms(true: float, audits: int) -> int:
        found = (_right(true, m, guesses, rng) for _ in range(audits))
        return sum(contradicts(each, guesses, m, inverse=curve, failure=0.05) for each in found)

    assert alarms(mu, 400) <= 42
    assert alarms(2 * mu, 100) >= 95


@pytest.mark.deep
@pytest.mark.parametrize("mu", [0.25, 1.0, 3.0])
@pytest.mark.parametrize("m", [100, 1000])
def test_false_alarms_are_as_rare_as_stated(mu: float, m: int) -> None:
    """20,000 audits, with few guesses and with all: Bin(20000, 0.05), beyond 1,140 with 5e-6."""
    rng = np.random.default_rng(1)
    for guesses in (best_guesses(m, mu=mu, confidence=0.95), m):
        limit = next(
            c
            for c in range(guesses + 2)
            if c > guesses or contradicts(c, guesses, m, inverse=gaussian_inverse(mu), failure=0.05)
        )
        alarms = sum(_right(mu, m, guesses, rng) >= limit for _ in range(20_000))
        assert alarms <= 1140


def test_more_than_half_of_what_there_is_is_shown() -> None:
    rng = np.random.default_rng(2)
    m, mu = 1000, 1.0
    guesses = best_guesses(m, mu=mu, confidence=0.95)
    shown = [
        mu_lower_bound(_right(mu, m, guesses, rng), guesses, m, confidence=0.95) for _ in range(20)
    ]
    assert 0.5 < np.median(shown) < 0.75


def test_the_bounds_are_where_the_contradiction_ends() -> None:
    mu = mu_lower_bound(90, 100, 1000, confidence=0.95)
    for shift, contradicted in ((0.999, True), (1.001, False)):
        curve = gaussian_inverse(shift * mu)
        assert contradicts(90, 100, 1000, inverse=curve, failure=0.05) == contradicted
    epsilon = epsilon_lower_bound(90, 100, 1000, delta=1e-5, confidence=0.95)
    pure = epsilon_lower_bound(90, 100, 1000, delta=0.0, confidence=0.95)
    assert 0 < epsilon <= pure
    assert mu_lower_bound(50, 100, 1000, confidence=0.95) == 0
    less = epsilon_lower_bound(90, 100, 1000, delta=0.003, confidence=0.95)
    assert less < 0.9 * pure  # of 1,000 canaries, three may be told for nothing
    for share, contradicted in ((0.999, True), (1.001, False)):
        lines = points_inverse([(share * less, 0.003)])
        assert contradicts(90, 100, 1000, inverse=lines, failure=0.05) == contradicted
    with pytest.raises(ValueError, match="must not decrease"):
        contradicts(11, 10, 100, inverse=gaussian_inverse(1.0), failure=0.05)


def test_the_surest_guesses_are_counted() -> None:
    scores = np.array([0.1, -3.0, 2.0, -0.2])
    coins = np.array([False, False, True, True])
    assert right_guesses(scores, coins, 2) == 2
    assert right_guesses(scores, coins, 4) == 2


def test_inverses_are_those_of_their_curves() -> None:
    """g(F(x)) = x where F rises below 1."""
    gaussian, lines = gaussian_inverse(0.7), points_inverse([(1.0, 0.01), (0.5, 0.1)])
    for x in (0.001, 0.1, 0.4):
        assert gaussian(float(norm.cdf(norm.ppf(x) + 0.7))) == pytest.approx(x)
        allowed = min(
            min(np.exp(e) * x + d, 1 - np.exp(-e) * (1 - d - x)) for e, d in ((1, 0.01), (0.5, 0.1))
        )
        assert lines(allowed) == pytest.approx(x)
