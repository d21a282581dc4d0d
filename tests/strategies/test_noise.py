"""The noise that each strategy really adds is the noise of its plan: no less, and no more.

Parties whose exact answer is zero leave nothing in a model but noise. Every check rejects a correct
strategy with probability at most 1e-9, and has a twin with half the noise that it must catch.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.stats import beta, gamma

from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.federation.federation import Sum
from fedpriv.federation.queries.bounds import model_sensitivity
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.mechanisms import GaussianMechanism, L2LaplaceMechanism
from fedpriv.privacy.planning.calibration import calibrate
from fedpriv.privacy.planning.objective.objective import ObjectiveMechanism
from tests.federation.worlds import (
    SilentFederation,
    build,
    linear_task,
    party_data,
    streams,
    train,
)
from tests.statistical import FALSE_FAILURE, assert_distribution_follows, assert_gaussian_scale

if TYPE_CHECKING:
    from fedpriv.federation.strategy.base import SumStrategy
    from fedpriv.federation.task import Task
    from fedpriv.privacy.mechanisms import Mechanism

SIZES = (40, 10, 50)
N, M, SMALLEST = 100, 3, 10
LAMBDA = 0.1
WIDTH = 2000
EPSILON, DELTA = 0.5, 1e-5
TASK = linear_task(SIZES, WIDTH, regulariser=LAMBDA)
# Gaussian noise for a sensitivity of 1 at (ε, δ), once and for four rounds.
ONCE = calibrate(epsilon=EPSILON, delta=DELTA, rounds=1, adjacency="add-remove").noise_multiplier
FOUR = calibrate(epsilon=EPSILON, delta=DELTA, rounds=4, adjacency="add-remove").noise_multiplier
# A tenth of the stated probability: σ may be off by 0.2 % here, where it leaves out a grid.
assert_scale = partial(assert_gaussian_scale, false_failure=FALSE_FAILURE / 10)


def make(name: str, task: Task = TASK, *, seed: int = 0, **options: Any) -> SumStrategy:
    return build(name, task, seed=seed, **{"epsilon": EPSILON, "delta": DELTA} | options)


def noise_of(name: str, task: Task = TASK, *, seed: int = 0, **options: Any) -> np.ndarray:
    """The model that is nothing but noise."""
    strategy = make(name, task, seed=seed, **options)
    train(strategy, SilentFederation(task, sampling=streams(seed, "parties")))
    return strategy.theta


def gradient_noise(name: str, **options: Any) -> np.ndarray:
    """The noise on the mean gradient of the first of four rounds."""
    strategy = make(name, rounds=4, learning_rate=1.0, clip=1.0, **options)
    query = strategy.ask()
    assert query is not None
    strategy.learn(SilentFederation(TASK, sampling=streams(0, "parties")).sum(query))
    return -strategy.theta


# What the noise on a coordinate should be, by hand: sensitivity times relative noise, for all
# Gaussian forms. Rounding adds at most 0.3 % to a sensitivity of 2C, and less elsewhere.
EXPECTED = {
    ("gradient-perturbation", "proportional"): 2 / N * FOUR,
    ("gradient-perturbation", "equal"): 2 / (M * SMALLEST) * FOUR,
    ("local-gradient-perturbation", "proportional"): sqrt(M) * 2 / N * FOUR,
    ("local-gradient-perturbation", "equal"): sqrt(sum(n**-2.0 for n in SIZES)) / M * 2 * FOUR,
    ("output-perturbation", "proportional"): 2 / (N * LAMBDA) * ONCE,
    ("output-perturbation", "equal"): 2 / (M * SMALLEST * LAMBDA) * ONCE,
    ("local-output-perturbation", "proportional"): sqrt(M) * 2 / (N * LAMBDA) * ONCE,
    ("local-output-perturbation", "equal"): sqrt(sum(n**-2.0 for n in SIZES))
    / M
    * (2 / LAMBDA)
    * ONCE,
}


def measured(name: str, weights: str, seeds: int) -> np.ndarray:
    find = gradient_noise if "gradient" in name else noise_of
    return np.concatenate([find(name, weights=weights, seed=seed) for seed in range(seeds)])


@pytest.mark.parametrize(("name", "weights"), EXPECTED, ids=lambda value: value)
def test_gaussian_noise_has_the_scale_of_the_formula(name: str, weights: str) -> None:
    noise, expected = measured(name, weights, 10), EXPECTED[name, weights]
    assert_scale(noise, 1.001 * expected)
    for twin in (0.5, 0.9):  # less noise is caught
        with pytest.raises(AssertionError, match="outside"):
            assert_scale(twin * noise, expected)


@pytest.mark.parametrize(("name", "weights"), EXPECTED, ids=lambda value: value)
def test_the_plan_states_the_formula_but_for_rounding(name: str, weights: str) -> None:
    options: dict[str, Any] = {"rounds": 4, "clip": 1.0} if "gradient" in name else {}
    plan = make(name, weights=weights, **options).plan
    assert plan is not None
    stddev = plan.mechanisms[0].noise_stddev
    if "gradient" in name:
        stddev /= TASK.gradient_count(weights, SIZES)  # type: ignore[arg-type]
    server = EXPECTED[name.removeprefix("local-"), weights]  # what one party adds, at most
    assert server <= stddev <= 1.003 * server
    assert plan.noise_at == ("parties" if "local" in name else "server")
    assert plan.epsilon == pytest.approx(EPSILON)


def halved(mechanism: Mechanism) -> Mechanism:
    assert isinstance(mechanism, GaussianMechanism)
    return replace(mechanism, stddev=mechanism.stddev / 2)


@pytest.mark.parametrize("name", ["gradient-perturbation", "output-perturbation"])
def test_a_strategy_that_adds_half_of_its_plan_is_caught(name: str) -> None:
    options: dict[str, Any] = {"rounds": 4, "learning_rate": 1.0} if "gradient" in name else {}
    strategy = make(name, **options)
    plan = strategy.plan
    assert plan is not None
    cheat = object.__new__(type(plan))
    for field in plan.__dataclass_fields__:
        object.__setattr__(cheat, field, getattr(plan, field))
    object.__setattr__(cheat, "mechanisms", tuple(map(halved, plan.mechanisms)))
    strategy._plan = cheat  # type: ignore[attr-defined]
    query = strategy.ask()
    assert query is not None
    strategy.learn(SilentFederation(TASK, sampling=streams(0, "p")).sum(query))
    with pytest.raises(AssertionError, match="outside"):
        assert_scale(strategy.theta, EXPECTED[name, "proportional"])


def test_every_round_has_noise_of_its_own() -> None:
    """Four rounds of a shape: the last iterate minus the one before is that round's noise."""
    strategy = make(
        "gradient-perturbation",
        linear_task(SIZES, WIDTH, regulariser=0.0),
        rounds=4,
        learning_rate=1.0,
        schedule=(1.0, 2.0, 0.5, 1.0),
    )
    federation = SilentFederation(strategy.task, sampling=streams(0, "p"))
    plan, before, drawn = strategy.plan, strategy.theta, []
    assert plan is not None
    while (query := strategy.ask()) is not None:
        strategy.learn(federation.sum(query))
        drawn.append(strategy.theta - before)
        before = strategy.theta
    for noise, mechanism in zip(drawn, plan.mechanisms, strict=True):
        assert_scale(noise, mechanism.noise_stddev / N)
    deviations = [mechanism.noise_stddev for mechanism in plan.mechanisms]
    assert np.array(deviations) / deviations[0] == pytest.approx([1.0, 2.0, 0.5, 1.0])
    correlation = np.atleast_2d(np.corrcoef(np.array(drawn)))[np.triu_indices(4, 1)]
    assert np.abs(correlation).max() < 7 / sqrt(WIDTH)


def test_sampled_rounds_divide_by_the_expected_batch() -> None:
    """C/(qN)·σ, though the sample itself is of another size."""
    strategy = make(
        "gradient-perturbation",
        rounds=4,
        learning_rate=1.0,
        sampling_rate=0.25,
        adjacency="add-remove",
        accountant="rdp",
    )
    query = strategy.ask()
    assert query is not None
    strategy.learn(SilentFederation(TASK, sampling=streams(0, "p")).sum(query))
    assert strategy.plan is not None
    expected = strategy.plan.mechanisms[0].noise_stddev / (0.25 * N)
    assert_scale(strategy.theta, expected)
    with pytest.raises(AssertionError):
        assert_scale(strategy.theta, expected * 0.25)


@pytest.mark.parametrize("present", [(40, 10), (50,), (10,), (50, 40)])
@pytest.mark.parametrize("weights", ["equal", "proportional"])
def test_noise_is_calibrated_to_the_parties_really_in_the_sum(
    weights: str, present: tuple[int, ...]
) -> None:
    """By hand: m, n₍₁₎ and N are those of the survivors."""
    moved = (
        2 / (len(present) * min(present) * LAMBDA)
        if weights == "equal"
        else 2 / (sum(present) * LAMBDA)
    )
    drawn = []
    for seed in range(10):
        strategy = make("output-perturbation", weights=weights, seed=seed)
        query = strategy.ask()
        assert query is not None
        zero = np.zeros(WIDTH, np.int64)
        strategy.learn(Sum(total=zero, step=query.grid.step, sizes=present))
        drawn.append(strategy.theta)
    assert_scale(np.concatenate(drawn), 1.001 * moved * ONCE)


def test_gradient_noise_after_drop_outs_is_that_of_the_sum_over_those_who_stayed() -> None:
    strategy = make("gradient-perturbation", rounds=4, learning_rate=1.0, clip=1.0)
    query = strategy.ask()
    assert query is not None
    zero = np.zeros(WIDTH, np.int64)
    strategy.learn(Sum(total=zero, step=query.grid.step, sizes=(10, 40)))
    assert_scale(strategy.theta, 1.001 * 2 / 50 * FOUR)


SMALL, RUNS = 8, 500
SMALL_TASK = linear_task(SIZES, SMALL, regulariser=LAMBDA)


def vectors(name: str, **options: Any) -> np.ndarray:
    return np.array(
        [noise_of(name, SMALL_TASK, seed=seed, delta=0.0, **options) for seed in range(RUNS)]
    )


def assert_gamma(radius: np.ndarray, scale: float) -> None:
    """The lengths of vectors in L2-Laplace noise, and half of them would be caught."""
    law = partial(gamma.cdf, a=SMALL, scale=scale)
    assert_distribution_follows(radius, law)
    with pytest.raises(AssertionError):
        assert_distribution_follows(radius / 2, law)


@pytest.mark.parametrize(
    ("name", "weights", "sensitivity"),
    [
        ("output-perturbation", "proportional", 2 / (N * LAMBDA)),
        ("output-perturbation", "equal", 2 / (M * SMALLEST * LAMBDA)),
        ("pathak", None, 2 / (SMALLEST * LAMBDA)),
    ],
)
def test_l2_laplace_noise_has_a_gamma_radius_and_a_uniform_direction(
    name: str, weights: str | None, sensitivity: float
) -> None:
    drawn = vectors(name, **({"weights": weights} if weights else {}))
    radius = np.linalg.norm(drawn, axis=1)
    scale = 1.001 * sensitivity / EPSILON
    assert_gamma(radius, scale)
    for axis in range(SMALL):
        cosine = drawn[:, axis] / radius
        assert_distribution_follows(
            (1 + cosine) / 2, lambda u: beta.cdf(u, (SMALL - 1) / 2, (SMALL - 1) / 2)
        )


def test_coordinate_wise_laplace_has_the_sound_and_the_unsound_scale() -> None:
    """Σ|x|/scale is Gamma(draws, 1), exactly."""
    moved = 2 / (N * LAMBDA) / EPSILON
    for law, scale in (("l1-laplace", sqrt(WIDTH) * moved), ("unsound-laplace", moved)):
        noise = noise_of("output-perturbation", law=law, delta=0.0)
        statistic = float(np.abs(noise).sum()) / (1.001 * scale)
        assert gamma.ppf(FALSE_FAILURE / 2, WIDTH) <= statistic
        assert statistic <= gamma.isf(FALSE_FAILURE / 2, WIDTH)
        assert not gamma.ppf(FALSE_FAILURE / 2, WIDTH) <= statistic / 2  # teeth


def test_the_unsound_law_states_what_it_really_costs() -> None:
    plan = make("output-perturbation", law="unsound-laplace", delta=0.0).plan
    assert plan is not None
    assert plan.epsilon == pytest.approx(sqrt(WIDTH) * EPSILON)
    assert plan.budget.epsilon == pytest.approx(sqrt(WIDTH) * EPSILON)


@pytest.mark.parametrize("fit", ["average", "joint"])
def test_a_joint_fit_has_the_noise_of_one_party_that_holds_everything(fit: str) -> None:
    noise = np.concatenate(
        [noise_of("output-perturbation", fit=fit, seed=seed) for seed in range(5)]
    )
    assert_scale(noise, 1.001 * 2 / (N * LAMBDA) * ONCE)


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_objective_perturbation_has_the_linear_term_of_its_plan(adjacency: str) -> None:
    """Without records the minimiser is -b/(N(λ + Δ)): the noise shows, divided by that."""
    strategy = make("objective-perturbation", adjacency=adjacency)
    train(strategy, SilentFederation(TASK, sampling=streams(0, "p")))
    assert strategy.plan is not None
    (mechanism,) = strategy.plan.mechanisms
    assert isinstance(mechanism, ObjectiveMechanism)
    curvature = N * (LAMBDA + mechanism.extra_regulariser)
    assert_scale(strategy.theta * curvature, mechanism.linear.noise_stddev)
    with pytest.raises(AssertionError):
        assert_scale(strategy.theta * curvature / 2, mechanism.linear.noise_stddev)


def test_pure_objective_perturbation_draws_a_gamma_radius() -> None:
    plan = make("objective-perturbation", SMALL_TASK, delta=0.0).plan
    assert plan is not None
    (mechanism,) = plan.mechanisms
    assert isinstance(mechanism, ObjectiveMechanism)
    assert isinstance(mechanism.linear, L2LaplaceMechanism)
    rate, weight = mechanism.linear.epsilon, N * (LAMBDA + mechanism.extra_regulariser)
    radius = np.linalg.norm(vectors("objective-perturbation"), axis=1) * weight
    # 99 % of ε, less the Jacobian: c = 1/4.
    assert rate == pytest.approx(0.99 * EPSILON - 2 * np.log1p(0.25 / (N * LAMBDA)))
    assert_gamma(radius, 2 / rate)


def test_local_objective_perturbation_draws_one_term_a_party() -> None:
    """Through the real engine, on records that are all zero: θ_j = -b_j/(n_j(λ + Δ_j))."""
    sizes, width = (500, 800), 300
    task = linear_task(sizes, width, regulariser=LAMBDA)
    data = party_data(np.zeros((1300, width)), np.ones(1300), sizes)
    federation = VectorizedFederation(data, task=task, sampling=streams(5, "parties"))
    strategy = make("local-objective-perturbation", task, weights="equal")
    train(strategy, federation)
    assert strategy.plan is not None
    (mechanism,) = strategy.plan.mechanisms
    assert isinstance(mechanism, ObjectiveMechanism)
    one = mechanism.linear.noise_stddev  # nearly the same for both: the Jacobian is small
    expected = sqrt(sum((one / (n * LAMBDA)) ** 2 for n in sizes)) / 2
    assert_scale(strategy.theta, expected)
    with pytest.raises(AssertionError):
        assert_scale(strategy.theta / 2, expected)


def test_local_noise_of_the_engine_is_that_of_the_silent_parties() -> None:
    sizes, width = (30, 50), 100
    task = linear_task(sizes, width, regulariser=LAMBDA)
    data = party_data(np.zeros((80, width)), np.ones(80), sizes)
    for name in ("local-output-perturbation", "local-gradient-perturbation"):
        engine = VectorizedFederation(data, task=task, sampling=streams(0, "parties"))
        silent = SilentFederation(task, sampling=streams(0, "parties"))
        one, two = (train(make(name, task), each).theta for each in (engine, silent))
        np.testing.assert_allclose(one, two, atol=1e-6 * np.abs(two).max())


def test_the_tolerance_of_the_solver_is_paid_for() -> None:
    task = linear_task(SIZES, 1, regulariser=LAMBDA)
    exact = model_sensitivity(
        task, regulariser=LAMBDA, tolerance=0.0, weights="equal", sizes=SIZES, step=1.0
    )
    plan = make("output-perturbation", task, weights="equal", tolerance=1e-2).plan
    assert plan is not None
    sensitivity = plan.mechanisms[0].sensitivity  # type: ignore[attr-defined]
    assert sensitivity == pytest.approx(exact + 2 * 1e-2 / LAMBDA / M, rel=1e-4)
    assert plan.adjacency is Adjacency.REPLACE_ONE
