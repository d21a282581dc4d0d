"""Shares of noise: their exact laws, and enough noise after every drop-out."""

from dataclasses import FrozenInstanceError, replace
from fractions import Fraction
from functools import reduce
from itertools import combinations
from math import sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.mechanisms.shares import NoiseShare, SharedNoise, ShareLaw
from fedpriv.privacy.planning.shares import Sharing
from fedpriv.privacy.randomness import RandomStream
from fedpriv.privacy.samplers import Polya
from tests.privacy.mechanisms.share_laws import SHARES, every_law, one_share
from tests.statistical import assert_counts_follow, assert_mean_is

R = Adjacency.REPLACE_ONE
DRAWS = 200_000


@pytest.fixture
def stream(request: pytest.FixtureRequest) -> RandomStream:
    return RandomStream.seeded(3, request.node.name)


def cells(draws: NDArray[np.int64], pmf: NDArray[np.float64]) -> tuple[Any, Any]:
    """Counts and probabilities of every value expected at least 25 times, and of both tails."""
    middle = pmf.size // 2
    last = int(np.flatnonzero(pmf * draws.size >= 25)[-1]) - middle
    inner = pmf[middle - last : middle + last + 1]
    tail = (1 - inner.sum()) / 2
    counts = np.bincount(np.clip(draws, -last - 1, last + 1) + last + 1, minlength=inner.size + 2)
    return counts, np.array([tail, *inner, tail])


# --- The laws -----------------------------------------------------------------------------------


@every_law
@pytest.mark.parametrize("parties", [1, 3, 5])
def test_the_sum_of_shares_has_the_convolution_of_their_laws(
    law: str, parties: int, stream: RandomStream
) -> None:
    """False failure 1e-9, for one share and for sums, however they are drawn."""
    share = SHARES[law]
    drawn = share.draw_sum(parties, dimension=DRAWS, stream=stream)
    expected = reduce(np.convolve, [one_share(share)] * parties)
    assert_counts_follow(*cells(drawn, expected))


@every_law
def test_half_the_noise_or_a_share_too_few_is_caught(law: str, stream: RandomStream) -> None:
    share = SHARES[law]
    expected = reduce(np.convolve, [one_share(share)] * 5)
    quieter = replace(share, parameter=max(share.parameter / 2, 2.0 if "gauss" in law else 0.0))
    for wrong in (
        quieter.draw_sum(5, dimension=DRAWS, stream=stream),
        share.draw_sum(4, dimension=DRAWS, stream=stream),
    ):
        with pytest.raises(AssertionError, match="outside"):
            assert_counts_follow(*cells(wrong, expected))


def test_any_n_min_polya_shares_are_discrete_laplace_noise(stream: RandomStream) -> None:
    """False failure 1e-9: drawn party by party, n_min of them are the mechanism that is charged."""
    share = SHARES["polya"]
    parts = [share.draw_sum(1, dimension=DRAWS, stream=stream) for _ in range(share.honest)]
    k = np.arange(-300, 301)
    pmf = np.exp(-np.abs(k) / share.parameter)
    assert_counts_follow(*cells(np.sum(parts, axis=0), pmf / pmf.sum()))


@given(honest=st.integers(1, 65_536))
def test_n_min_polya_shares_are_never_less_than_the_whole(honest: int) -> None:
    """1/n is not a double; what is drawn adds up to at least 1, in exact arithmetic."""
    share = NoiseShare(law="polya", parameter=5.0, minimum=honest + 2, colluders=2)
    sampler = share.sampler(1)
    assert isinstance(sampler, Polya)
    assert 1 <= honest * Fraction(sampler.shape) <= 1 + Fraction(1, 2**50)


@every_law
def test_a_share_has_the_variance_it_states(law: str, stream: RandomStream) -> None:
    share = SHARES[law]
    pmf = one_share(share)
    k = np.arange(pmf.size) - pmf.size // 2
    assert share.variance == pytest.approx(float((pmf * k**2).sum()), rel=1e-9)


@every_law
def test_noise_goes_no_further_than_its_reach(law: str, stream: RandomStream) -> None:
    """The tail of the exact law beyond the reach, for small and less small variances."""
    share = SHARES[law]
    for parties in (3, 5):
        pmf = reduce(np.convolve, [one_share(share)] * parties)
        k = np.abs(np.arange(pmf.size) - pmf.size // 2)
        assert pmf[k > share.reach(parties)].sum() <= 2e-10


# --- Drop-outs and colluders --------------------------------------------------------------------


@every_law
def test_every_allowed_pattern_leaves_at_least_the_noise_that_was_accounted(
    law: ShareLaw, stream: RandomStream
) -> None:
    """All sets of survivors and colluders of five parties; seven standard errors each, 3e-12."""
    sharing = Sharing(parties=5, dropout=0.2, colluding=0.2, law=law)
    share = replace(SHARES[law], minimum=sharing.minimum, colluders=sharing.colluders)
    assert (share.minimum, share.colluders, share.honest) == (4, 1, 3)
    shares = [share.draw_sum(1, dimension=DRAWS // 4, stream=stream) for _ in range(5)]
    accounted = share.honest * share.variance
    patterns = 0
    for size in (4, 5):
        for survivors in combinations(range(5), size):
            for colluder in (None, *survivors):
                unknown = [shares[j] for j in survivors if j != colluder]
                squares = np.square(np.sum(unknown, axis=0).astype(float))
                error = 7 * squares.std() / sqrt(squares.size)
                assert squares.mean() >= accounted - error
                assert_mean_is(squares, len(unknown) * share.variance, float(squares.var()))
                patterns += 1
    assert patterns == 5 * 5 + 6
    # Teeth: one drop-out more than allowed leaves too little, and is seen.
    few = np.square(np.sum(shares[:2], axis=0).astype(float))
    assert few.mean() < accounted - 7 * few.std() / sqrt(few.size)


# --- Values -------------------------------------------------------------------------------------


@every_law
def test_a_share_is_a_frozen_value_and_a_mechanism_draws_n_min_of_them(law: str) -> None:
    share = SHARES[law]
    with pytest.raises(FrozenInstanceError):
        share.minimum = 1  # type: ignore[misc]
    mechanism = SharedNoise(
        adjacency=R, share=share, l1_sensitivity=3.0, l2_sensitivity=2.0, dimension=5, step=0.5
    )
    noise = mechanism.noise((5,), step=0.5, stream=RandomStream.seeded(4))
    same = share.draw_sum(share.honest, dimension=5, stream=RandomStream.seeded(4))
    assert (noise == same).all()
    assert mechanism.noise_stddev == pytest.approx(0.5 * sqrt(3 * share.variance))
    assert law in mechanism.title
    with pytest.raises(ValueError, match=r"step must be 0\.5"):
        mechanism.noise((5,), step=0.25, stream=RandomStream.seeded(4))
    with pytest.raises(ValueError, match="dimension = 5"):
        mechanism.noise((4,), step=0.5, stream=RandomStream.seeded(4))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"law": "gaussian"}, "law must be one of"),
        ({"parameter": 0.0}, "parameter must be positive"),
        ({"parameter": float("nan")}, "parameter must be positive"),
        ({"minimum": 0}, "minimum must be an integer"),
        ({"minimum": 2.5}, "minimum must be an integer"),
        ({"colluders": -1}, "colluders must be an integer"),
        ({"colluders": 4}, "somebody must add noise"),
        ({"colluders": True}, "colluders must be an integer"),
    ],
)
def test_a_share_that_makes_no_sense_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(SHARES["skellam"], **changes)
