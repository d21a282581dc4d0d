"""The number of trials: its mean by mpmath, and draws that follow its law."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest

from fedpriv.privacy.randomness import RandomStream
from fedpriv.privacy.trial_count import TrialCount
from fedpriv.privacy.tuning_profile import tuning_delta, tuning_divergence, tuning_epsilon
from tests.statistical import assert_counts_follow

LAWS = [(0.0, 0.0269), (0.0, 0.97), (1.0, 0.1), (-0.5, 0.02), (3.0, 0.3), (1e-9, 0.01)]
CELLS = 12  # of counts, the last one for all that are larger
DRAWS = 1500


def chance(eta: float, gamma: float, count: int) -> Any:
    """P[K = k] as it is printed, in high precision."""
    eta_, gamma_ = mpmath.mpf(eta), mpmath.mpf(gamma)
    if eta == 0:
        return (1 - gamma_) ** count / (count * mpmath.log(1 / gamma_))
    product = mpmath.fprod((index + eta_) / (index + 1) for index in range(count))
    return (1 - gamma_) ** count / (gamma_**-eta_ - 1) * product


def counted(draws: list[int]) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.bincount(np.minimum(draws, CELLS) - 1, minlength=CELLS)


def cells(law: TrialCount) -> np.ndarray[Any, np.dtype[np.float64]]:
    head = [float(chance(law.eta, law.gamma, count)) for count in range(1, CELLS)]
    return np.array([*head, 1 - sum(head)])


@pytest.mark.parametrize(("eta", "gamma"), LAWS)
def test_the_mean_is_that_of_the_law_and_never_below_it(eta: float, gamma: float) -> None:
    with mpmath.workdps(40):
        most = int(120 / gamma)  # beyond, less than e^-120 is left
        terms = mpmath.mpf(0)
        now = chance(eta, gamma, 1)
        for count in range(1, most):
            terms += count * now
            now *= (1 - mpmath.mpf(gamma)) * (count + mpmath.mpf(eta)) / (count + 1)
        mean = TrialCount(eta=eta, gamma=gamma).mean
        assert terms <= mean <= terms * (1 + mpmath.mpf(10) ** -13)


@pytest.mark.parametrize("gamma", [1e-300, 0.999, 1 - 1e-8, 1 - 1e-12, 1 - 2.0**-53])
@pytest.mark.parametrize("eta", [-0.9, -1e-17, 0.0, 1e-300, 1.0, 1e12])
def test_a_mean_next_to_one_and_a_vast_one_are_not_below_the_law(eta: float, gamma: float) -> None:
    """At γ = 1 - 1e-16 it was a half, where the law has more than one trial."""
    with mpmath.workdps(60):
        spread = -mpmath.log(gamma)
        tail = spread if eta == 0 else -mpmath.expm1(-mpmath.mpf(eta) * spread) / eta
        exact = (1 - mpmath.mpf(gamma)) / gamma / tail
        mean = TrialCount(eta=eta, gamma=gamma).mean
        assert exact <= mean
        assert mean == math.inf or mean <= exact * (1 + mpmath.mpf(10) ** -12)


def test_a_law_beyond_floats_has_an_infinite_price_and_no_error() -> None:
    for eta in (-0.999, 0.0, 1e300):
        law = TrialCount(eta=eta, gamma=5e-324)
        assert law.mean == math.inf
        assert tuning_epsilon(mu=1.0, law=law, delta=1e-6) == math.inf
        assert tuning_delta(mu=1.0, law=law, epsilon=9.0) == 1.0
        assert tuning_divergence(order=2.0, mu=1.0, law=law) == math.inf


@pytest.mark.parametrize(
    ("mean", "eta", "gamma"),
    [(10.0, 0.0, 0.026918260), (10.0, 1.0, 0.1), (50.0, 0.0, 0.003529444)],
)
def test_a_mean_has_its_gamma(mean: float, eta: float, gamma: float) -> None:
    law = TrialCount.with_mean(mean, eta=eta)
    assert law.gamma == pytest.approx(gamma, abs=5e-10)
    assert law.mean == pytest.approx(mean, rel=1e-12)


@pytest.mark.parametrize("mean", [1.0001, 1.5, 7.0, 1000.0])
@pytest.mark.parametrize("eta", [-0.5, 0.0, 0.3, 1.0, 5.0])
def test_every_mean_can_be_had(mean: float, eta: float) -> None:
    assert TrialCount.with_mean(mean, eta=eta).mean == pytest.approx(mean, rel=1e-9)


@pytest.mark.parametrize(("eta", "gamma"), [(0.0, 0.1), (1.0, 0.2), (-0.5, 0.05)])
def test_draws_follow_the_law(eta: float, gamma: float) -> None:
    """A correct law fails with probability 1e-9."""
    law = TrialCount(eta=eta, gamma=gamma)
    stream = RandomStream.seeded(3, "trials", str(eta))
    assert_counts_follow(counted([law.draw(stream) for _ in range(DRAWS)]), cells(law))


def test_a_fixed_number_a_poisson_one_and_another_gamma_are_caught() -> None:
    law, rng = TrialCount(eta=0.0, gamma=0.1), np.random.default_rng(0)
    stream = RandomStream.seeded(3, "trials")
    other = TrialCount(eta=0.0, gamma=0.15)
    for draws in (
        [4] * DRAWS,
        (1 + rng.poisson(law.mean - 1, DRAWS)).tolist(),
        [other.draw(stream) for _ in range(4 * DRAWS)],
    ):
        with pytest.raises(AssertionError, match="outside"):
            assert_counts_follow(counted(draws), cells(law))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"gamma": 0.0}, "gamma must lie strictly between 0 and 1"),
        ({"gamma": 1.0}, "gamma must lie strictly between 0 and 1"),
        ({"gamma": 0.1, "eta": -1.0}, "eta must be finite and above -1"),
        ({"gamma": 0.1, "eta": float("nan")}, "eta must be finite and above -1"),
        ({"gamma": 0.1, "eta": True}, "eta must be finite and above -1"),
    ],
)
def test_what_is_no_such_law_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrialCount(**values)


@pytest.mark.parametrize("mean", [1.0, 0.5, 1001.0, float("nan")])
def test_a_mean_that_chooses_nothing_or_never_ends_is_refused(mean: float) -> None:
    with pytest.raises(ValueError, match="expected_trials must be above 1 and at most 1000"):
        TrialCount.with_mean(mean)
