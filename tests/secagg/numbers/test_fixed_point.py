from fractions import Fraction
from itertools import product
from math import inf, isfinite, nan, nextafter, sqrt

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedpriv.secagg.numbers.fixed_point import NOISE_DEVIATIONS, FixedPoint, l1_bound

GRID = FixedPoint(step=0.25)


def _rounded(grid: FixedPoint, points: np.ndarray) -> np.ndarray:
    return grid.decode(grid.encode(points.ravel())).reshape(points.shape)


@given(
    arrays(np.float64, st.integers(0, 20), elements=st.floats(-1e6, 1e6)),
    st.integers(-20, 10),
    st.sampled_from([32, 64]),
)
def test_encoding_rounds_to_the_nearest_grid_point(
    answer: np.ndarray, exponent: int, bits: int
) -> None:
    assume(bits == 64 or exponent > -10)
    grid = FixedPoint(step=2.0**exponent, bits=bits)
    integers = grid.decode(grid.encode(answer))
    assert np.abs(answer - integers * grid.step).max(initial=0.0) <= grid.step / 2


def test_ties_go_to_the_even_neighbour() -> None:
    answer = np.array([0.125, 0.375, -0.125, -0.375, 0.625])
    assert GRID.decode(GRID.encode(answer)).tolist() == [0, 2, 0, -2, 2]


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize(("parties", "dimension"), [(0, 3), (1, 1), (7, 70_001), (300, 784)])
def test_a_batched_sum_is_the_sum_of_single_encodings(
    bits: int, parties: int, dimension: int
) -> None:
    grid = FixedPoint(step=2.0**-12, bits=bits)
    answers = np.random.default_rng(parties).normal(size=(parties, dimension)) * 1e2
    singly = np.zeros(dimension, dtype=grid.dtype)
    for answer in answers:
        singly += grid.encode(answer)
    total = grid.encode_sum(answers)
    assert total.dtype == grid.dtype
    assert (total == singly).all()
    assert (grid.decode(total) == np.rint(answers / grid.step).sum(axis=0)).all()


@pytest.mark.parametrize("exponent", [40, 51, 52, 53, 62])
def test_a_sum_of_large_integers_is_exact_beyond_the_precision_of_a_float(exponent: int) -> None:
    rng = np.random.default_rng(exponent)
    answers = rng.integers(-(2**exponent), 2**exponent, size=(500, 7)).astype(np.float64)
    total = FixedPoint(step=1.0, bits=64).encode_sum(answers, bound=2.0**exponent)
    exact = [sum(map(int, column)) % 2**64 for column in answers.T]
    assert total.tolist() == exact


def test_a_batch_may_be_any_view_of_memory() -> None:
    answers = np.asfortranarray(np.random.default_rng(0).normal(size=(50, 40)))[::2, ::-1]
    assert (GRID.encode_sum(answers) == GRID.encode_sum(answers.copy())).all()


def _exact(answers: np.ndarray, grid: FixedPoint, bound: float) -> list[int] | None:
    """The definition in integers and fractions, sharing no arithmetic with the code."""
    top = 2**31 - 1 if grid.bits == 32 else int(nextafter(2.0**63, 0))
    totals = [0] * answers.shape[1]
    for row in answers.tolist():
        for k, value in enumerate(row):
            if not (isfinite(value) and abs(value) <= bound):
                return None
            steps = Fraction(value) / Fraction(grid.step)
            if abs(steps) > top:
                return None
            totals[k] += round(steps)  # ties to even
    return [total % 2**grid.bits for total in totals]


def _laid_out(answers: np.ndarray, layout: str) -> np.ndarray:
    m, d = answers.shape
    match layout:
        case "columns first":
            return np.asfortranarray(answers)
        case "backwards":
            return answers[::-1, ::-1].copy()[::-1, ::-1]
        case "between others":
            wide = np.full((2 * m, 3 * d), nan)
            wide[::2, 1::3] = answers
            return wide[::2, 1::3]
        case "odd addresses":
            odd = np.zeros(answers.nbytes + 1, np.uint8)[1:].view(np.float64).reshape(m, d)
            odd[...] = answers
            return odd
    answers.flags.writeable = False
    return answers


@given(
    exponent=st.one_of(st.integers(-500, 499), st.sampled_from([-500, -12, 0, 499])),
    bits=st.sampled_from([32, 64]),
    shape=st.tuples(st.integers(0, 5), st.sampled_from([0, 1, 3, 8, 17, 1023, 1025, 2050])),
    scale=st.sampled_from([1, 2, 2**9, 2**29, 2**50, 2**60]),
    odd=st.sampled_from([0.0, -0.0, 0.5, -1.5, 2.5, 5e-324, 2.0**31, 2.0**63, nan, inf, -inf]),
    bound=st.sampled_from([0.0, 0.5, 1.5, 2.0**31 - 0.5, inf]),
    layout=st.sampled_from(
        ["read-only", "columns first", "backwards", "between others", "odd addresses"]
    ),
    seed=st.integers(0, 2**32 - 1),
)
def test_every_sum_is_that_of_exact_arithmetic_or_refused(
    exponent: int,
    bits: int,
    shape: tuple[int, int],
    scale: int,
    odd: float,
    bound: float,
    layout: str,
    seed: int,
) -> None:
    """In any memory layout, at any step, with halves and what is out of bounds at any place."""
    grid = FixedPoint(step=2.0**exponent, bits=bits)
    rng = np.random.default_rng(seed)
    answers = rng.integers(-4 * scale, 4 * scale, size=shape) / 2 * grid.step
    if answers.size:
        answers.flat[rng.integers(answers.size)] = odd * grid.step
    expected = _exact(answers, grid, bound * grid.step)
    if expected is None:
        with pytest.raises(ValueError, match="Nothing was encoded"):
            grid.encode_sum(_laid_out(answers, layout), bound=bound * grid.step)
    else:
        total = grid.encode_sum(_laid_out(answers, layout), bound=bound * grid.step)
        assert total.tolist() == expected


def test_numbers_of_another_byte_order_are_refused_and_not_misread() -> None:
    with pytest.raises(ValueError, match="must be float64"):
        GRID.encode_sum(np.ones((2, 3)).astype(">f8"))


@pytest.mark.parametrize("bits", [32, 64])
def test_the_largest_integers_survive_and_the_next_ones_are_refused(bits: int) -> None:
    grid = FixedPoint(step=1.0, bits=bits)
    top = 2.0**31 - 1 if bits == 32 else nextafter(2.0**63, 0)
    answer = np.array([top, -top])
    assert grid.decode(grid.encode(answer)).tolist() == [int(top), -int(top)]
    for beyond in (2.0 ** (bits - 1), -(2.0 ** (bits - 1)), 1e300):
        with pytest.raises(ValueError, match="the ring"):
            grid.encode(np.array([beyond]))


def test_a_sum_beyond_the_ring_wraps_and_a_planned_one_does_not() -> None:
    answers = np.full((3, 1), 2.0**30)
    assert (
        FixedPoint(step=1.0).decode(FixedPoint(step=1.0).encode_sum(answers)) == 3 * 2**30 - 2**32
    )
    grid = FixedPoint.for_sum(
        bound=3 * 2.0**30, sensitivity=2.0**20, dimension=1, noise_stddev=0.0, parties=3
    )
    assert grid.decode(grid.encode_sum(answers)) * grid.step == 3 * 2.0**30


@pytest.mark.parametrize("bad", [nan, inf, -inf, 1e308, 1.0000001])
def test_what_is_not_finite_or_beyond_the_bound_is_refused(bad: float) -> None:
    answers = np.zeros((3, 5))
    GRID.encode_sum(answers + 1.0, bound=1.0)
    answers[1, 4] = bad
    with pytest.raises(ValueError, match=r"must be finite, within ±1\.0"):
        GRID.encode_sum(answers, bound=1.0)


def test_an_error_does_not_repeat_the_answer() -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        GRID.encode(np.array([1.0, 123456.789]), bound=10.0)
    assert "123456" not in str(caught.value)


@pytest.mark.parametrize(
    "answers", [np.zeros(3), np.zeros((2, 3, 4)), np.zeros((2, 3), np.float32)]
)
def test_a_wrong_shape_or_type_is_refused(answers: np.ndarray) -> None:
    with pytest.raises(ValueError, match="shape"):
        GRID.encode_sum(answers)
    with pytest.raises(ValueError, match=r"shape|float64"):
        GRID.encode(answers[0])


def test_decoding_refuses_another_ring() -> None:
    with pytest.raises(ValueError, match="total must be uint32"):
        GRID.decode(np.zeros(3, dtype=np.uint64))


@pytest.mark.parametrize("step", [0.3, 0.0, -0.5, nan, inf, 2.0**-600, 2.0**600])
def test_a_step_that_is_no_power_of_two_is_refused(step: float) -> None:
    with pytest.raises(ValueError, match="step must be"):
        FixedPoint(step=step)


def test_only_two_rings_exist() -> None:
    with pytest.raises(ValueError, match="bits must be 32 or 64"):
        FixedPoint(step=1.0, bits=16)


@pytest.mark.parametrize("dimension", [1, 2, 3])
@pytest.mark.parametrize("step", [1.0, 0.25])
def test_rounding_never_exceeds_the_stated_sensitivity(dimension: int, step: float) -> None:
    """Brute force over pairs of a lattice around ties, where rounding moves answers most."""
    grid = FixedPoint(step=step)
    axis = step * (np.arange(-1.5, 1.5001, 0.25) + 1e-9)
    points = np.array(list(product(axis, repeat=dimension)))
    corner = np.full((1, dimension), step * (0.5 - 1e-9))
    first = np.concatenate([corner, points[:: max(1, len(points) // 40)]])
    moved = _rounded(grid, points)[None] - _rounded(grid, first)[:, None]
    l2, l1 = np.linalg.norm(moved, axis=-1), np.abs(moved).sum(axis=-1)
    distance = np.linalg.norm(points[None] - first[:, None], axis=-1)
    for i, j in product(range(len(first)), range(len(points))):
        delta = float(distance[i, j])
        assert l2[i, j] <= grid.l2_sensitivity(sensitivity=delta, dimension=dimension)
        assert l1[i, j] <= grid.l1_sensitivity(sensitivity=delta, dimension=dimension)


def test_the_stated_sensitivity_is_reached() -> None:
    """A bound without the √d would be wrong: answers a hair apart round to opposite corners."""
    low, high = np.full(9, 0.5 - 1e-9), np.full(9, 0.5 + 1e-9)
    grid = FixedPoint(step=1.0)
    moved = np.linalg.norm(_rounded(grid, high) - _rounded(grid, low))
    delta = float(np.linalg.norm(high - low))
    bound = grid.l2_sensitivity(sensitivity=delta, dimension=9)
    assert delta < 1e-7 < moved <= bound < moved + 1e-7


@given(arrays(np.int64, st.integers(1, 6), elements=st.integers(-4, 4)))
def test_the_l1_bound_holds_for_all_integer_vectors(vector: np.ndarray) -> None:
    l2 = float(np.sqrt((vector**2).sum()))
    assert np.abs(vector).sum() <= l1_bound(nextafter(l2, inf), vector.size)


@given(
    st.floats(1e-6, 1e9),
    st.floats(1e-6, 1e3),
    st.integers(1, 10**7),
    st.floats(0, 1e6),
    st.sampled_from([0.001, 0.01, 0.1]),
    st.integers(1, 65_536),
)
def test_a_planned_grid_meets_both_promises_in_the_smallest_ring(
    bound: float, sensitivity: float, dimension: int, noise: float, inflation: float, parties: int
) -> None:
    try:
        grid = FixedPoint.for_sum(
            bound=bound,
            sensitivity=sensitivity,
            dimension=dimension,
            noise_stddev=noise,
            inflation=inflation,
            parties=parties,
        )
    except ValueError:
        grid = None
    reach = bound + NOISE_DEVIATIONS * noise

    def fits(step: float, bits: int) -> bool:
        return bool(reach / step + parties / 2 <= 2 ** (bits - 1) - 1)

    def calm(step: float) -> bool:
        return sqrt(dimension) * step <= inflation * sensitivity * (1 + 1e-12)

    steps = [2.0**e for e in range(-200, 100)]
    possible = [(s, b) for b in (32, 64) for s in steps if fits(s, b) and calm(s)]
    if grid is None:
        assert not possible
        return
    assert fits(grid.step, grid.bits)
    assert calm(grid.step)
    assert grid.bits == min(bits for _, bits in possible)


def test_the_specified_sizes_get_the_specified_rings() -> None:
    """A million records of clip norm 1, replace-one: 784 coordinates fit 32 bits at +0.7 %."""
    grid = FixedPoint.for_sum(bound=1e6, sensitivity=2.0, dimension=784, noise_stddev=100.0)
    inflation = grid.l2_sensitivity(sensitivity=2.0, dimension=784) * grid.step / 2.0 - 1
    assert grid.bits == 32
    assert 0.006 < inflation < 0.0075
    wide = FixedPoint.for_sum(bound=1e6, sensitivity=2.0, dimension=10**6, noise_stddev=100.0)
    assert wide.bits == 64


def test_an_impossible_plan_is_refused_before_the_start() -> None:
    with pytest.raises(ValueError, match="does not fit 64 bits"):
        FixedPoint.for_sum(bound=1e15, sensitivity=1e-6, dimension=10**6, noise_stddev=0.0)


@pytest.mark.parametrize("name", ["bound", "sensitivity", "inflation", "noise_stddev", "dimension"])
def test_a_plan_names_the_parameter_that_is_wrong(name: str) -> None:
    given_values = {
        "bound": 1.0,
        "sensitivity": 1.0,
        "dimension": 3,
        "noise_stddev": 1.0,
        "inflation": 0.01,
    }
    with pytest.raises(ValueError, match=f"{name} must be"):
        FixedPoint.for_sum(**{**given_values, name: -1})  # type: ignore[arg-type]
