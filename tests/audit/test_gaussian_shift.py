"""The bound on μ from pairs: an oracle by quadrature, its coverage, power, and what it catches."""

from __future__ import annotations

import numpy as np
import pytest
from mpmath import mp, mpf, quad

from fedpriv.audit.gaussian_shift import normality, pairs_for, shift_lower_bound

RNG = np.random.default_rng(7)


def _chi_squared_cdf(x: float, freedom: int) -> float:
    """Integrated over the density, in the root of χ²: no code of scipy's."""
    k = mpf(freedom)
    scale = 2 / (2 ** (k / 2) * mp.gamma(k / 2))
    return float(quad(lambda s: scale * s ** (k - 1) * mp.exp(-(s**2) / 2), [0, mp.sqrt(x)]))


def _student_cdf(t: float, freedom: int) -> float:
    k = mpf(freedom)
    scale = mp.gamma((k + 1) / 2) / (mp.sqrt(k * mp.pi) * mp.gamma(k / 2))
    return float(0.5 + quad(lambda x: scale * (1 + x**2 / k) ** (-(k + 1) / 2), [0, t]))


def test_with_equal_noise_the_bound_is_where_so_small_a_spread_is_rare() -> None:
    """s² is at most what makes a sample variance as small as this one have a probability of 4 %."""
    noise = RNG.normal(0, 3, 12)
    bound = shift_lower_bound(noise + 2, noise, confidence=0.95)
    most = 2 / bound
    seen = ((noise - noise.mean()) ** 2).sum()
    assert _chi_squared_cdf(seen / most**2, 11) == pytest.approx(0.04, abs=1e-9)


def test_differences_that_vary_cost_two_shares_of_the_failure() -> None:
    first, second = RNG.normal(1, 1, (2, 20)) * 0.2 + RNG.normal(size=20)
    first += 2
    bound = shift_lower_bound(first, second, confidence=0.9)
    apart, together = first - second, first + second
    limits = []
    for values, failure in ((apart, 0.01), (together, 0.08)):
        seen = ((values - values.mean()) ** 2).sum()
        low, high = mpf(0.01), mpf(100)
        for _ in range(60):
            middle = (low + high) / 2
            if _chi_squared_cdf(middle, 19) < failure:
                low = middle
            else:
                high = middle
        limits.append(float(seen / low))
    t = (apart.mean() - bound * np.sqrt(sum(limits)) / 2) / (apart.std(ddof=1) / np.sqrt(20))
    assert _student_cdf(t, 19) == pytest.approx(0.99, abs=1e-7)


def _bounds(
    mu: float, n: int, audits: int, *, common: float = 1.0, confidence: float = 0.95
) -> np.ndarray:
    """Audits of a shift; ``common``: the correlation of the two runs of a pair."""
    rng = np.random.default_rng(1)
    found = []
    for _ in range(audits):
        noise, own = rng.normal(size=(2, n))
        first = mu + common * noise + np.sqrt(1 - common**2) * own
        found.append(shift_lower_bound(first, noise, confidence=confidence))
    return np.array(found)


def test_it_is_true_as_often_as_it_says() -> None:
    """4,000 audits of a claim that is just true: one in twenty-five cries wolf.

    The number of false alarms is Bin(4000, 0.04), beyond 160 ± 50 with a probability of 6e-5.
    """
    alarms = int((_bounds(1.0, 30, 4000) > 1.0).sum())
    assert 110 < alarms < 210


@pytest.mark.parametrize("common", [0.999, 0.9, 0.0, -0.9])
def test_whatever_pairs_have_in_common_it_is_true_often_enough(common: float) -> None:
    """At most Bin(1000, 0.05) false alarms, beyond 85 with a probability of 2e-6."""
    assert (_bounds(1.0, 30, 1000, common=common) > 1.0).sum() <= 85


@pytest.mark.parametrize("turned", ["at random", "rarely", "by its length"])
def test_pairs_that_are_normal_by_themselves_alone_raise_no_more_alarms(turned: str) -> None:
    """The second run has the noise of the first, with a sign: normal, and not jointly so."""
    rng = np.random.default_rng(5)
    alarms = 0
    for _ in range(1000):
        noise = rng.normal(size=30)
        sign = {
            "at random": rng.random(30) < 0.5,
            "rarely": rng.random(30) < 0.05,
            "by its length": np.abs(noise) > 1.5,
        }[turned]
        second = np.where(sign, -noise, noise)
        alarms += shift_lower_bound(1 + noise, second, confidence=0.95) > 1
    assert alarms <= 85  # Bin(1000, 0.05), beyond with a probability of 2e-6


def test_spreads_that_differ_are_one_in_the_mean_of_their_squares() -> None:
    """Equal noise of which one side has twice as much: D varies with S, and nothing rests on it."""
    rng = np.random.default_rng(2)
    root = np.sqrt((1 + 4) / 2)
    alarms = 0
    for _ in range(1000):
        noise = rng.normal(size=30)
        alarms += shift_lower_bound(root + 2 * noise, noise, confidence=0.95) > 1
    assert alarms <= 85


def test_a_tenth_less_noise_is_caught_and_the_whole_is_shown() -> None:
    """μ = 1 claimed, 500 pairs: never less than 80 % shown; 1/0.9 instead is caught nearly always.

    The spread has a relative error of 3.2 %, and the bound lies 1.75 times that below it.
    """
    assert (_bounds(1 / 0.9, 500, 200) > 1.0).mean() > 0.9
    assert (_bounds(1.0, 500, 200) > 0.8).all()


def test_the_number_of_pairs_is_that_of_nineteen_audits_in_twenty() -> None:
    n = pairs_for(0.8, confidence=0.95)
    assert n == 119
    shown = int((_bounds(0.3, n, 2000) > 0.8 * 0.3).sum())
    assert 1850 < shown < 1945  # Bin(2000, 0.95), 1900 ± 45: beyond with a probability of 7e-6
    fewer = int((_bounds(0.3, n // 2, 2000) > 0.8 * 0.3).sum())
    assert fewer < 1700
    assert pairs_for(1 - 1e-9, confidence=0.95) is None


def test_normality_is_doubted_where_it_should_be() -> None:
    normal = RNG.normal(size=(2, 500))
    assert normality(*normal) > 1e-3
    heavy = RNG.standard_t(2, size=(2, 500))
    assert normality(*heavy) < 1e-3
    assert normality(4 * normal[0], normal[1]) < 1e-3  # one side has less noise


def test_pairs_that_say_the_same_twice_are_not_doubted_more_often() -> None:
    """The test is conservative, and 1,000 normal samples have no p-value below 1e-3."""
    rng = np.random.default_rng(3)
    assert min(normality(noise, noise) for noise in rng.normal(size=(1000, 200))) > 1e-3


def test_without_noise_everything_is_shown_and_little_is_refused() -> None:
    assert shift_lower_bound(np.ones(5), np.zeros(5), confidence=0.9) == np.inf
    assert shift_lower_bound(np.zeros(5), np.zeros(5), confidence=0.9) == 0
    assert shift_lower_bound(np.zeros(5), np.ones(5), confidence=0.9) == 0
    with pytest.raises(ValueError, match="2 pairs"):
        shift_lower_bound(np.ones(1), np.zeros(1), confidence=0.9)
    with pytest.raises(ValueError, match="2 pairs"):
        shift_lower_bound(np.ones(4), np.zeros(5), confidence=0.9)
    with pytest.raises(ValueError, match="finite"):
        shift_lower_bound(np.full(5, np.nan), np.zeros(5), confidence=0.9)
