from dataclasses import FrozenInstanceError, fields, replace
from functools import partial
from math import inf, nan, sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import gamma, laplace, norm

import fedpriv.privacy.mechanisms as package
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import (
    GaussianEvent,
    LaplaceEvent,
    PureEvent,
    SkellamEvent,
    ZcdpEvent,
)
from fedpriv.privacy.mechanisms import (
    DiscreteGaussianMechanism,
    DiscreteLaplaceMechanism,
    GaussianMechanism,
    L1LaplaceMechanism,
    L2LaplaceMechanism,
    LaplaceMechanism,
    Mechanism,
    SkellamMechanism,
    UnsoundLaplaceMechanism,
)
from fedpriv.privacy.randomness import RandomStream
from tests.statistical import assert_distribution_follows, assert_gaussian_scale, assert_mean_is

ADJACENCY = Adjacency.REPLACE_ONE
EVERY: list[Mechanism] = [
    GaussianMechanism(sensitivity=2.0, stddev=3.0, adjacency=ADJACENCY),
    L2LaplaceMechanism(sensitivity=2.0, epsilon=0.5, dimension=5, adjacency=ADJACENCY),
    L1LaplaceMechanism(sensitivity=2.0, epsilon=0.5, dimension=5, adjacency=ADJACENCY),
    LaplaceMechanism(sensitivity=2.0, epsilon=0.5, dimension=5, adjacency=ADJACENCY),
    UnsoundLaplaceMechanism(sensitivity=2.0, epsilon=0.5, dimension=5, adjacency=ADJACENCY),
    DiscreteLaplaceMechanism(sensitivity=3, epsilon=0.5, adjacency=ADJACENCY),
    DiscreteGaussianMechanism(sensitivity=2.0, stddev=3.0, adjacency=ADJACENCY),
    SkellamMechanism(l1_sensitivity=3.0, l2_sensitivity=2.0, variance=9.0, adjacency=ADJACENCY),
]
every_mechanism = pytest.mark.parametrize("mechanism", EVERY, ids=lambda m: m.name)


@pytest.fixture
def stream(request: pytest.FixtureRequest) -> RandomStream:
    return RandomStream.seeded(2, request.node.name)


def _noise_units(mechanism: Mechanism, step: float) -> float:
    """Real units in one step of the noise: 1 for laws that are stated in steps."""
    in_steps = (DiscreteLaplaceMechanism, DiscreteGaussianMechanism, SkellamMechanism)
    return 1.0 if isinstance(mechanism, in_steps) else step


# --- Events -------------------------------------------------------------------------------------


def test_every_mechanism_reports_its_own_cost() -> None:
    kw: dict[str, Any] = {"adjacency": ADJACENCY}
    assert [mechanism.event() for mechanism in EVERY] == [
        GaussianEvent(relative_noise=1.5, **kw),
        PureEvent(epsilon=0.5, **kw),
        PureEvent(epsilon=0.5, **kw),
        PureEvent(epsilon=0.5, **kw),
        PureEvent(epsilon=sqrt(5) * 0.5, **kw),
        PureEvent(epsilon=0.5, **kw),
        ZcdpEvent(rho=2 / 9, **kw),
        SkellamEvent(l1_sensitivity=3.0, l2_sensitivity=2.0, variance=9.0, **kw),
    ]


@pytest.mark.parametrize("law", [L1LaplaceMechanism, L2LaplaceMechanism])
def test_laplace_noise_on_one_number_keeps_its_whole_privacy_loss(
    law: type[L1LaplaceMechanism | L2LaplaceMechanism],
) -> None:
    mechanism = law(sensitivity=2.0, epsilon=0.5, dimension=1, adjacency=ADJACENCY)
    assert mechanism.event() == LaplaceEvent(adjacency=ADJACENCY, relative_noise=2.0)


@every_mechanism
def test_adjacency_may_be_given_by_name_and_reaches_the_event(mechanism: Mechanism) -> None:
    values = {f.name: getattr(mechanism, f.name) for f in fields(mechanism)}
    renamed = type(mechanism)(**{**values, "adjacency": "add-remove"})
    assert renamed.event().adjacency is Adjacency.ADD_REMOVE
    with pytest.raises(ValueError, match="sideways"):
        type(mechanism)(**{**values, "adjacency": "sideways"})


# --- The noise ----------------------------------------------------------------------------------


@every_mechanism
def test_noise_has_the_standard_deviation_it_states(
    mechanism: Mechanism, stream: RandomStream
) -> None:
    """Seven standard errors, 3e-12 by the central limit theorem; half the noise is caught."""
    step = 1e-3
    noise = mechanism.noise((100_000, 5), step=step, stream=stream)[:, 0]
    squares = np.square(noise * _noise_units(mechanism, step))
    expected = mechanism.noise_stddev**2
    assert_mean_is(squares, expected, float(squares.var()))
    with pytest.raises(AssertionError, match="outside"):
        assert_mean_is(squares / 4, expected, float(squares.var()))


def test_gaussian_noise_is_gaussian(stream: RandomStream) -> None:
    """False failure 1e-9, exactly: the squares of a million standard normals are chi-squared."""
    mechanism = GaussianMechanism(sensitivity=1.0, stddev=0.6, adjacency=ADJACENCY)
    noise = mechanism.release(np.zeros(1_000_000, dtype=np.int64), step=1e-6, stream=stream)
    assert_distribution_follows(noise, partial(norm.cdf, scale=0.6))
    assert_gaussian_scale(noise, 0.6)


@pytest.mark.parametrize("dimension", [1, 2, 3, 10, 11])
def test_l2_laplace_noise_has_a_gamma_radius_in_a_uniform_direction(
    dimension: int, stream: RandomStream
) -> None:
    """False failure 4e-9 in all; half the noise is caught from a fraction of these draws."""
    mechanism = L2LaplaceMechanism(
        sensitivity=0.3, epsilon=2.0, dimension=dimension, adjacency=ADJACENCY
    )
    noise = mechanism.noise((100_000, dimension), step=1e-7, stream=stream) * 1e-7
    radius = np.linalg.norm(noise, axis=1)
    law = partial(gamma.cdf, a=dimension, scale=0.3 / 2.0)
    assert_distribution_follows(radius, law)
    with pytest.raises(AssertionError, match="outside the band"):
        assert_distribution_follows(radius[:1000] / 2, law)
    # One coordinate of a uniform direction: its square is Beta(1/2, (d-1)/2), its sign is fair.
    cosine = noise[:, 0] / radius
    assert_mean_is(cosine, 0.0, 1 / dimension)
    fourth = 3 / (dimension * (dimension + 2))
    assert_mean_is(cosine**2, 1 / dimension, max(fourth - dimension**-2, 1e-12))
    if dimension > 1:
        # Neither coordinate tells the other, nor the radius, anything on average.
        assert_mean_is(cosine * noise[:, 1] / radius, 0.0, fourth / 3)
        assert_mean_is(cosine * (radius - radius.mean()), 0.0, float(radius.var()) / dimension)


@pytest.mark.parametrize("dimension", [1, 4])
def test_l1_laplace_noise_is_laplace_of_scale_root_d(dimension: int, stream: RandomStream) -> None:
    """False failure 1e-9; the unsound scale is caught."""
    mechanism = L1LaplaceMechanism(
        sensitivity=0.3, epsilon=2.0, dimension=dimension, adjacency=ADJACENCY
    )
    noise = (
        mechanism.noise((200_000, dimension), step=1e-7, stream=stream)[:, -1].astype(float) * 1e-7
    )
    scale = sqrt(dimension) * 0.15
    assert_distribution_follows(noise, partial(laplace.cdf, scale=scale))
    with pytest.raises(AssertionError, match="outside the band"):
        assert_distribution_follows(noise / 2, partial(laplace.cdf, scale=scale))


@pytest.mark.parametrize("dimension", [1, 4])
def test_laplace_noise_for_an_l1_sensitivity_has_its_scale_whatever_the_dimension(
    dimension: int, stream: RandomStream
) -> None:
    """False failure 1e-9; half the noise is caught."""
    mechanism = LaplaceMechanism(
        sensitivity=0.3, epsilon=2.0, dimension=dimension, adjacency=ADJACENCY
    )
    steps = mechanism.noise((200_000, dimension), step=1e-7, stream=stream)[:, -1]
    noise = steps.astype(np.float64) * 1e-7
    assert_distribution_follows(noise, partial(laplace.cdf, scale=0.15))
    with pytest.raises(AssertionError, match="outside the band"):
        assert_distribution_follows(noise / 2, partial(laplace.cdf, scale=0.15))


@given(st.floats(0.01, 100), st.floats(0.01, 100), st.integers(1, 10**6))
def test_expected_squared_norms_are_those_of_the_two_sound_forms(
    sensitivity: float, epsilon: float, d: int
) -> None:
    kw: dict[str, Any] = {"sensitivity": sensitivity, "epsilon": epsilon, "dimension": d}
    unit = (sensitivity / epsilon) ** 2
    a = L2LaplaceMechanism(**kw, adjacency=ADJACENCY).expected_squared_norm
    b = L1LaplaceMechanism(**kw, adjacency=ADJACENCY).expected_squared_norm
    assert a == pytest.approx(d * (d + 1) * unit)
    assert b == pytest.approx(2 * d**2 * unit)
    assert a <= b * (1 + 1e-12)


# --- Releases -----------------------------------------------------------------------------------


@every_mechanism
def test_a_release_is_the_sum_plus_integer_noise_on_the_grid(mechanism: Mechanism) -> None:
    """To the bit: what is audited and tested as noise is what a release adds."""
    total = np.array([0, 5, -7, 2**40, -(2**40)], dtype=np.int64)
    before = total.copy()
    released = mechanism.release(total, step=0.25, stream=RandomStream.seeded(9))
    noise = mechanism.noise((5,), step=0.25, stream=RandomStream.seeded(9))
    assert released.dtype == np.float64
    assert (released == (total + noise) * 0.25).all()
    assert (total == before).all()


def test_rounding_commutes_with_the_sum() -> None:
    """The same noise is added to every total: the release depends on the sum only by shifting."""
    mechanism = GaussianMechanism(sensitivity=1.0, stddev=50.0, adjacency=ADJACENCY)
    at_zero, shifted = (
        mechanism.release(np.full(1000, k, dtype=np.int64), step=1.0, stream=RandomStream.seeded(4))
        for k in (0, 12345)
    )
    assert (shifted - at_zero == 12345).all()


@pytest.mark.parametrize(
    "total",
    [
        np.zeros(5),
        np.zeros(5, dtype=np.int32),
        np.zeros((1, 5), dtype=np.int64),
        np.int64(3),
        [1, 2, 3, 4, 5],
        None,
    ],
    ids=["float", "int32", "matrix", "scalar", "list", "none"],
)
@every_mechanism
def test_what_is_not_an_integer_vector_is_refused(
    mechanism: Mechanism, total: Any, stream: RandomStream
) -> None:
    with pytest.raises(ValueError, match="total must be a one-dimensional array of int64"):
        mechanism.release(total, step=1.0, stream=stream)


def test_an_error_does_not_show_the_sum(stream: RandomStream) -> None:
    with pytest.raises(ValueError, match="float64") as caught:
        EVERY[0].release(np.full(5, 31337.0), step=1.0, stream=stream)
    assert "31337" not in str(caught.value)


@pytest.mark.parametrize("size", [0, 4, 6])
@pytest.mark.parametrize("mechanism", EVERY[1:4], ids=lambda m: m.name)
def test_a_sum_of_another_dimension_is_refused(
    mechanism: Mechanism, size: int, stream: RandomStream
) -> None:
    with pytest.raises(ValueError, match="dimension = 5"):
        mechanism.release(np.zeros(size, dtype=np.int64), step=1.0, stream=stream)


@pytest.mark.parametrize("step", [0.0, -1.0, nan, inf])
@every_mechanism
def test_a_step_that_is_not_positive_is_refused(
    mechanism: Mechanism, step: float, stream: RandomStream
) -> None:
    with pytest.raises(ValueError, match="step must be positive"):
        mechanism.release(np.zeros(5, dtype=np.int64), step=step, stream=stream)


@pytest.mark.parametrize("extreme", [2**63 - 1, -(2**63)])
@every_mechanism
def test_a_sum_without_room_for_the_noise_is_refused(
    mechanism: Mechanism, extreme: int, stream: RandomStream
) -> None:
    """The noise of some coordinate has the wrong sign, but for 2^-60 or so."""
    if hasattr(mechanism, "dimension"):
        mechanism = replace(mechanism, dimension=100)  # type: ignore[call-arg]
    total = np.full(100, extreme, dtype=np.int64)
    with pytest.raises(ValueError, match="within 64 bits"):
        mechanism.release(total, step=1.0, stream=stream)


def test_a_sum_right_below_the_limit_is_released(stream: RandomStream) -> None:
    total = np.full(5, 2**62, dtype=np.int64)
    for mechanism in EVERY:
        assert np.isfinite(mechanism.release(total, step=1.0, stream=stream)).all()


def test_a_grid_too_fine_or_too_coarse_for_the_noise_is_refused(stream: RandomStream) -> None:
    total = np.zeros(5, dtype=np.int64)
    for mechanism in EVERY[:4]:
        with pytest.raises(ValueError, match="choose a coarser grid"):
            mechanism.release(total, step=1e-15, stream=stream)
        with pytest.raises(ValueError, match="choose a finer grid"):
            mechanism.release(total, step=1e9, stream=stream)


# --- Values -------------------------------------------------------------------------------------


@every_mechanism
def test_a_mechanism_is_a_frozen_value(mechanism: Mechanism) -> None:
    values = {f.name: getattr(mechanism, f.name) for f in fields(mechanism)}
    assert type(mechanism)(**values) == mechanism
    with pytest.raises(FrozenInstanceError):
        mechanism.adjacency = Adjacency.ADD_REMOVE  # type: ignore[misc]
    with pytest.raises(TypeError):
        type(mechanism)(*values.values())  # type: ignore[call-arg]


@every_mechanism
@pytest.mark.parametrize("bad", [0, -1.0, nan, inf, True, "1"])
def test_parameters_that_are_not_positive_numbers_are_refused(
    mechanism: Mechanism, bad: Any
) -> None:
    values = {f.name: getattr(mechanism, f.name) for f in fields(mechanism)}
    for name in values.keys() - {"adjacency"}:
        with pytest.raises(ValueError, match=f"{name} must"):
            type(mechanism)(**{**values, name: bad})


def test_names_are_distinct_and_the_package_exports_them_all() -> None:
    assert len({mechanism.name for mechanism in EVERY}) == len(EVERY)
    assert {type(mechanism).__name__ for mechanism in EVERY} | {"Mechanism"} == set(package.__all__)


def test_the_l2_form_stays_exact_on_wide_grids(stream: RandomStream) -> None:
    """False failure 1e-9: at 2^30 steps a coordinate, cells of the normals are often too coarse."""
    mechanism = L2LaplaceMechanism(sensitivity=1.0, epsilon=1.0, dimension=3, adjacency=ADJACENCY)
    step = 2.0**-30
    noise = mechanism.noise((20_000, 3), step=step, stream=stream)
    assert_distribution_follows(
        np.linalg.norm(noise * step, axis=1), partial(gamma.cdf, a=3, scale=1.0)
    )
    assert set((noise & 1).ravel().tolist()) == {0, 1}
