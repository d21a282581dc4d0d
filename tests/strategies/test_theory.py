"""Where theory is exact, runs match it: quadratic losses, for which noise stays Gaussian."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest

from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.learning.losses import Squared
from tests.federation.worlds import build, linear_task, party_data, streams, train
from tests.statistical import assert_gaussian_scale

WIDTH, EACH = 40, 30
N = WIDTH * EACH
SIZES = (500, 100, 600)
LAMBDA = 0.05
RUNS = 12


def quadratic() -> tuple[VectorizedFederation, np.ndarray]:
    """Every record is a unit vector: the Hessian is I/WIDTH; and the mean label of each one."""
    rng = np.random.default_rng(0)
    order = rng.permutation(np.repeat(np.arange(WIDTH), EACH))
    y = rng.uniform(-0.5, 0.5, N).astype(np.float32).astype(np.float64)
    task = linear_task(SIZES, WIDTH, loss=Squared(radius=10.0, label_bound=1.0), regulariser=LAMBDA)
    federation = VectorizedFederation(
        party_data(np.eye(WIDTH)[order], y, SIZES), task=task, sampling=streams(0, "p")
    )
    return federation, np.bincount(order, weights=y) / EACH


@pytest.mark.parametrize("schedule", ["uniform", "rising"])
def test_noisy_descent_on_a_quadratic_has_the_variance_of_theory(schedule: str) -> None:
    """θ_T - θ̄_T = -η Σ_k (1 - ηh)^(T-1-k) z_k with h = 1/WIDTH + λ, coordinate by coordinate."""
    federation, targets = quadratic()
    rounds, rate, h = 12, 4.0, 1 / WIDTH + LAMBDA
    shape = "uniform" if schedule == "uniform" else tuple(np.linspace(1, 3, rounds).tolist())
    errors = []
    for seed in range(RUNS):
        strategy = build(
            "gradient-perturbation",
            federation._task,
            seed=seed,
            epsilon=2.0,
            rounds=rounds,
            clip=8.0,
            learning_rate=rate,
            schedule=shape,
        )
        train(strategy, federation)
        exact = targets / WIDTH / h * (1 - (1 - rate * h) ** rounds)
        errors.append(strategy.theta - exact)
    assert strategy.plan is not None
    deviations = [mechanism.noise_stddev / N for mechanism in strategy.plan.mechanisms]
    carried = [
        (rate * (1 - rate * h) ** (rounds - 1 - k) * stddev) ** 2
        for k, stddev in enumerate(deviations)
    ]
    expected = sqrt(sum(carried))
    drawn = np.concatenate(errors)
    assert_gaussian_scale(drawn, expected)
    for twin in (0.5, 0.75):
        with pytest.raises(AssertionError):
            assert_gaussian_scale(twin * drawn, expected)


def test_momentum_carries_noise_as_its_recursion_says() -> None:
    federation, targets = quadratic()
    rounds, rate, h, decay = 10, 1.0, 1 / WIDTH + LAMBDA, 0.8

    def response(kick: int) -> float:
        """What a unit of noise in round ``kick`` does to the last iterate."""
        theta = velocity = 0.0
        for t in range(rounds):
            velocity = decay * velocity + h * theta + (t == kick)
            theta -= rate * velocity
        return theta

    errors = []
    for seed in range(RUNS):
        strategy = build(
            "gradient-perturbation",
            federation._task,
            seed=seed,
            epsilon=2.0,
            rounds=rounds,
            clip=8.0,
            learning_rate=rate,
            optimiser="momentum",
            momentum=decay,
        )
        train(strategy, federation)
        mean = velocity = np.zeros(WIDTH)
        for _ in range(rounds):
            velocity = decay * velocity + h * mean - targets / WIDTH
            mean = mean - rate * velocity
        errors.append(strategy.theta - mean)
    assert strategy.plan is not None
    stddev = strategy.plan.mechanisms[0].noise_stddev / N
    expected = stddev * sqrt(sum(response(k) ** 2 for k in range(rounds)))
    assert_gaussian_scale(np.concatenate(errors), expected)


@pytest.mark.parametrize("fit", ["average", "joint"])
def test_the_noiseless_part_of_output_perturbation_is_the_closed_form(fit: str) -> None:
    federation, targets = quadratic()
    task = federation._task
    errors = []
    for seed in range(RUNS):
        strategy = build("output-perturbation", task, seed=seed, epsilon=20.0, delta=1e-2, fit=fit)
        train(strategy, federation)
        reference = build("pooled" if fit == "joint" else "non-private", task)
        errors.append(strategy.theta - train(reference, federation).theta)
    if fit == "joint":
        closed = targets / WIDTH / (1 / WIDTH + LAMBDA)
        np.testing.assert_allclose(reference.theta, closed, atol=1e-5)
    assert strategy.plan is not None
    assert_gaussian_scale(np.concatenate(errors), strategy.plan.mechanisms[0].noise_stddev)


def test_averaging_the_iterates_is_free_and_lowers_the_variance() -> None:
    federation, _ = quadratic()
    spread = {}
    for averaging in ("last", "tail", "mean"):
        models = [
            train(
                build(
                    "gradient-perturbation",
                    federation._task,
                    seed=seed,
                    rounds=30,
                    clip=8.0,
                    learning_rate=8.0,
                    averaging=averaging,
                ),
                federation,
            ).theta
            for seed in range(6)
        ]
        spread[averaging] = float(np.var(models, axis=0).mean())
    assert spread["tail"] < spread["last"] / 2
    assert spread["mean"] < spread["last"] / 2
