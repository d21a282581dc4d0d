"""Objective perturbation where records join and leave, by densities integrated in one dimension.

There the minimiser θ has the density ν(b(θ))·|b′(θ)|, with b(θ) = -(Σ f′(θ) + wθ) and w = n·Λ. What
w and ν are is measured on the strategy as it runs, for two data sets that differ in one record; the
integral then says which δ they really have.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import exp, pi, sqrt
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.federation.queries.bounds import objective_problem
from fedpriv.learning.losses import HuberHinge, Logistic, Loss, Squared
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.planning.objective.objective import (
    ObjectiveMechanism,
    ObjectiveNoise,
    optimal_objective_regulariser,
)
from fedpriv.privacy.planning.objective.objective_rules import (
    ObjectiveProblem,
    gaussian_rule,
    pure_rule,
)
from tests.federation.worlds import build, linear_task, party_data, streams

Function = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
EPSILON, DELTA = 1.0, 1e-6


def hinge(margin: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Slope and curvature of the hinge that is rounded over |1 - z| ≤ ½."""
    return -np.clip(1.5 - margin, 0, 1), (np.abs(1 - margin) <= 0.5).astype(float)


def logistic(margin: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    tail = expit(-margin)
    return -tail, tail * (1 - tail)


FUNCTIONS: dict[str, tuple[Function, Loss]] = {
    "hinge": (hinge, HuberHinge(smoothing=0.5)),
    "logistic": (logistic, Logistic()),
}


@dataclass(frozen=True, kw_only=True)
class Release:
    """A mechanism on records x = ±1: how many of each, w, and the standard deviation of b."""

    positive: int
    negative: int
    weight: float
    stddev: float

    def term(self, theta: np.ndarray, loss: Function) -> tuple[np.ndarray, np.ndarray]:
        """b(θ) and |b′(θ)|."""
        (up, bend), (down, dent) = loss(theta), loss(-theta)
        b = -(self.positive * up - self.negative * down + self.weight * theta)
        return b, self.positive * bend + self.negative * dent + self.weight

    def density(self, theta: np.ndarray, loss: Function) -> np.ndarray:
        b, jacobian = self.term(theta, loss)
        value: np.ndarray = np.exp(-0.5 * (b / self.stddev) ** 2) * jacobian
        return value / (self.stddev * sqrt(2 * pi))


def true_delta(one: Release, two: Release, loss: Function, epsilon: float) -> float:
    """The exact δ(ε) of two releases, both ways."""
    reach = (14 * one.stddev + one.positive + one.negative) / min(one.weight, two.weight)
    theta = np.linspace(-reach, reach, 500_001)
    p, q = (release.density(theta, loss) for release in (one, two))
    step = theta[1] - theta[0]
    assert p.sum() * step == pytest.approx(1, abs=1e-5)
    return max(float(np.maximum(a - exp(epsilon) * b, 0).sum() * step) for a, b in ((p, q), (q, p)))


def rule(name: str, n: int, regulariser: float) -> float:
    problem = ObjectiveProblem(
        lipschitz=1.0,
        lipschitz_everywhere=True,
        curvature=FUNCTIONS[name][1].smoothness,
        curvature_rank=1,
        one_sided=FUNCTIONS[name][1].one_sided,
        records=n,
        regulariser=regulariser,
        dimension=1,
        tolerance=1e-9,
    )
    stddev, extra = gaussian_rule(EPSILON, DELTA, problem, Adjacency.ADD_REMOVE)
    assert extra == 0
    return stddev


@pytest.mark.parametrize(
    ("name", "n", "regulariser", "declared", "counted"),
    [
        ("hinge", 100, 0.9, 8.07e-7, 1.658e-3),
        ("hinge", 100, 0.3, 5.20e-7, 1.127e-4),
        ("hinge", 1000, 0.9, 9.79e-7, 1.464e-3),
        ("logistic", 100, 0.1, 1.259e-7, 1.014e-5),
        ("logistic", 100, 0.9, 3.055e-12, 1.256e-5),
    ],
)
def test_the_rule_holds_for_a_declared_number_and_for_a_counted_one_it_does_not(
    name: str, n: int, regulariser: float, declared: float, counted: float
) -> None:
    """Records of one class, and one of the other that joins them: δ by the density itself."""
    loss = FUNCTIONS[name][0]
    here = Release(
        positive=n, negative=0, weight=n * regulariser, stddev=rule(name, n, regulariser)
    )
    declares = Release(positive=n, negative=1, weight=here.weight, stddev=here.stddev)
    counts = Release(
        positive=n,
        negative=1,
        weight=(n + 1) * regulariser,
        stddev=rule(name, n + 1, regulariser),
    )
    assert true_delta(here, declares, loss, EPSILON) == pytest.approx(declared, rel=0.01)
    assert true_delta(here, counts, loss, EPSILON) == pytest.approx(counted, rel=0.01)
    assert declared < DELTA < counted


def measured(
    name: str, regulariser: float, *, sizes: tuple[int, ...], negative: int, positive: int = 100
) -> Release:
    """The release that the strategy makes of ±1 records, as its own b and θ show it."""
    function, loss = FUNCTIONS[name]
    task = linear_task(sizes, 1, loss=loss, regulariser=regulariser)
    X = np.repeat([1.0, -1.0], [positive, negative])[:, None]
    data = party_data(X, np.ones(len(X)), (60, len(X) - 60))
    weights = []
    for seed in range(4):
        strategy: Any = build(
            "objective-perturbation", task, seed=seed, adjacency="add-remove", delta=DELTA
        )
        found: dict[str, float] = {}
        begin, end = strategy._begin, strategy._end

        def begun(begin: Any = begin, found: dict[str, float] = found) -> Any:
            b, extra = begin()
            assert extra == 0
            found["b"] = float(b[0])
            return b, extra

        def ended(theta: np.ndarray, end: Any = end, found: dict[str, float] = found) -> Any:
            found["theta"] = float(theta[0])
            return end(theta)

        strategy._begin, strategy._end = begun, ended
        world = VectorizedFederation(data, task=task, sampling=streams(0, "p"))
        while (query := strategy.ask()) is not None:
            strategy.learn(world.sum(query))
        theta = np.array([found["theta"]])
        flat = Release(positive=positive, negative=negative, weight=0.0, stddev=1.0)
        weights.append((flat.term(theta, function)[0][0] - found["b"]) / found["theta"])
    assert weights == pytest.approx([weights[0]] * 4, rel=1e-5)
    mechanism = strategy.plan.mechanisms[0]
    assert isinstance(mechanism, ObjectiveMechanism)
    return Release(
        positive=positive,
        negative=negative,
        weight=weights[0],
        stddev=mechanism.linear.noise_stddev,
    )


@pytest.mark.parametrize(
    ("name", "regulariser"), [("hinge", 0.9), ("logistic", 0.1), ("logistic", 0.9)]
)
def test_neighbours_share_the_declared_number_and_keep_delta(name: str, regulariser: float) -> None:
    """Sizes of 60 and 40 are declared; 100 records, 101, and 99 of them are really there."""
    loss, sizes = FUNCTIONS[name][0], (60, 40)
    here = measured(name, regulariser, sizes=sizes, negative=0)
    assert here.weight == pytest.approx(100 * regulariser, rel=1e-5)
    for positive, negative in ((100, 1), (99, 0), (99, 1), (101, 0)):
        there = measured(name, regulariser, sizes=sizes, negative=negative, positive=positive)
        assert there.weight == pytest.approx(here.weight, rel=1e-5)
        assert there.stddev == here.stddev
        if positive + negative != 100:
            assert true_delta(here, there, loss, EPSILON) <= DELTA


@pytest.mark.parametrize(("name", "regulariser"), [("hinge", 0.9), ("logistic", 0.9)])
def test_a_task_that_counts_its_records_is_caught_by_the_same_measurement(
    name: str, regulariser: float
) -> None:
    here = measured(name, regulariser, sizes=(60, 40), negative=0)
    there = measured(name, regulariser, sizes=(60, 41), negative=1)
    assert there.weight == pytest.approx(101 * regulariser, rel=1e-5)
    assert true_delta(here, there, FUNCTIONS[name][0], EPSILON) > DELTA


def squared(**changes: Any) -> ObjectiveProblem:
    facts: dict[str, Any] = {
        "lipschitz": 3.0,  # of labels within ±1, inside the ball of radius 2
        "lipschitz_everywhere": True,
        "curvature": 1.0,
        "curvature_rank": 1,
        "records": 10,
        "regulariser": 0.25,
        "dimension": 1,
        "tolerance": 1e-9,
    }
    return ObjectiveProblem(**facts | changes)


def test_the_squared_loss_has_no_epsilon_under_a_random_term() -> None:
    """If the rule believed its G: exchange x = 1 for x = 0 among zeros, and the loss grows with θ.

    b leaves the ball with a probability that no δ excuses, and the pure rule promises δ = 0.
    """
    problem = squared()
    rate, extra = pure_rule(EPSILON, problem)
    w = problem.records * (problem.regulariser + extra)
    theta = np.linspace(-400, 400, 80_001)
    b_one, b_two = -((theta - 1) + w * theta), -w * theta
    scale = rate / (2 * problem.lipschitz)
    density_one, density_two = (
        scale / 2 * np.exp(-scale * np.abs(b)) * slope for b, slope in ((b_one, 1 + w), (b_two, w))
    )
    loss = np.log(density_two / density_one)
    step = theta[1] - theta[0]
    assert density_two.sum() * step == pytest.approx(1, abs=1e-3)
    assert density_two[loss > 1.5 * EPSILON].sum() * step > 1e-3
    assert loss.max() > 20 * EPSILON


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"lipschitz_everywhere": False}, "Lipschitz everywhere"),
        ({"curvature_rank": 3}, "one score per record"),
        ({"curvature": float("inf")}, "curvature must be positive and finite"),
    ],
)
def test_the_rule_demands_what_its_theorem_assumes(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        squared(**changes)


@pytest.mark.parametrize("law", ["gaussian", "l2-laplace"])
@pytest.mark.parametrize("name", ["objective-perturbation", "local-objective-perturbation"])
def test_the_squared_loss_is_refused_in_the_joint_form_and_in_the_local_one(
    name: str, law: str
) -> None:
    task = linear_task((30, 40), 2, loss=Squared(radius=100.0, label_bound=1.0), regulariser=0.1)
    with pytest.raises(ValueError, match="Lipschitz everywhere"):
        build(name, task, law=law)


def test_a_plan_of_another_loss_does_not_carry_the_squared_loss_past_the_rule() -> None:
    from fedpriv.strategies.objective_perturbation import ObjectivePerturbation

    task = linear_task((30, 40), 2, regulariser=0.1)
    made: Any = build("objective-perturbation", task)
    other = linear_task((30, 40), 2, loss=Squared(radius=100.0, label_bound=1.0), regulariser=0.1)
    with pytest.raises(ValueError, match="Lipschitz everywhere"):
        ObjectivePerturbation(task=other, plan=made.plan, tolerance=1e-6, run=made._run)


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_the_optimal_regulariser_is_that_of_the_bound_and_what_is_minimised_with(
    adjacency: str,
) -> None:
    task = linear_task((30, 40), 2, regulariser=0.1)
    built: Any = build(
        "objective-perturbation", task, regulariser="optimal", radius=5.0, adjacency=adjacency
    )
    noise = ObjectiveNoise(law="gaussian", epsilon=1.0, delta=1e-6, adjacency=Adjacency(adjacency))
    problem = objective_problem(task, 70, regulariser=1.0, tolerance=1.0)
    best = optimal_objective_regulariser(noise, problem, radius=5.0)
    assert built.task.regulariser == best != 0.1
    linear, extra = noise.perturbation(replace(problem, regulariser=best))
    (mechanism,) = built.plan.mechanisms
    assert (mechanism.linear, mechanism.extra_regulariser) == (linear, extra)
