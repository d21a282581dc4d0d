"""Student's bound on μ: an oracle by quadrature, its coverage and power, and what it catches."""

from __future__ import annotations

import numpy as np
import pytest
from mpmath import mp, mpf, quad

from fedpriv.audit.gaussian_shift import draws_for, normality, shift_lower_bound

RNG = np.random.default_rng(7)


def _noncentral_cdf(t: float, freedom: int, shift: float) -> float:
    """P((Z + shift)/√(χ²/k) ≤ t), integrated over the law of √(χ²/k): no code of scipy's."""
    k = mpf(freedom)

    def density(s: mpf) -> mpf:
        return 2 * (k / 2) ** (k / 2) / mp.gamma(k / 2) * s ** (k - 1) * mp.exp(-k * s**2 / 2)

    return float(quad(lambda s: mp.ncdf(t * s - shift) * density(s), [0, 0.5, 1, 1.5, 4]))


@pytest.mark.parametrize("shift", [0.3, 1.0, 2.5])
def test_the_bound_is_the_shift_at_which_what_was_seen_is_rare(shift: float) -> None:
    n, m, confidence = 12, 9, 0.95
    first, second = RNG.normal(shift, 2, n), RNG.normal(0, 2, m)
    bound = shift_lower_bound(first, second, confidence=confidence)
    spread = np.sqrt(((first - first.mean()) ** 2).sum() + ((second - second.mean()) ** 2).sum())
    scale = np.sqrt(1 / n + 1 / m)
    t = (first.mean() - second.mean()) / (spread / np.sqrt(n + m - 2) * scale)
    if bound == 0:
        assert _noncentral_cdf(t, n + m - 2, 0.0) <= confidence
    else:
        assert _noncentral_cdf(t, n + m - 2, bound / scale) == pytest.approx(confidence, abs=1e-7)


def _bounds(mu: float, n: int, repetitions: int, confidence: float = 0.95) -> np.ndarray:
    rng = np.random.default_rng(1)
    return np.array(
        [
            shift_lower_bound(rng.normal(mu, 1, n), rng.normal(0, 1, n), confidence=confidence)
            for _ in range(repetitions)
        ]
    )


def test_it_is_true_as_often_as_it_says() -> None:
    """2,000 audits of a claim that is just true: one in twenty cries wolf.

    The number of false alarms is Bin(2000, 0.05), beyond 100 ± 40 with a probability of 4e-5.
    """
    alarms = int((_bounds(1.0, 30, 2000) > 1.0).sum())
    assert 60 < alarms < 140


def test_half_the_noise_is_caught_and_the_whole_is_shown() -> None:
    """μ = 1 claimed, 482 runs each: 80 % of it are shown nine times in ten, 2 is caught always."""
    assert (_bounds(2.0, 482, 100) > 1.0).all()
    shown = (_bounds(1.0, 482, 300) > 0.8).mean()
    assert 0.83 < shown < 0.97  # 0.91; a false failure has a probability of 1e-5


def test_the_number_of_draws_is_that_of_the_median() -> None:
    n = draws_for(1.0, confidence=0.95)
    assert n == 153
    assert 0.38 < (_bounds(1.0, n, 400) > 0.8).mean() < 0.62  # a half, ± 5 standard deviations
    assert draws_for(0.25, confidence=0.95) == pytest.approx(2182, rel=0.01)


def test_normality_is_doubted_where_it_should_be() -> None:
    normal = RNG.normal(size=(2, 500))
    assert normality(*normal) > 1e-3
    heavy = RNG.standard_t(2, size=(2, 500))
    assert normality(*heavy) < 1e-3


def test_without_noise_everything_is_shown_and_little_is_refused() -> None:
    assert shift_lower_bound(np.ones(5), np.zeros(5), confidence=0.9) == np.inf
    assert shift_lower_bound(np.zeros(5), np.zeros(5), confidence=0.9) == 0
    with pytest.raises(ValueError, match="2 draws"):
        shift_lower_bound(np.ones(1), np.zeros(5), confidence=0.9)
    with pytest.raises(ValueError, match="finite"):
        shift_lower_bound(np.full(5, np.nan), np.zeros(5), confidence=0.9)
