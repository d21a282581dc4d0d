"""Objective perturbation, checked where everything can be computed: one dimension.

There the minimiser θ has the density ν(b(θ))·|b′(θ)| with b(θ) = -(Σ f′(θ) + nΛ′θ), so the privacy
loss of any two data sets is a function that can be evaluated on a grid.
"""

from __future__ import annotations

from dataclasses import replace
from math import exp, expm1, log1p, pi, sqrt

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import chi, gamma, norm

from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget, BudgetExceeded
from fedpriv.privacy.events import ApproximateEvent, PureEvent
from fedpriv.privacy.mechanisms import GaussianMechanism
from fedpriv.privacy.objective_profile import ObjectiveProfile
from fedpriv.privacy.planning.fixed_plan import FixedPlan
from fedpriv.privacy.planning.objective.objective import (
    ObjectiveMechanism,
    ObjectiveNoise,
    excess_risk_bound,
    linear_reach,
    linear_step,
    optimal_objective_regulariser,
)
from fedpriv.privacy.planning.objective.objective_rules import (
    ObjectiveProblem,
    gaussian_rule,
    pure_rule,
)

ONE, TWO = Adjacency.REPLACE_ONE, Adjacency.ADD_REMOVE


def problem(n: int = 5, regulariser: float = 0.1) -> ObjectiveProblem:
    return ObjectiveProblem(
        lipschitz=1.0,
        lipschitz_everywhere=True,
        curvature=0.25,
        curvature_rank=1,
        one_sided=True,
        records=n,
        regulariser=regulariser,
        dimension=1,
        tolerance=1e-9,
    )


def linear_term(theta: np.ndarray, margins: np.ndarray, weight: float) -> tuple[np.ndarray, ...]:
    """b(θ) and |b′(θ)| for logistic losses of records y·x = ``margins`` and nΛ′ = ``weight``."""
    scores = np.outer(theta, margins)
    tails = expit(-scores)
    slope = -(tails * margins).sum(axis=1)
    curve = (tails * (1 - tails) * margins**2).sum(axis=1)
    return -(slope + weight * theta), curve + weight


def worst_pure_loss(rate: float, extra: float, at: ObjectiveProblem) -> float:
    """The largest |ln f(θ)/f′(θ)| over data sets of ±1 records and their neighbours."""
    weight = at.records * (at.regulariser + extra)
    wide, near = (np.linspace(-reach, reach, 4001) for reach in (60 / weight, 10.0))
    theta = np.concatenate([wide, near])
    worst = 0.0
    for positives in {0, at.records // 2, at.records - 1}:
        margins = np.repeat([1.0, -1.0], [positives, at.records - 1 - positives])
        losses = []
        for last in (1.0, -1.0, 0.0):
            b, jacobian = linear_term(theta, np.append(margins, last), weight)
            losses.append(-rate * np.abs(b) / (2 * at.lipschitz) + np.log(jacobian))
        for one in losses:
            for two in losses:
                worst = max(worst, float(np.abs(one - two).max()))
    return worst


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 2.0])
@pytest.mark.parametrize(("n", "regulariser"), [(1, 0.01), (3, 0.1), (10, 0.5), (50, 0.01)])
def test_the_pure_rule_keeps_its_epsilon(epsilon: float, n: int, regulariser: float) -> None:
    at = problem(n, regulariser)
    rate, extra = pure_rule(epsilon, at)
    assert worst_pure_loss(rate, extra, at) <= epsilon * (1 + 1e-9)


def test_the_form_that_omits_the_jacobian_does_not_and_is_caught() -> None:
    at = problem(1, 0.01)
    assert worst_pure_loss(0.5, 0.0, at) > 3


def test_the_pure_rule_is_chaudhuris() -> None:
    at = problem(500, 0.01)
    rate, extra = pure_rule(0.5, at)
    assert rate == pytest.approx(0.5 - 2 * log1p(0.25 / 5))
    assert extra == 0
    at = problem(5, 0.01)
    rate, extra = pure_rule(0.5, at)
    assert rate == 0.25
    assert extra == pytest.approx(0.25 / (5 * expm1(0.125)) - 0.01)
    assert 2 * log1p(0.25 / (5 * (0.01 + extra))) == pytest.approx(0.25)


def true_delta(
    epsilon: float, stddev: float, extra: float, at: ObjectiveProblem, two: float
) -> float:
    """The exact δ(ε) of exchanging a record +1 for ``two`` (0 removes it), by quadrature."""
    weight = at.records * (at.regulariser + extra)
    reach = (12 * stddev + at.records) / weight
    theta = np.linspace(-reach, reach, 40_001)
    worst = 0.0
    for positives in {0, at.records // 2, at.records - 1}:
        margins = np.repeat([1.0, -1.0], [positives, at.records - 1 - positives])
        densities = []
        for last in (1.0, two):
            b, jacobian = linear_term(theta, np.append(margins, last), weight)
            densities.append(np.exp(-0.5 * (b / stddev) ** 2) / (stddev * sqrt(2 * pi)) * jacobian)
        for one, other in (densities, densities[::-1]):
            excess = np.maximum(one - exp(epsilon) * other, 0)
            worst = max(worst, float(excess.sum() * (theta[1] - theta[0])))
    return worst


@pytest.mark.parametrize("adjacency", [ONE, TWO])
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
@pytest.mark.parametrize(("n", "regulariser"), [(2, 0.05), (6, 0.3)])
def test_the_gaussian_rule_keeps_its_delta(
    n: int, regulariser: float, epsilon: float, adjacency: Adjacency
) -> None:
    at, delta = problem(n, regulariser), 1e-3
    stddev, extra = gaussian_rule(epsilon, delta, at, adjacency)
    two = -1.0 if adjacency is ONE else 0.0
    assert true_delta(epsilon, stddev, extra, at, two) <= delta
    # Logistic slopes of opposite labels differ by 1, not 2: the bound is loose here, and an eighth
    # of the noise is caught. `tests/privacy/test_objective_profile.py` has cases that attain it.
    assert true_delta(epsilon, stddev / 8, extra, at, two) > delta


def test_the_least_extra_regulariser_makes_the_jacobian_cost_half_of_epsilon() -> None:
    _, extra = gaussian_rule(0.5, 1e-3, problem(500, 0.01), ONE)
    assert extra == 0
    small = problem(5, 0.01)
    _, extra = gaussian_rule(0.5, 1e-3, small, ONE)
    assert log1p(0.25 / (5 * (0.01 + extra))) == pytest.approx(0.25)


def noise(**changes: object) -> ObjectiveNoise:
    values = {"law": "gaussian", "epsilon": 1.0, "delta": 1e-6, "adjacency": ONE} | changes
    return ObjectiveNoise(**values)  # type: ignore[arg-type]


def test_an_inexact_minimiser_is_hidden_by_noise_for_twice_its_distance() -> None:
    at = replace(problem(100, 0.1), tolerance=1e-4)
    for law, delta in (("gaussian", 1e-6), ("l2-laplace", 0.0)):
        mechanism = noise(law=law, delta=delta).mechanism(at, step=2.0**-30, weight=0.5)
        sensitivity = mechanism.output.sensitivity  # type: ignore[attr-defined]
        assert sensitivity == pytest.approx(0.5 * 2 * 1e-4 / 0.1 + 2.0**-30)
        assert mechanism.delta == delta


def test_the_shares_of_solver_and_objective_add_up_to_the_budget() -> None:
    mechanism = noise(law="l2-laplace", delta=0.0, solver_share=0.1).mechanism(problem(), step=1e-6)
    output = mechanism.output.epsilon  # type: ignore[attr-defined]
    linear = mechanism.linear.epsilon  # type: ignore[attr-defined]
    jacobian = 2 * log1p(0.25 / (5 * (0.1 + mechanism.extra_regulariser)))
    assert output + linear + jacobian == pytest.approx(1.0)
    assert mechanism.event() == PureEvent(adjacency=ONE, epsilon=1.0)


@pytest.mark.parametrize("adjacency", [ONE, TWO])
@pytest.mark.parametrize("one_sided", [True, False])
@pytest.mark.parametrize("share", [0.001, 0.01, 0.5, 0.99])
def test_the_gaussian_release_and_the_noise_on_the_point_found_meet_delta_together(
    adjacency: Adjacency, one_sided: bool, share: float
) -> None:
    at = replace(problem(100, 0.1), one_sided=one_sided)
    mechanism = noise(adjacency=adjacency, solver_share=share).mechanism(at, step=1e-6)
    linear, output = mechanism.linear, mechanism.output
    assert isinstance(linear, GaussianMechanism)
    assert isinstance(output, GaussianMechanism)
    profile = ObjectiveProfile(
        mu=at.lipschitz / linear.stddev,
        jacobian=log1p(0.25 / (100 * (0.1 + mechanism.extra_regulariser))),
        one_sided=one_sided,
        adjacency=adjacency,
    )
    mu = output.sensitivity / output.stddev
    delta = profile.delta_beside(mechanism.epsilon, mu=mu)
    assert delta <= mechanism.delta
    assert delta == pytest.approx(mechanism.delta, rel=1e-9)
    assert mu**2 / (mu**2 + (linear.sensitivity / linear.stddev) ** 2) == pytest.approx(share)


def test_less_of_the_budget_never_means_less_noise() -> None:
    wide, narrow = (
        noise(solver_share=share).mechanism(problem(), step=1e-6).noise_stddev
        for share in (0.01, 0.5)
    )
    assert narrow > wide


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"delta": 0.0}, "delta must be positive"),
        ({"law": "l2-laplace"}, "delta must be 0"),
        ({"law": "l2-laplace", "delta": 0.0, "adjacency": TWO}, "replace-one"),
        ({"law": "l1-laplace"}, "law must be one of"),
        ({"epsilon": 0.0}, "epsilon must be positive"),
        ({"solver_share": 1.0}, "solver_share"),
    ],
)
def test_a_noise_that_no_theorem_covers_is_refused(changes: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        noise(**changes)


@pytest.mark.parametrize(("law", "delta"), [("gaussian", 1e-6), ("l2-laplace", 0.0)])
@pytest.mark.parametrize("epsilon", [0.05, 1.0])
@pytest.mark.parametrize("n", [50, 5000])
def test_the_optimal_regulariser_has_the_least_bound_on_the_excess_risk(
    law: str, delta: float, epsilon: float, n: int
) -> None:
    spend, at = noise(law=law, delta=delta, epsilon=epsilon), problem(n)
    best = optimal_objective_regulariser(spend, at, radius=3.0)
    least = excess_risk_bound(spend, replace(at, regulariser=best), radius=3.0)
    for factor in (1e-3, 0.1, 0.5, 0.9, 0.99, 1.01, 1.1, 2.0, 10.0, 1e3):
        other = replace(at, regulariser=factor * best)
        assert least <= excess_risk_bound(spend, other, radius=3.0) * (1 + 1e-9)


def test_the_bound_on_the_excess_risk_holds_where_it_can_be_integrated() -> None:
    """E R(θ) over b, on records of one dimension; and it is not far above what is there."""
    at, spend = problem(20, 0.5), noise(delta=1e-3)
    linear, extra = spend.perturbation(at)
    margins, weight = np.repeat([1.0, -1.0], [14, 6]), 20 * (0.5 + extra)
    theta = np.linspace(-12, 12, 100_001)
    b, jacobian = linear_term(theta, margins, weight)
    density = norm.pdf(b, scale=linear.noise_stddev) * jacobian
    risk = np.logaddexp(0, -np.outer(theta, margins)).mean(axis=1)
    mean = float((density * risk).sum() / density.sum())
    radii = (0.1, 0.5, 1.0)
    excess = {radius: mean - float(risk[np.abs(theta) <= radius].min()) for radius in radii}
    bound = {radius: excess_risk_bound(spend, at, radius=radius) for radius in radii}
    assert all(excess[radius] <= bound[radius] for radius in radii)
    assert bound[0.5] <= 10 * excess[0.5]


def plan(mechanism: ObjectiveMechanism, budget: Budget) -> FixedPlan:
    return FixedPlan(
        strategy="s",
        query="q",
        released="r",
        budget=budget,
        mechanisms=(mechanism,),
        parties=1,
        records=5,
        smallest_party=5,
        dimension=1,
        step=1e-6,
    )


def test_a_plan_of_one_approximate_release_is_its_pair_within_its_budget() -> None:
    mechanism = noise().mechanism(problem(), step=1e-6)
    assert mechanism.event() == ApproximateEvent(adjacency=ONE, epsilon=1.0, delta=1e-6)
    made = plan(mechanism, Budget(epsilon=1.0, delta=1e-6))
    assert (made.epsilon, made.accountant) == (1.0, "basic")
    for budget in (Budget(epsilon=0.9, delta=1e-6), Budget(epsilon=1.0, delta=1e-7)):
        with pytest.raises(BudgetExceeded, match="Nothing was released"):
            plan(mechanism, budget)


@pytest.mark.parametrize("dimension", [1, 2, 3, 30, 1000, 10**5])
def test_a_linear_term_is_longer_than_its_reach_with_a_probability_below_two_to_the_minus_60(
    dimension: int,
) -> None:
    """By the exact laws of ‖b‖; and the bound is no more than three times the exact quantile."""
    at = replace(problem(n=100), dimension=dimension)
    rare = 2.0**-60
    pure = ObjectiveNoise(law="l2-laplace", epsilon=0.3, delta=0.0, adjacency=ONE)
    linear, _ = pure.perturbation(at)
    rate, _ = pure_rule(0.99 * 0.3, at)
    reach = (linear_reach(linear, dimension) - sqrt(dimension) / 2 * linear_step(linear)) * rate / 2
    assert gamma(dimension).sf(reach) <= rare
    assert reach <= 3 * gamma(dimension).isf(rare)
    normal = ObjectiveNoise(law="gaussian", epsilon=0.3, delta=1e-6, adjacency=ONE)
    linear, _ = normal.perturbation(at)
    stddev, _ = gaussian_rule(0.3, 1e-6, at, ONE, solver_share=0.01)
    reach = (linear_reach(linear, dimension) - sqrt(dimension) / 2 * linear_step(linear)) / stddev
    assert chi(dimension).sf(reach) <= rare
    assert reach <= 3 * chi(dimension).isf(rare)
