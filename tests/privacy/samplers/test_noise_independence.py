"""Noise must be new every time: no draw repeats, mirrors or shrinks another.

The marginal law of each draw is tested elsewhere; noise that repeats itself has the right marginals
and cancels.
"""

import os

import numpy as np
import pytest
from scipy.stats import chi2, norm

from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.mechanisms import GaussianMechanism, L1LaplaceMechanism, Mechanism
from fedpriv.privacy.randomness import RandomStream
from fedpriv.privacy.samplers import DiscreteGaussian, DiscreteLaplace, RoundedGaussian, Skellam

FALSE_FAILURE = 1e-9
SAMPLERS = [
    DiscreteGaussian(stddev=1e6),
    RoundedGaussian(stddev=1e6),
    DiscreteLaplace(scale=1e6),
    Skellam(variance=1e12),
]
COUNT = 1 << 17  # four chunks of the samplers


def assert_uncorrelated(left: np.ndarray, right: np.ndarray, *, pairs: int) -> None:
    """Reject independent draws with probability `FALSE_FAILURE`, over ``pairs`` such checks.

    The correlation of n independent pairs is normal with deviation 1/sqrt(n), up to terms that n in
    the tens of thousands makes negligible at this level.
    """
    limit = norm.isf(FALSE_FAILURE / (2 * pairs)) / np.sqrt(left.size)
    assert abs(np.corrcoef(left, right)[0, 1]) < limit


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda s: type(s).__name__)
@pytest.mark.parametrize("lag", [1, 2, COUNT // 4, COUNT // 2])
def test_a_draw_does_not_repeat_or_mirror_an_earlier_one(
    sampler: DiscreteGaussian, lag: int
) -> None:
    draws = sampler.draw(COUNT, RandomStream.seeded(1, "independence", lag)).astype(np.float64)
    assert_uncorrelated(draws[:-lag], draws[lag:], pairs=16)
    assert_uncorrelated(np.abs(draws[:-lag]), np.abs(draws[lag:]), pairs=16)


def test_the_check_finds_a_half_that_repeats_and_one_that_mirrors() -> None:
    half = SAMPLERS[0].draw(COUNT // 2, RandomStream.seeded(2)).astype(np.float64)
    with pytest.raises(AssertionError):
        assert_uncorrelated(half, half, pairs=16)
    with pytest.raises(AssertionError):
        assert_uncorrelated(half, -half, pairs=16)


@pytest.mark.parametrize(
    "mechanism",
    [
        GaussianMechanism(sensitivity=1, stddev=1e6, adjacency=Adjacency.ADD_REMOVE),
        L1LaplaceMechanism(
            sensitivity=1, epsilon=1e-3, dimension=4096, adjacency=Adjacency.ADD_REMOVE
        ),
    ],
    ids=lambda m: m.name,
)
def test_two_releases_of_one_sum_have_independent_noise(mechanism: Mechanism) -> None:
    stream, total = RandomStream.from_os(), np.zeros(4096, dtype=np.int64)
    first = mechanism.release(total, step=1.0, stream=stream)
    second = mechanism.release(total, step=1.0, stream=stream)
    # Of the Laplace draws 0.016 coincide on average, and more than 4 with probability 1e-11. If
    # noise repeats, all of them do.
    assert np.count_nonzero((first == second) & (np.abs(first) > 100)) <= 4
    assert_uncorrelated(first, second, pairs=2)


def squares_are_those_of(stddev: float, draws: np.ndarray) -> bool:
    """Sum of squares / stddev² is chi-squared; rounding adds 1/12, far below its resolution."""
    statistic = float(np.square(draws / stddev).sum())
    low = chi2.ppf(FALSE_FAILURE / 2, draws.size)
    return bool(low <= statistic <= chi2.isf(FALSE_FAILURE / 2, draws.size))


def test_gaussian_noise_is_not_three_parts_in_a_thousand_too_small() -> None:
    """0.3 % less noise is 0.6 % less variance: 8 standard deviations of 4 million draws."""
    count, stddev = 4_000_000, 1e5
    draws = RoundedGaussian(stddev=stddev).draw(count, RandomStream.seeded(3)).astype(np.float64)
    assert squares_are_those_of(stddev, draws)
    assert not squares_are_those_of(stddev, draws * 0.997)


def test_children_of_a_fork_share_no_noise_with_their_parent_or_each_other() -> None:
    stream = RandomStream.from_os()
    stream.words(1)
    outputs = []
    for _ in range(3):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:  # pragma: no cover (another process)
            os.write(write, stream.bytes(64))
            os._exit(0)
        os.waitpid(child, 0)
        outputs.append(os.read(read, 64))
        os.close(read)
        os.close(write)
    outputs.append(stream.bytes(64))
    assert len(set(outputs)) == 4
    words = np.stack([np.frombuffer(out, dtype=np.uint64) for out in outputs])
    assert np.unique(words).size == words.size


def test_a_child_takes_its_key_from_the_operating_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not from the parent's key or from a process number, which an observer may know."""
    asked: list[int] = []
    urandom = os.urandom

    def counted(size: int) -> bytes:
        asked.append(size)
        return urandom(size)

    stream = RandomStream.from_os()
    monkeypatch.setattr(os, "urandom", counted)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    stream.words(1)
    assert asked == [32]
