from math import inf, log, nan, sqrt

import numpy as np
import pytest

from fedpriv.secagg.numbers.fixed_point import FixedPoint
from fedpriv.secagg.numbers.stochastic_rounding import StochasticRounding
from tests.statistical import assert_mean_is


def rounding(clip: float = 10.0, dimension: int = 50, step: float = 1.0) -> StochasticRounding:
    return StochasticRounding(grid=FixedPoint(step=step), clip_norm=clip, dimension=dimension)


@pytest.mark.parametrize(("clip", "dimension"), [(10.0, 50), (0.3, 4), (1000.0, 7), (2.0, 1)])
def test_the_norm_never_exceeds_the_bound(clip: float, dimension: int) -> None:
    generator = np.random.default_rng(1)
    law = rounding(clip, dimension)
    for _ in range(300):
        answer = generator.normal(size=dimension) * generator.choice([0.01, 1.0, 100.0]) * clip
        z = law.grid.decode(law.encode(answer, generator.random))
        assert sqrt((z.astype(float) ** 2).sum()) <= law.l2_norm
        assert np.abs(z).sum() <= law.l1_norm


def test_the_bound_is_the_formula_of_the_literature() -> None:
    s, c, d = 8.0, 10.0, 50
    beta = np.exp(-0.5)
    law = rounding(c, d, step=1 / s)
    likely = (s * c) ** 2 + d / 4 + sqrt(2 * log(1 / beta)) * (s * c + sqrt(d) / 2)
    assert law.l2_norm == pytest.approx(min(s * c + sqrt(d), sqrt(likely)), rel=1e-14)
    tiny = rounding(0.25, 1)
    assert tiny.l2_norm == pytest.approx(min(1.25, sqrt(0.0625 + 0.25 + 0.75)), rel=1e-14)


def test_a_rounding_beyond_the_bound_is_drawn_again() -> None:
    """Zeros round every fraction up, which is too long; the halves that follow are not."""
    law = rounding(clip=5.0, dimension=100)
    draws = iter([np.zeros(100), np.full(100, 0.9)])
    answer = np.full(100, 0.5)
    assert (law.encode(answer, lambda _: next(draws)) == 0).all()
    with pytest.raises(StopIteration):
        next(draws)


def test_rounding_has_the_right_mean_when_nothing_is_rejected() -> None:
    """A short vector in a wide bound: 400 000 coordinates of 0.3, false failure below 1e-11."""
    law = rounding(clip=1e6, dimension=400_000)
    z = law.grid.decode(law.encode(np.full(400_000, 0.3), np.random.default_rng(2).random))
    assert set(np.unique(z)) == {0, 1}
    assert_mean_is(z.astype(np.float64), mean=0.3, variance=0.21)


def test_the_check_of_the_mean_has_teeth() -> None:
    law = rounding(clip=1e6, dimension=400_000)
    skewed = law.encode(np.full(400_000, 0.3), lambda n: np.random.default_rng(2).random(n) ** 1.05)
    with pytest.raises(AssertionError, match="outside"):
        assert_mean_is(law.grid.decode(skewed).astype(np.float64), mean=0.3, variance=0.21)


def test_a_long_answer_is_clipped_and_keeps_its_direction() -> None:
    law = rounding(clip=1000.0, dimension=2)
    z = law.grid.decode(law.encode(np.array([3e9, -4e9]), np.random.default_rng(3).random))
    assert np.abs(z - [600, -800]).max() <= 1


@pytest.mark.parametrize("bad", [nan, inf, 1e200])
def test_an_answer_that_is_not_finite_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="must be finite"):
        rounding(dimension=3).encode(np.array([0.0, bad, 1.0]), np.random.default_rng(0).random)


def test_a_wrong_shape_is_refused() -> None:
    with pytest.raises(ValueError, match="shape"):
        rounding(dimension=3).encode(np.zeros(4), np.random.default_rng(0).random)


def test_a_clip_norm_beyond_the_ring_is_refused() -> None:
    with pytest.raises(ValueError, match="clip_norm must be below"):
        rounding(clip=2.0**31)


def test_a_broken_source_of_numbers_does_not_loop_for_ever() -> None:
    with pytest.raises(RuntimeError, match="broken"):
        rounding(clip=5.0, dimension=100).encode(np.full(100, 0.5), np.zeros)
