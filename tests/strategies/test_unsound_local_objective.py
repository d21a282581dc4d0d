"""Local objective perturbation with the noise of a published comparison, at what it really costs.

Jayaraman, Wang, Evans and Gu 2018: Laplace noise of scale 2G/ε′ on every coordinate of b_j.
"""

from __future__ import annotations

from dataclasses import replace
from math import exp, expm1, log, log1p, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.federation.party.draws import draw
from fedpriv.federation.party.guard import Policy, QueryRefused, check_query
from fedpriv.federation.queries.erm import ErmQuery, costliest
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import PureEvent
from fedpriv.privacy.mechanisms import UnsoundLaplaceMechanism
from fedpriv.privacy.planning.objective.objective import ObjectiveNoise
from fedpriv.privacy.planning.objective.objective_rules import ObjectiveProblem, pure_rule
from fedpriv.privacy.planning.written_plan import events_of
from tests.federation.worlds import build, linear_task, random_data, streams, train

if TYPE_CHECKING:
    from numpy.typing import NDArray

SHARE = 1e-9  # next to nothing for the solver
LAPLACE: dict[str, Any] = {"law": "unsound-laplace"}


def local(task: Any, **options: Any) -> Any:
    return build("local-objective-perturbation", task, **{**LAPLACE, **options})


def noise(epsilon: float) -> ObjectiveNoise:
    return ObjectiveNoise(
        law="unsound-laplace", epsilon=epsilon, delta=0.0, adjacency=Adjacency.REPLACE_ONE,
        solver_share=SHARE,
    )  # fmt: skip


def test_the_noise_is_that_of_the_published_program() -> None:
    """50 records a party, λ = 0.001, ε = 0.5: ε′ = ε/2, and Δ = 1/(4n(e^(ε/4) − 1)) − λ."""
    task = linear_task((50,) * 20, 118, regulariser=1e-3)
    (mechanism,) = local(task, epsilon=0.5, solver_share=SHARE).plan.mechanisms
    assert isinstance(mechanism.linear, UnsoundLaplaceMechanism)
    assert mechanism.linear.noise_stddev == pytest.approx(sqrt(2) * 2 / 0.25, rel=1e-6)
    assert mechanism.extra_regulariser == pytest.approx(1 / (200 * expm1(0.125)) - 1e-3, rel=1e-6)
    assert mechanism.epsilon == pytest.approx(0.5 + (sqrt(118) - 1) * 0.25, rel=1e-6)
    sound: Any = local(task, law="l2-laplace", delta=0.0, epsilon=0.5).plan
    assert sound.mechanisms[0].noise_stddev > 5 * mechanism.noise_stddev


def test_every_party_draws_a_term_of_its_own_by_coordinates() -> None:
    task = linear_task((50, 80), 4000, regulariser=1e-3)
    query = local(task, epsilon=0.5, solver_share=SHARE).ask()
    terms = draw(query, task, task.sizes, streams(0, "p")(0), units=0).linear
    assert terms is not None
    # |b| is exponential: mean and standard deviation are the scale, 8. 7 standard errors.
    assert np.abs(terms).mean(axis=1) == pytest.approx([8.0, 8.0], abs=7 * 8 / sqrt(4000))
    one, other = terms / np.linalg.norm(terms, axis=1, keepdims=True)
    assert abs(one @ other) < 7 / sqrt(4000)


X = np.array([1.0, 1.0]) / sqrt(2) * (1 - 1e-12)
ALONG = 4  # records like X beside the one that is exchanged


def log_density(sign: float, weight: float, scale: float, theta: NDArray[np.float64]) -> Any:
    """Of the minimiser of Σ hinge(xᵀθ) + (nΛ/2)‖θ‖² + bᵀθ, by the change of variables; d = 2.

    Records: `ALONG` times (X, +1), and once (X, sign). Huber's hinge with h = 1/2.
    """
    score = theta @ X

    def hinge(label: float) -> tuple[Any, Any]:
        margin = label * score
        bend = ((margin > 0.5) & (margin < 1.5)) * 1.0
        return -np.clip(1.5 - margin, 0, 1) * label, bend

    (slope, bend), (own_slope, own_bend) = hinge(1.0), hinge(sign)
    b = -((ALONG * slope + own_slope)[:, None] * X + weight * theta)
    jacobian = weight * (weight + (ALONG * bend + own_bend) * (X @ X))
    return -np.abs(b).sum(axis=1) / scale + np.log(jacobian)


@pytest.mark.parametrize("weight", [0.5, 3.0, 300.0])
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_it_breaks_its_claim_and_keeps_its_price(epsilon: float, weight: float) -> None:
    """By densities in two dimensions, wherever a minimiser may lie: loss beyond ε, never beyond.

    At zero both gradients are full, and all of b is on one side: the loss there is √d·ε′.
    """
    problem = ObjectiveProblem(
        lipschitz=1.0, lipschitz_everywhere=True, curvature=1.0, curvature_rank=1,
        one_sided=True, records=ALONG + 1, regulariser=weight / (ALONG + 1), dimension=2,
        tolerance=1e-9,
    )  # fmt: skip
    mechanism = noise(epsilon).mechanism(problem, step=2.0**-40)
    linear = mechanism.linear
    assert isinstance(linear, UnsoundLaplaceMechanism)
    held = weight + (ALONG + 1) * mechanism.extra_regulariser
    reach = np.linspace(-1, 1, 401)
    places = [size * np.dstack(np.meshgrid(reach, reach)).reshape(-1, 2) for size in (3, 30)]
    theta = np.concatenate([*places, np.zeros((1, 2))])
    scale = linear.sensitivity / linear.epsilon
    one, other = (log_density(sign, held, scale, theta) for sign in (1.0, -1.0))
    losses = np.abs(one - other)
    assert losses[-1] == pytest.approx(sqrt(2) * linear.epsilon)
    assert losses.max() <= mechanism.epsilon
    if weight == 300.0:
        assert losses.max() > 1.3 * epsilon  # the claim does not hold
    rate, _ = pure_rule(epsilon * (1 - SHARE), problem)
    assert mechanism.epsilon == pytest.approx(epsilon + (sqrt(2) - 1) * rate)


def test_one_coordinate_costs_what_is_claimed() -> None:
    task = linear_task((500,) * 3, 1, regulariser=0.01)
    plan = local(task, epsilon=0.5, delta=0.0, solver_share=0.01).plan
    assert plan.epsilon == pytest.approx(0.5, rel=1e-12)
    rate = 0.99 * 0.5 - 2 * log1p(0.25 / 5)
    assert plan.mechanisms[0].linear.epsilon == pytest.approx(rate)


def test_the_event_is_that_of_the_party_whose_records_it_costs_most() -> None:
    """Not of the smallest, nor of the largest: ε′ is ε/2 for few records, then 0, then up to ε."""
    epsilon, regulariser = 1.0, 0.01
    edge = 0.25 / (regulariser * (exp(epsilon / 2) - 1))  # records at which nothing is left
    few, middle, many = 5, round(edge) + 2, 400
    prices = {}
    for size in (few, middle, many):
        task = linear_task((size, size), 9, regulariser=regulariser)
        prices[size] = local(task, epsilon=epsilon).plan.mechanisms[0].epsilon
    assert prices[middle] < prices[few] < prices[many]
    for sizes, worst in (((few, middle), few), ((few, middle, many), many)):
        task = linear_task(sizes, 9, regulariser=regulariser)
        query = local(task, epsilon=epsilon).ask()
        assert isinstance(query, ErmQuery)
        assert query.objective is not None
        terms = {"regulariser": regulariser, "tolerance": query.tolerance}
        assert costliest(task, query.objective, **terms) == worst
        assert query.event == PureEvent(epsilon=prices[worst], adjacency=Adjacency.REPLACE_ONE)
        check_query(query, task, Policy())
        less = replace(query.event, epsilon=prices[middle])
        with pytest.raises(QueryRefused, match="not that of the noise"):
            check_query(replace(query, event=less), task, Policy())


def test_its_plan_states_the_cost_and_is_no_plan_that_promises_something() -> None:
    task = linear_task((40, 25), 3, regulariser=0.05)
    strategy = local(task, epsilon=1.0)
    plan = strategy.plan
    assert plan.epsilon > 1.0
    assert not plan.mechanisms[0].sound
    with pytest.raises(ValueError, match="not a mechanism of a plan with a guarantee"):
        events_of(plan.to_dict())
    world = VectorizedFederation(random_data((40, 25), 3), task=task, sampling=streams(0, "p"))
    assert np.isfinite(train(strategy, world).theta).all()


def test_the_printed_rule_without_its_one_claims_more_than_there_is() -> None:
    """ε − 2·ln(c/(nΛ)), as the program has it, is more than ε where nΛ > c; it is not used."""
    task = linear_task((500,) * 3, 4, regulariser=0.01)
    printed = 0.5 - 2 * log(0.25 / (500 * 0.01))
    assert printed > 6
    assert local(task, epsilon=0.5).plan.mechanisms[0].linear.epsilon < 0.5
