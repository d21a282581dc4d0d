"""The lecture's objective perturbation: it costs more than it claims, and says what it costs."""

from __future__ import annotations

from math import exp, log1p
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.stats import norm

from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.planning.objective.objective import ObjectiveNoise
from fedpriv.privacy.planning.objective.objective_rules import ObjectiveProblem
from fedpriv.privacy.planning.objective.unsound_objective import unsound_mechanism
from fedpriv.privacy.planning.written_plan import events_of
from tests.federation.worlds import build, linear_task

if TYPE_CHECKING:
    from numpy.typing import NDArray

CURVATURE, SHARE = 1.0, 1e-9  # of Huber's hinge with h = 1/2; next to nothing for the solver


def problem(weight: float) -> ObjectiveProblem:
    """One record, d = 1; ``weight`` is nΛ."""
    return ObjectiveProblem(
        lipschitz=1.0, lipschitz_everywhere=True, curvature=CURVATURE, curvature_rank=1,
        one_sided=True, records=1, regulariser=weight, dimension=1, tolerance=1e-9,
    )  # fmt: skip


def density(sign: float, weight: float, stddev: float, theta: NDArray[np.float64]) -> Any:
    """Of the minimiser of hinge(sign·θ) + (nΛ/2)θ² + bθ, by the change of variables."""
    margin = sign * theta
    slope = -np.clip((1.5 - margin) / 1.0, 0, 1) * sign  # quadratic from 1/2 to 3/2
    bend = ((margin > 0.5) & (margin < 1.5)) * 1.0
    b = -(slope + weight * theta)
    return norm.pdf(b, scale=stddev) * (bend + weight)


def true_delta(epsilon: float, weight: float, stddev: float) -> float:
    """δ(ε) between the data sets {(1, +1)} and {(1, -1)}, by integration; both orders."""
    reach = (12 * stddev + 2) / weight
    theta = np.unique(
        np.concatenate([np.linspace(-reach, reach, 2_000_001), np.linspace(-3, 3, 600_001)])
    )
    one, other = (density(sign, weight, stddev, theta) for sign in (1.0, -1.0))
    assert np.trapezoid(one, theta) == pytest.approx(1, abs=1e-3)
    return float(
        max(
            np.trapezoid(np.clip(p - exp(epsilon) * q, 0, None), theta)
            for p, q in ((one, other), (other, one))
        )
    )


@pytest.mark.parametrize("weight", [0.1, 0.3])
@pytest.mark.parametrize("epsilon", [0.5, 1.0])
def test_it_breaks_its_claim_and_keeps_its_price(epsilon: float, weight: float) -> None:
    """Against densities integrated in one dimension: at the ε that it states δ holds."""
    delta = 1e-2
    noise = ObjectiveNoise(
        law="gaussian", epsilon=epsilon, delta=delta, adjacency=Adjacency.REPLACE_ONE,
        solver_share=SHARE,
    )  # fmt: skip
    mechanism = unsound_mechanism(noise, problem(weight), step=2.0**-40)
    stddev = mechanism.linear.noise_stddev
    assert true_delta(epsilon, weight, stddev) > 1.5 * delta
    assert true_delta(mechanism.epsilon, weight, stddev) <= delta
    assert mechanism.epsilon == pytest.approx(epsilon + log1p(CURVATURE / weight), rel=1e-3)
    sound = noise.mechanism(problem(weight), step=2.0**-40)
    assert true_delta(epsilon, weight + sound.extra_regulariser, sound.linear.noise_stddev) <= delta


def test_the_pure_form_costs_the_jacobian_twice() -> None:
    noise = ObjectiveNoise(
        law="l2-laplace", epsilon=1.0, delta=0.0, adjacency=Adjacency.REPLACE_ONE
    )
    mechanism = unsound_mechanism(noise, problem(0.5), step=2.0**-40)
    assert mechanism.epsilon == 1 + 2 * log1p(2.0)
    assert mechanism.linear.noise_stddev == pytest.approx(
        2**0.5 * 2 / (0.99 * 1.0), rel=1e-9
    )  # scale 2G/ε, less what the solver has of ε


@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_its_plan_states_the_cost_and_it_is_never_released(delta: float) -> None:
    task = linear_task((40, 25), 3, regulariser=0.01)
    made = {
        law: build("objective-perturbation", task, law=law, epsilon=1.0, delta=delta).plan
        for law in ("auto", "unsound-objective")
    }
    plan: Any = made["unsound-objective"]
    sound: Any = made["auto"]
    cost = log1p(0.25 / (65 * 0.01)) * (1 if delta else 2)
    assert plan.epsilon == pytest.approx(1 + cost, rel=1e-3)
    assert plan.mechanisms[0].noise_stddev < sound.mechanisms[0].noise_stddev
    assert not plan.mechanisms[0].sound
    with pytest.raises(ValueError, match="not a mechanism of a plan with a guarantee"):
        events_of(plan.to_dict())
