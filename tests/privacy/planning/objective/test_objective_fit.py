"""A perturbed minimiser with a noisy Hessian: its δ by the integral, with formulas of its own."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import mpmath as mp
import pytest

from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import ApproximateEvent
from fedpriv.privacy.mechanisms import GaussianMechanism
from fedpriv.privacy.planning.objective.objective import ObjectiveNoise
from fedpriv.privacy.planning.objective.objective_fit import (
    HESSIAN_SHARE,
    ObjectiveFitMechanism,
    objective_fit,
    with_hessian,
)
from fedpriv.privacy.planning.objective.objective_rules import ObjectiveProblem

PROBLEM = ObjectiveProblem(
    lipschitz=1.0,
    lipschitz_everywhere=True,
    curvature=0.25,
    curvature_rank=1,
    one_sided=True,
    records=1000,
    regulariser=0.01,
    dimension=5,
    tolerance=1e-9,
)


def noise_for(epsilon: float, adjacency: Adjacency) -> ObjectiveNoise:
    return ObjectiveNoise(law="gaussian", epsilon=epsilon, delta=1e-6, adjacency=adjacency)


def gaussian_delta(mu: mp.mpf, epsilon: mp.mpf) -> mp.mpf:
    first, second = mp.ncdf(-epsilon / mu + mu / 2), mp.ncdf(-epsilon / mu - mu / 2)
    return first - mp.e**epsilon * second


def delta_of(mechanism: ObjectiveFitMechanism, *, lengths: tuple[float, ...]) -> float:
    """E_Z h̄(ε - μ²/2 - μZ), h̄ a sum over vertices of so many G, by quadrature."""
    linear, output = mechanism.linear, mechanism.output
    assert isinstance(linear, GaussianMechanism)
    assert isinstance(output, GaussianMechanism)
    c = mp.log(1 + mp.mpf("0.25") / (1000 * (0.01 + mechanism.extra_regulariser)))
    b = 1 / mp.mpf(linear.stddev)
    parts = [each.sensitivity / each.stddev for each in (output, mechanism.hessian)]
    mu = mp.sqrt(sum(mp.mpf(part) ** 2 for part in parts))

    def profile(epsilon: mp.mpf) -> mp.mpf:
        if epsilon < 0:
            return 1 - mp.e**epsilon + mp.e**epsilon * profile(-epsilon)
        left = epsilon - c
        at = sum(gaussian_delta(length * b, max(left, mp.mpf(0))) for length in lengths)
        return at if left >= 0 else 1 - mp.e**left * (1 - at)

    def inside(z: mp.mpf) -> mp.mpf:
        return mp.npdf(z) * profile(mechanism.epsilon - mu**2 / 2 - mu * z)

    with mp.workdps(25):
        return float(mp.quad(inside, [-12, -4, 0, 4, 8, 12]))


@pytest.mark.parametrize(
    ("epsilon", "adjacency", "lengths", "moved"),
    [
        (0.3, Adjacency.ADD_REMOVE, (1.0,), 0.25),
        (3.0, Adjacency.REPLACE_ONE, (2.0, 1.0, 1.0), 0.25 * sqrt(2)),
    ],
)
def test_all_three_parts_together_spend_the_budget(
    epsilon: float, adjacency: Adjacency, lengths: tuple[float, ...], moved: float
) -> None:
    found = objective_fit(noise_for(epsilon, adjacency), PROBLEM, step=2.0**-30, sensitivity=moved)
    assert delta_of(found, lengths=lengths) == pytest.approx(1e-6, rel=1e-8)
    assert found.event() == ApproximateEvent(adjacency=adjacency, epsilon=epsilon, delta=1e-6)
    less = replace(found.hessian, stddev=found.hessian.stddev / 2)
    assert delta_of(replace(found, hessian=less), lengths=lengths) > 3e-6


def test_the_parts_have_their_shares_of_the_squared_mu() -> None:
    found = objective_fit(
        noise_for(1.0, Adjacency.ADD_REMOVE), PROBLEM, step=2.0**-30, sensitivity=0.25
    )
    laws = (found.linear, found.output, found.hessian)
    squares = [
        (law.sensitivity / law.stddev) ** 2 for law in laws if isinstance(law, GaussianMechanism)
    ]
    shares = [square / sum(squares) for square in squares]
    assert shares == pytest.approx([0.99 - HESSIAN_SHARE, 0.01, HESSIAN_SHARE])


def test_a_pure_law_has_no_intervals() -> None:
    pure = ObjectiveNoise(law="l2-laplace", epsilon=1.0, delta=0.0, adjacency=Adjacency.REPLACE_ONE)
    with pytest.raises(ValueError, match=r"gaussian.*privacy\.delta"):
        with_hessian(pure)
