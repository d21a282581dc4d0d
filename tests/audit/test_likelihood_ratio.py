from math import inf, log, nan, sqrt
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from fedpriv.audit.likelihood_ratio import (
    audit_mechanism,
    diagonal_shift,
    epsilon_lower_bound,
    gaussian_statistic,
    laplace_statistic,
    radial_statistic,
)
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.mechanisms import (
    GaussianMechanism,
    L1LaplaceMechanism,
    L2LaplaceMechanism,
    UnsoundLaplaceMechanism,
)
from fedpriv.privacy.randomness import RandomStream

CONFIDENCE = 1 - 1e-9
DRAWS = 400_000
Laplace = type[L1LaplaceMechanism | L2LaplaceMechanism | UnsoundLaplaceMechanism]


def _audit(law: Laplace, dimension: int, *, moved: float = 1.0, draws: int = DRAWS) -> float:
    """The bound for a claim of ε = 1, when a neighbour really moves the sum by ``moved``."""
    mechanism = law(
        sensitivity=1.0, epsilon=1.0, dimension=dimension, adjacency=Adjacency.REPLACE_ONE
    )
    step = 1e-3 / sqrt(dimension)
    return audit_mechanism(
        mechanism,
        shift=diagonal_shift(sensitivity=moved, dimension=dimension, step=step),
        step=step,
        statistic=radial_statistic if law is L2LaplaceMechanism else laplace_statistic,
        draws=draws,
        confidence=CONFIDENCE,
        stream=RandomStream.seeded(5, law.__name__, dimension),
    )


def test_coordinate_wise_laplace_breaks_its_claim() -> None:
    """Claimed ε = 1 with an L2 sensitivity and d = 10: at least 1.9, and never above √10."""
    bound = _audit(UnsoundLaplaceMechanism, 10)
    assert 1.9 < bound <= sqrt(10)


def test_what_the_unsound_form_reports_instead_holds() -> None:
    """Its event says √d·ε. False failure 1e-9."""
    for dimension in (2, 10, 50):
        assert _audit(UnsoundLaplaceMechanism, dimension, draws=100_000) <= sqrt(dimension)


@pytest.mark.parametrize("dimension", [1, 2, 10, 50])
@pytest.mark.parametrize("law", [L2LaplaceMechanism, L1LaplaceMechanism])
def test_both_sound_forms_keep_their_claim(law: Laplace, dimension: int) -> None:
    """False failure 1e-9 each. In low dimension the bound is close to ε: the audit sees."""
    bound = _audit(law, dimension)
    assert bound <= 1.0
    if dimension <= 2:
        assert bound > 0.85


@pytest.mark.parametrize("dimension", [1, 2, 10])
@pytest.mark.parametrize("law", [L2LaplaceMechanism, L1LaplaceMechanism])
def test_half_the_noise_is_caught(law: Laplace, dimension: int) -> None:
    """A sensitivity that is really twice the claimed one."""
    assert _audit(law, dimension, moved=2.0) > 1.1


def test_a_gaussian_keeps_its_delta_and_half_its_noise_does_not() -> None:
    """False failure 1e-9. The exact ε at μ = 1 and δ = 0.01, by bisection."""
    low, high = 0.0, 10.0
    for _ in range(60):
        middle = (low + high) / 2
        delta = norm.cdf(0.5 - middle) - np.exp(middle) * norm.cdf(-0.5 - middle)
        low, high = (middle, high) if delta > 0.01 else (low, middle)
    bounds = [
        audit_mechanism(
            GaussianMechanism(sensitivity=1.0, stddev=1.0, adjacency=Adjacency.REPLACE_ONE),
            shift=diagonal_shift(sensitivity=moved, dimension=1, step=1e-4),
            step=1e-4,
            statistic=gaussian_statistic,
            draws=DRAWS,
            confidence=CONFIDENCE,
            stream=RandomStream.seeded(6),
            delta=0.01,
        )
        for moved in (1.0, 2.0)
    ]
    assert 0.8 * high < bounds[0] <= high < bounds[1]


def test_the_bound_of_a_known_pair_is_close_to_the_truth() -> None:
    """Randomised response with ε = ln 3: bits that are right with probability 3/4."""
    stream = RandomStream.seeded(7)
    first = (stream.uniform(DRAWS) < 0.75).astype(float)
    second = (stream.uniform(DRAWS) < 0.25).astype(float)
    assert log(3) - 0.05 < epsilon_lower_bound(first, second, confidence=CONFIDENCE) <= log(3)


def test_the_bound_holds_as_often_as_stated() -> None:
    """At confidence 1/2 the true ε is exceeded in at most half of many audits.

    500 audits of randomised response: more than 327 violations have probability below 1e-9 at ½
    (Hoeffding: t = √(500·ln(1e9)/2)). Each interval spends half the failure, so in fact few occur.
    """
    stream = RandomStream.seeded(8)
    allowed = 250 + sqrt(500 * log(1e9) / 2)
    exceeded = sum(
        epsilon_lower_bound(
            (stream.uniform(400) < 0.75).astype(float),
            (stream.uniform(400) < 0.25).astype(float),
            confidence=0.5,
        )
        > log(3)
        for _ in range(500)
    )
    assert 0 < exceeded <= allowed


def test_equal_laws_show_nothing() -> None:
    stream = RandomStream.seeded(9)
    assert epsilon_lower_bound(stream.normal(1000), stream.normal(1000), confidence=0.999) == 0.0


def test_disjoint_laws_are_bounded_by_the_number_of_draws() -> None:
    """Never infinite: with n draws a half, no set was seen to have probability zero."""
    bound = epsilon_lower_bound(np.full(1000, 1.0), np.zeros(1000), confidence=0.95)
    assert bound == pytest.approx(log((0.025 ** (1 / 500)) / (1 - 0.025 ** (1 / 500))))


def test_a_delta_that_explains_everything_leaves_nothing() -> None:
    assert epsilon_lower_bound(np.full(100, 1.0), np.zeros(100), confidence=0.95, delta=0.99) == 0.0


@pytest.mark.parametrize("dimension", [1, 7, 100])
def test_the_diagonal_shift_stays_within_the_sensitivity(dimension: int) -> None:
    shift = diagonal_shift(sensitivity=0.7, dimension=dimension, step=1e-4)
    assert 0.69 < np.linalg.norm(shift * 1e-4) <= 0.7
    assert len(set(shift.tolist())) == 1


@pytest.mark.parametrize("confidence", [0.0, 1.0, nan, -1.0])
def test_a_confidence_outside_the_unit_interval_is_refused(confidence: float) -> None:
    with pytest.raises(ValueError, match="confidence must lie"):
        epsilon_lower_bound(np.zeros(9), np.zeros(9), confidence=confidence)


@pytest.mark.parametrize(
    ("bad", "message"), [({"delta": 1.0}, "delta must lie"), ({"delta": nan}, "delta must lie")]
)
def test_a_delta_outside_its_interval_is_refused(bad: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        epsilon_lower_bound(np.zeros(9), np.zeros(9), confidence=0.9, **bad)


def test_too_few_draws_are_refused() -> None:
    with pytest.raises(ValueError, match="4 draws or more, got 3 and 9"):
        epsilon_lower_bound(np.zeros(3), np.zeros(9), confidence=0.9)


@pytest.mark.parametrize("bad", [0.0, -1.0, nan, inf])
def test_a_shift_needs_positive_numbers(bad: float) -> None:
    with pytest.raises(ValueError, match="sensitivity must be positive"):
        diagonal_shift(sensitivity=bad, dimension=1, step=1.0)
    with pytest.raises(ValueError, match="step must be positive"):
        diagonal_shift(sensitivity=1.0, dimension=1, step=bad)
