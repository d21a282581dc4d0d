"""Attacks on mechanisms: noise that is not the one charged for, used twice, or lost.

Most tests are deterministic; the others state their false-failure probability.
"""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import fedpriv.privacy.mechanisms.laplace as laplace_module
from fedpriv.privacy import means
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.mechanisms import (
    DiscreteGaussianMechanism,
    DiscreteLaplaceMechanism,
    GaussianMechanism,
    L1LaplaceMechanism,
    L2LaplaceMechanism,
    Mechanism,
    SkellamMechanism,
    UnsoundLaplaceMechanism,
)
from fedpriv.privacy.mechanisms.selection import ExponentialMechanism, ReportNoisyMax, Selection
from fedpriv.privacy.randomness import RandomStream
from fedpriv.privacy.samplers import (
    DiscreteGaussian,
    DiscreteLaplace,
    RoundedGaussian,
    RoundedLaplace,
    Skellam,
)

A = Adjacency.ADD_REMOVE
Sampler = DiscreteGaussian | DiscreteLaplace | RoundedGaussian | RoundedLaplace | Skellam


# --- Mechanisms -----------------------------------------------------------------------------------


PAIRS: list[tuple[Mechanism, Sampler, float]] = [
    (
        GaussianMechanism(sensitivity=1.0, stddev=3.0, adjacency=A),
        RoundedGaussian(stddev=12.0),
        0.25,
    ),
    (
        L1LaplaceMechanism(sensitivity=1.0, epsilon=0.5, dimension=4, adjacency=A),
        RoundedLaplace(scale=16.0),
        0.25,
    ),
    (
        UnsoundLaplaceMechanism(sensitivity=1.0, epsilon=0.5, dimension=4, adjacency=A),
        RoundedLaplace(scale=8.0),
        0.25,
    ),
    (
        DiscreteLaplaceMechanism(sensitivity=3, epsilon=0.5, adjacency=A),
        DiscreteLaplace(scale=6.0),
        0.25,
    ),
    (
        DiscreteGaussianMechanism(sensitivity=1.0, stddev=3.0, adjacency=A),
        DiscreteGaussian(stddev=3.0),
        4.0,
    ),
    (
        SkellamMechanism(l1_sensitivity=1.0, l2_sensitivity=1.0, variance=9.0, adjacency=A),
        Skellam(variance=9.0),
        4.0,
    ),
]


@pytest.mark.parametrize(("mechanism", "sampler", "step"), PAIRS, ids=lambda x: str(x)[:20])
def test_a_mechanism_draws_exactly_what_its_event_is_charged_for(
    mechanism: Mechanism, sampler: Sampler, step: float
) -> None:
    """To the bit: even a thousandth less noise would be another sequence."""
    noise = mechanism.noise((1000, 4), step=step, stream=RandomStream.seeded(5))
    assert (noise.ravel() == sampler.draw(4000, RandomStream.seeded(5))).all()


def test_the_l2_form_multiplies_its_scale_into_the_normals_exactly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Any] = []

    def gamma(halves: int, count: int, stream: object) -> NDArray[np.float64]:
        seen.append((halves, count))
        return np.array([8.0, 2.0])

    def normals(stddevs: NDArray[np.float64], stream: object) -> NDArray[np.int64]:
        seen.append(stddevs.tolist())
        return np.zeros(stddevs.size, dtype=np.int64)

    monkeypatch.setattr(laplace_module, "_gamma_half", gamma)
    monkeypatch.setattr(laplace_module, "rounded_normals", normals)
    mechanism = L2LaplaceMechanism(sensitivity=1.0, epsilon=0.5, dimension=3, adjacency=A)
    mechanism.noise((2, 3), step=0.25, stream=RandomStream.seeded(0))
    # (Δ/ε/step)·√(2V), V ~ Gamma((3 + 1)/2), one for each release.
    assert seen == [(4, 2), [32.0] * 3 + [16.0] * 3]


def test_the_l2_form_refuses_more_than_2_to_the_36_steps() -> None:
    mechanism = L2LaplaceMechanism(sensitivity=1.0, epsilon=1.0, dimension=3, adjacency=A)
    mechanism.noise((3,), step=2.0**-35, stream=RandomStream.seeded(0))
    with pytest.raises(ValueError, match="coarser"):
        mechanism.noise((3,), step=2.0**-35.5, stream=RandomStream.seeded(0))


WIDE: list[tuple[Mechanism, float]] = [
    (GaussianMechanism(sensitivity=1.0, stddev=1.0, adjacency=A), 2.0**-40),
    (L1LaplaceMechanism(sensitivity=1.0, epsilon=1.0, dimension=50, adjacency=A), 2.0**-36),
    (L2LaplaceMechanism(sensitivity=1.0, epsilon=1.0, dimension=50, adjacency=A), 2.0**-33),
    (DiscreteLaplaceMechanism(sensitivity=2**40, epsilon=1.0, adjacency=A), 1.0),
    (DiscreteGaussianMechanism(sensitivity=1.0, stddev=2.0**40, adjacency=A), 1.0),
    (
        SkellamMechanism(l1_sensitivity=1.0, l2_sensitivity=1.0, variance=2.0**80, adjacency=A),
        1.0,
    ),
]


def repeats(noise: NDArray[np.int64]) -> int:
    return noise.size - np.unique(np.abs(noise)).size


@pytest.mark.parametrize(("mechanism", "step"), WIDE, ids=lambda x: getattr(x, "name", ""))
def test_no_noise_is_used_twice_in_a_release_or_in_two(mechanism: Mechanism, step: float) -> None:
    """1000 draws over 2^36 values or more, signs aside: two chance repeats have 2e-11.

    A half that repeats or mirrors the other is caught.
    """
    noise = mechanism.noise((20, 50), step=step, stream=RandomStream.seeded(77, mechanism.name))
    assert repeats(noise) <= 1
    assert repeats(np.concatenate([noise, -noise])) > 1


@pytest.mark.parametrize(("mechanism", "step"), WIDE, ids=lambda x: getattr(x, "name", ""))
def test_every_coordinate_has_the_stated_deviation_and_none_tells_another(
    mechanism: Mechanism, step: float
) -> None:
    """1275 second moments of 20 000 draws at eight standard errors: 2e-12 by the normal tail."""
    stream = RandomStream.seeded(78, mechanism.name)
    noise = mechanism.noise((20_000, 50), step=step, stream=stream).astype(np.float64) * step

    def plausible(draws: NDArray[np.float64]) -> bool:
        second = draws.T @ draws / len(draws)
        squares = np.square(draws)
        error = np.sqrt(squares.T @ squares) / len(draws)
        expected = np.eye(50) * mechanism.noise_stddev**2
        return bool((np.abs(second - expected) <= 8 * error).all())

    assert plausible(noise)
    noise[:, 2] *= 0.8
    assert not plausible(noise)
    noise[:, 2] = noise[:, 1]
    assert not plausible(noise)


def test_a_mask_over_a_sum_does_not_hide_it_from_the_noise() -> None:
    """A stream of width 1e9 leaves a coordinate unchanged with probability 4e-10."""
    mechanism = GaussianMechanism(sensitivity=1.0, stddev=1e9, adjacency=A)
    total = np.ma.array(np.array([31_337, 42], dtype=np.int64), mask=[True, False])
    released = mechanism.release(total, step=1.0, stream=RandomStream.seeded(3))
    assert type(released) is np.ndarray
    assert released[0] != 31_337


@pytest.mark.parametrize("kind", [L1LaplaceMechanism, L2LaplaceMechanism, UnsoundLaplaceMechanism])
def test_no_noise_is_lost_where_floats_lose_their_digits(kind: Any) -> None:
    """5e-324/0.67 rounds to 5e-324: a third of the noise would be gone."""
    tiny = kind(sensitivity=5e-324, epsilon=0.67, dimension=1, adjacency=A)
    usual = kind(sensitivity=1.0, epsilon=0.67, dimension=1, adjacency=A)
    drawn = [
        mechanism.noise((1000, 1), step=step, stream=RandomStream.seeded(1))
        for mechanism, step in ((tiny, 5e-324), (usual, 1.0))
    ]
    assert (drawn[0] == drawn[1]).all()


# --- Selection and means --------------------------------------------------------------------------


def exponents_of(rule: type[Selection], scores: Any, **parameters: Any) -> list[float]:
    """What the coins of a rule are flipped with."""
    seen: list[float] = []

    class Spy(rule):  # type: ignore[misc, valid-type]
        __slots__ = ()

        def _choose(self, exponents: NDArray[np.float64], stream: RandomStream) -> int:
            seen.extend(exponents.tolist())
            return 0

    Spy(adjacency=A, **parameters).select(scores, RandomStream.seeded(0))
    return seen


both_rules = pytest.mark.parametrize("rule", [ExponentialMechanism, ReportNoisyMax])


@both_rules
def test_coins_fall_with_exactly_the_stated_rate(rule: type[Selection]) -> None:
    for monotone, rate in ((False, 0.25), (True, 0.5)):
        exponents = exponents_of(
            rule, [1.0, 4.0, 2.0], epsilon=1.0, sensitivity=2.0, monotone=monotone
        )
        assert exponents == [3 * rate, 0.0, 2 * rate]


@both_rules
def test_integer_scores_keep_their_differences_beyond_2_to_the_53(rule: type[Selection]) -> None:
    """As float64, 2^53 + 1 and 2^53 + 3 are 4 apart: neighbours would differ by twice ε."""
    base = 2**53
    for scores in ([base + 1, base + 3], np.array([base + 1, base + 3])):
        assert exponents_of(rule, scores, epsilon=2.0, sensitivity=1.0) == [2.0, 0.0]
    whole = np.array([-(2**63), 2**63 - 1])
    assert exponents_of(rule, whole, epsilon=2.0, sensitivity=1.0) == [2.0**64, 0.0]


@both_rules
def test_a_rate_beyond_float64_is_refused(rule: type[Selection]) -> None:
    with pytest.raises(ValueError, match="rate must be positive and finite"):
        rule(epsilon=1e200, sensitivity=1e-200, adjacency=A)


def test_means_ask_for_exactly_the_noise_of_their_sensitivity(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[int, float, Adjacency]] = []

    def spy(*, sensitivity: int, epsilon: float, adjacency: Adjacency) -> DiscreteLaplaceMechanism:
        asked.append((sensitivity, epsilon, adjacency))
        return DiscreteLaplaceMechanism(
            sensitivity=sensitivity, epsilon=epsilon, adjacency=adjacency
        )

    monkeypatch.setattr(means, "DiscreteLaplaceMechanism", spy)
    stream = RandomStream.seeded(0)
    means.clipped_mean([1.0, 2.0], clip=1.0, epsilon=0.5, stream=stream)
    means.binary_mean([1, 0], epsilon=0.5, stream=stream)
    replace_one = Adjacency.REPLACE_ONE
    assert asked == [(2 * means._GRID, 0.5, replace_one), (1, 0.5, replace_one)]
