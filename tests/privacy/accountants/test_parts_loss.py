"""A person at several parties, each with a coin of its own: golden values and independent oracles.

Oracles: mpmath's integral of (P − e^ε·Q)₊ by high-precision quadrature, and dp-accounting's mixture
of Gaussians. The golden values were computed apart from this code.
"""

from __future__ import annotations

from math import inf

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from scipy.stats import binom

from fedpriv.privacy.accountants import PldAccountant, RdpAccountant, account
from fedpriv.privacy.accountants.parts_loss import (
    added_parts_delta,
    largest_parts_loss,
    removed_parts_delta,
)
from fedpriv.privacy.accountants.sampled_loss import added_delta, removed_delta
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import (
    GaussianEvent,
    PoissonGaussianEvent,
    PoissonPartsEvent,
)
from fedpriv.privacy.planning.calibration import calibrate
from fedpriv.privacy.planning.plan import sampled
from fedpriv.privacy.unit import Unit
from fedpriv.privacy.written_events import event_from_dict

A = Adjacency.ADD_REMOVE


def event(noise: float, rate: float, parts: int) -> PoissonPartsEvent:
    """``noise`` in units of one part."""
    return PoissonPartsEvent(
        adjacency=A,
        unit=Unit.PERSON,
        relative_noise=noise / parts,
        sampling_rate=rate,
        parts=parts,
    )


def by_quadrature(epsilon: float, noise: float, rate: float, parts: int, *, added: bool) -> float:
    """∫(P − e^ε·Q)₊, or with P and Q exchanged; parts of size 1."""
    weights = [
        mpmath.binomial(parts, j) * rate**j * (1 - rate) ** (parts - j) for j in range(parts + 1)
    ]

    def mixture(x: mpmath.mpf) -> mpmath.mpf:
        return mpmath.fsum(w * mpmath.npdf(x, j, noise) for j, w in enumerate(weights))

    def excess(x: mpmath.mpf) -> mpmath.mpf:
        one, other = mixture(x), mpmath.npdf(x, 0, noise)
        one, other = (other, one) if added else (one, other)
        return max(one - mpmath.exp(epsilon) * other, mpmath.mpf(0))

    with mpmath.workdps(30):
        try:
            kink = mpmath.findroot(
                lambda x: (
                    mpmath.log(mixture(x) / mpmath.npdf(x, 0, noise))
                    - (-epsilon if added else epsilon)
                ),
                (0, 1),
                solver="anderson",
            )
        except (ValueError, ZeroDivisionError):
            kink = mpmath.mpf(0)
        low, high = -12 * noise, parts + 12 * noise
        inside = sorted({low, high, *(p for p in (kink, 0, parts) if low < p < high)})
        return float(mpmath.quad(excess, inside))


@pytest.mark.parametrize(
    ("noise", "epsilon", "shared", "independent", "single"),
    [
        (1.0, 1.0, 0.0196478811, 0.00382605182, 2.07121486e-4),
        (2.0, 0.3, 0.00563134953, 0.00167027084, 3.84093343e-5),
    ],
)
def test_one_round_has_the_golden_values(
    noise: float, epsilon: float, shared: float, independent: float, single: float
) -> None:
    at = np.array([epsilon])
    found = removed_parts_delta(at, noise=noise / 2, rate=0.1, parts=2)
    assert found[0] == pytest.approx(independent, rel=1e-8)
    assert removed_delta(at, noise=noise, rate=0.1)[0] == pytest.approx(single, rel=1e-8)
    # One coin for both parties, which would need to know that it is the same person.
    assert removed_delta(at, noise=noise / 2, rate=0.1)[0] == pytest.approx(shared, rel=1e-8)


def test_many_rounds_have_the_golden_values() -> None:
    independent = account([(event(2.0, 0.05, 2), 200)], delta=1e-6).epsilon
    shared = account(
        [(PoissonGaussianEvent(adjacency=A, relative_noise=1.0, sampling_rate=0.05), 200)],
        delta=1e-6,
    ).epsilon
    assert independent == pytest.approx(3.86263, rel=2e-4)
    assert independent is not None
    assert independent >= 3.8625  # never below what a finer grid shows
    assert shared == pytest.approx(5.48586, rel=1e-4)


@pytest.mark.parametrize(("noise", "rate", "parts"), [(1.0, 0.1, 2), (1.5, 0.3, 3), (3.0, 0.02, 5)])
def test_both_orders_agree_with_quadrature(noise: float, rate: float, parts: int) -> None:
    for epsilon in (-0.05, 0.02, 0.1, 0.5, 1.5):
        for added, curve in ((False, removed_parts_delta), (True, added_parts_delta)):
            exact = by_quadrature(epsilon, noise, rate, parts, added=added)
            found = curve(np.array([epsilon]), noise=noise / parts, rate=rate, parts=parts)[0]
            assert found == pytest.approx(exact, rel=1e-7, abs=1e-14), (epsilon, added)


def test_one_part_is_one_sample() -> None:
    at = np.linspace(-0.3, 6, 50)
    for one, other in ((removed_parts_delta, removed_delta), (added_parts_delta, added_delta)):
        np.testing.assert_allclose(
            one(at, noise=0.8, rate=0.2, parts=1), other(at, noise=0.8, rate=0.2), atol=1e-14
        )


@pytest.mark.parametrize(
    ("noise", "rate", "parts"),
    [(1.0, 0.1, 2), pytest.param(2.0, 0.2, 3, marks=pytest.mark.deep)],
)
def test_the_accountant_agrees_with_dp_accounting(noise: float, rate: float, parts: int) -> None:
    step = 1e-3
    reference = privacy_loss_distribution.from_mixture_gaussian_mechanism(
        noise,
        list(range(parts + 1)),
        binom.pmf(range(parts + 1), parts, rate),
        value_discretization_interval=step,
    ).self_compose(20)
    mine = PldAccountant(adjacency=A, unit=Unit.PERSON).compose(event(noise, rate, parts), 20)
    for delta in (1e-3, 1e-6):
        expected = reference.get_epsilon_for_delta(delta)
        assert mine.epsilon(delta) == pytest.approx(expected, rel=2e-3)


def test_renyi_bounds_it_by_as_many_releases_as_parts() -> None:
    """Sound: above the loss distribution; and tight where everything is sampled."""
    for noise, rate, parts in ((1.0, 0.1, 2), (2.0, 0.2, 3), (4.0, 0.01, 2)):
        tight = PldAccountant(adjacency=A, unit=Unit.PERSON).compose(event(noise, rate, parts), 50)
        loose = RdpAccountant(adjacency=A, unit=Unit.PERSON).compose(event(noise, rate, parts), 50)
        assert tight.epsilon(1e-6) <= loose.epsilon(1e-6) * (1 + 1e-3)
    all_ = RdpAccountant(adjacency=A, unit=Unit.PERSON)
    whole = all_.compose(GaussianEvent(adjacency=A, unit=Unit.PERSON, relative_noise=2.0))
    nearly = all_.compose(event(4.0, 1 - 1e-9, 2))
    assert nearly.epsilon(1e-6) == pytest.approx(whole.epsilon(1e-6), rel=1e-6)


def test_calibration_finds_the_noise_and_accounting_confirms_it() -> None:
    found = calibrate(
        epsilon=2.0,
        delta=1e-6,
        rounds=50,
        sampling_rate=0.1,
        adjacency=A,
        unit=Unit.PERSON,
        parts=2,
    )
    (priced, count), *_ = found.releases
    assert isinstance(priced, PoissonPartsEvent)
    assert (priced.parts, priced.unit, count) == (2, Unit.PERSON, 50)
    spent = account(found.releases, delta=1e-6).epsilon
    assert spent is not None
    assert 1.99 < spent <= 2.0
    single = calibrate(epsilon=2.0, delta=1e-6, rounds=50, sampling_rate=0.1, adjacency=A)
    # Two parts need more than one of their size, and less than twice as much of both together.
    assert single.noise_multiplier / 2 < found.noise_multiplier < single.noise_multiplier


def test_the_event_is_written_and_refused_like_all_others() -> None:
    one = event(2.0, 0.1, 3)
    assert event_from_dict(one.to_dict()) == one
    whole = GaussianEvent(adjacency=A, unit=Unit.PERSON, relative_noise=2.0)
    parted = sampled(whole, 0.1, parts=2)
    assert isinstance(parted, PoissonPartsEvent)
    assert (parted.unit, parted.relative_noise) == (Unit.PERSON, 2.0)
    assert sampled(whole, 1.0, parts=2) is whole
    with pytest.raises(ValueError, match="adjacency must be 'add-remove'"):
        PoissonPartsEvent(
            adjacency=Adjacency.REPLACE_ONE, relative_noise=1.0, sampling_rate=0.1, parts=2
        )


def test_little_noise_and_many_parts_overflow_nowhere() -> None:
    with np.errstate(all="raise", under="ignore"):
        for noise, rate, parts in ((0.05, 0.5, 2), (50.0, 0.001, 40), (0.3, 0.9, 10)):
            assert 0 < largest_parts_loss(noise=noise, rate=rate, parts=parts) < inf
            grid = np.linspace(-3, 30, 200)
            for curve in (removed_parts_delta, added_parts_delta):
                delta = curve(grid, noise=noise, rate=rate, parts=parts)
                assert np.isfinite(delta).all()
                assert (np.diff(delta) <= 1e-14).all()
