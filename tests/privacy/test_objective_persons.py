"""Objective perturbation for persons: golden values, mpmath, and densities integrated.

As in `test_objective_profile`, with neighbours that differ in all records of a person: the mean
over k of them, at p parties. In one dimension the true δ(ε) is an integral over a line.
"""

from __future__ import annotations

from itertools import combinations_with_replacement, product
from math import exp, log1p, pi, sqrt

import mpmath
import numpy as np
import pytest
import torch

from fedpriv.learning.losses import HuberHinge, Logistic, Loss
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.objective_profile import ObjectiveProfile, jacobian_cost
from fedpriv.privacy.planning.objective.objective import ObjectiveNoise
from fedpriv.privacy.planning.objective.objective_rules import (
    ObjectiveProblem,
    gaussian_rule,
    pure_rule,
    solver_mu,
)
from fedpriv.privacy.unit import Unit

ONE, TWO = Adjacency.REPLACE_ONE, Adjacency.ADD_REMOVE
Record = tuple[float, float, float]  # x, y, weight


def problem(*, records: int, parties: int, curvature: float = 1e-30) -> ObjectiveProblem:
    return ObjectiveProblem(
        lipschitz=1.0,
        lipschitz_everywhere=True,
        curvature=curvature,
        curvature_rank=1,
        one_sided=True,
        records=1000,
        regulariser=0.01,
        dimension=3,
        tolerance=1e-9,
        person_records=records,
        person_parties=parties,
    )


# Golden values: σ at ε = 1, δ = 1e-6, without a Jacobian, of K records of norm 1 each; that of a
# mean over k is the k-th part of it.
GOLDEN = {1: 4.22467889, 2: 8.44935778, 4: 16.9001359, 5: 21.1413013, 10: 43.5735623}


@pytest.mark.parametrize(
    ("records", "parties", "adjacency"),
    [(1, 1, TWO), (1, 1, ONE), (2, 2, TWO), (2, 1, ONE), (5, 1, TWO), (5, 1, ONE), (5, 2, TWO)],
)
def test_the_noise_for_a_person(records: int, parties: int, adjacency: Adjacency) -> None:
    most = records * parties * int(adjacency.sum_sensitivity)
    found, extra = gaussian_rule(1.0, 1e-6, problem(records=records, parties=parties), adjacency)
    assert extra == 0
    assert found == pytest.approx(GOLDEN[most] / records, rel=5e-9)  # nine digits


def test_a_person_with_five_records_costs_hardly_more_than_one_record() -> None:
    """By group privacy it would be five times the noise at the least."""
    (one, _), (five, _) = (
        gaussian_rule(1.0, 1e-6, problem(records=k, parties=1), TWO) for k in (1, 5)
    )
    assert one < five < 1.002 * one


def test_the_profile_is_the_sum_over_subsets_in_mpmath() -> None:
    for records, parties, adjacency in product((1, 2, 3), (1, 2), (ONE, TWO)):
        most = records * parties * (2 if adjacency is ONE else 1)
        profile = ObjectiveProfile(
            mu=0.7, jacobian=0.1, one_sided=True, adjacency=adjacency, records=records,
            parties=parties,
        )  # fmt: skip
        for epsilon in (0.1, 0.5, 2.0):
            left, total = mpmath.mpf(epsilon) - mpmath.mpf(0.1), mpmath.mpf(0)
            for j in range(1, most + 1):
                mu = mpmath.mpf(0.7) * j / records
                tail = mpmath.ncdf(-left / mu + mu / 2)
                tail -= mpmath.exp(left) * mpmath.ncdf(-left / mu - mu / 2)
                total += mpmath.binomial(most, j) * tail
            assert profile.delta(epsilon) == pytest.approx(min(1.0, float(total)), rel=1e-11)


def test_more_records_never_cost_less() -> None:
    for adjacency, p, epsilon in product((ONE, TWO), (1, 2), (0.0, 0.05, 0.5, 2.0)):
        costs = [
            ObjectiveProfile(
                mu=0.3,
                jacobian=jacobian_cost(0.05, records=k, parties=p),
                one_sided=True,
                adjacency=adjacency,
                records=k,
                parties=p,
            ).delta(epsilon)
            for k in range(1, 8)
        ]
        assert costs == sorted(costs)


# Densities on a line.


def density(
    theta: np.ndarray, records: tuple[Record, ...], loss: Loss, *, nl: float, s: float
) -> np.ndarray:
    b, jacobian = -nl * theta, np.full_like(theta, nl)
    for x, y, weight in records:
        score, label = torch.from_numpy(theta * x), torch.tensor(y, dtype=torch.float64)
        b -= weight * loss.slope(score, label).numpy() * x
        jacobian += weight * loss.curvature(score, label).numpy() * x * x
    value: np.ndarray = np.exp(-0.5 * (b / s) ** 2) * jacobian / (s * sqrt(2 * pi))
    return value


def persons(records: int, parties: int) -> list[tuple[Record, ...]]:
    """Means over up to ``records`` of ±1 at so many parties, those of no effect left out."""
    means = [
        tuple((x, 1.0, 1 / k) for x in values)
        for k in range(1, records + 1)
        for values in combinations_with_replacement((1.0, -1.0), k)
    ]
    return [sum(chosen, ()) for chosen in combinations_with_replacement(means, parties)]


def true_deltas(
    loss: Loss, adjacency: Adjacency, *, records: int, parties: int, nl: float, s: float
) -> dict[float, float]:
    reach = (12 * s + 8) / nl
    theta = np.linspace(-reach, reach, 8001)
    step, worst = theta[1] - theta[0], dict.fromkeys((0.05, 0.3, 1.0), 0.0)
    everybody = persons(records, parties)
    others: list[tuple[Record, ...]] = [()] if adjacency is TWO else everybody
    for base in ((), ((1.0, 1.0, 1.0),) * 3, ((1.0, -1.0, 1.0), (1.0, 1.0, 1.0))):
        densities = {
            who: density(theta, (*base, *who), loss, nl=nl, s=s) for who in {*everybody, *others}
        }
        for one, other in product(everybody, others):
            for a, b in ((one, other), (other, one)):
                for epsilon in worst:
                    gap = densities[a] - exp(epsilon) * densities[b]
                    found = float(np.maximum(gap, 0).sum() * step)
                    worst[epsilon] = max(worst[epsilon], found)
    return worst


@pytest.mark.parametrize("loss", [Logistic(), HuberHinge(smoothing=0.5)])
@pytest.mark.parametrize("adjacency", [ONE, TWO])
@pytest.mark.parametrize(("records", "parties"), [(3, 1), (2, 2)])
def test_no_density_shows_more_of_a_person_than_the_theorem(
    loss: Loss, adjacency: Adjacency, records: int, parties: int
) -> None:
    for nl, s in ((2.0, 1.5), (200.0, 4.0)):
        profile = ObjectiveProfile(
            mu=1 / s,
            jacobian=jacobian_cost(loss.smoothness / nl, records=records, parties=parties),
            one_sided=True,
            adjacency=adjacency,
            records=records,
            parties=parties,
        )
        true = true_deltas(loss, adjacency, records=records, parties=parties, nl=nl, s=s)
        for epsilon, found in true.items():
            assert found <= profile.delta(epsilon) + 1e-9


def test_a_bound_for_one_party_or_one_record_is_found_out() -> None:
    """Teeth: noise for a person at one party does not hide one at two, nor for a record a sum."""
    loss, nl, s = HuberHinge(smoothing=0.5), 200.0, 4.0
    true = true_deltas(loss, TWO, records=2, parties=2, nl=nl, s=s)
    one = ObjectiveProfile(
        mu=1 / s,
        jacobian=jacobian_cost(loss.smoothness / nl, records=2),
        one_sided=True,
        adjacency=TWO,
        records=2,
    )
    assert true[1.0] > 10 * one.delta(1.0)


def test_the_jacobian_of_a_mean_is_bounded_by_its_rank_and_trace() -> None:
    """det(I + A)/1 of random means of rank-one terms, in more dimensions; attained by ⟂ records."""
    rng = np.random.default_rng(0)
    for records, parties in ((1, 1), (3, 1), (2, 3)):
        bound = jacobian_cost(0.8, records=records, parties=parties)
        for _ in range(200):
            x = rng.normal(size=(parties, records, 6))
            x /= np.linalg.norm(x, axis=2, keepdims=True)
            added = 0.8 * np.einsum("pki,pkj->ij", x, x) / records
            assert np.linalg.slogdet(np.eye(6) + added)[1] <= bound + 1e-12
        apart = np.eye(6)[: records * parties]
        reached = np.linalg.slogdet(np.eye(6) + 0.8 * apart.T @ apart / records)[1]
        assert reached == pytest.approx(bound)
    assert jacobian_cost(0.8) == log1p(0.8)


def test_a_small_budget_raises_the_regulariser_until_the_jacobian_is_half_of_it() -> None:
    steep = problem(records=4, parties=2, curvature=50.0)
    _, extra = gaussian_rule(0.2, 1e-6, steep, TWO)
    assert extra > 0
    relative = 50.0 / (1000 * (0.01 + extra))
    assert jacobian_cost(relative, records=4, parties=2) == pytest.approx(0.1)


def test_the_mechanism_covers_all_parties_of_a_person() -> None:
    noise = ObjectiveNoise(law="gaussian", epsilon=1.0, delta=1e-6, adjacency=TWO, unit=Unit.PERSON)
    linear, _ = noise.perturbation(problem(records=3, parties=2))
    assert linear.sensitivity == 2.0  # type: ignore[attr-defined]
    made = noise.mechanism(problem(records=3, parties=2), step=1e-9)
    assert made.event().unit is Unit.PERSON
    mu = made.output.sensitivity / made.output.noise_stddev  # type: ignore[attr-defined]
    assert mu == pytest.approx(solver_mu(2.0 / linear.noise_stddev, share=0.01))


def test_what_is_not_proved_for_persons_is_refused() -> None:
    with pytest.raises(ValueError, match="must have one sign"):
        ObjectiveProfile(mu=1.0, jacobian=0.0, one_sided=False, adjacency=TWO, records=2)
    with pytest.raises(ValueError, match="law must be 'gaussian' for persons"):
        pure_rule(1.0, problem(records=2, parties=1))


@pytest.mark.parametrize(("adjacency", "most"), [(TWO, 1000), (ONE, 500)])
def test_more_records_than_their_subsets_can_be_counted_for_are_refused(
    adjacency: Adjacency, most: int
) -> None:
    assert gaussian_rule(1.0, 1e-6, problem(records=most, parties=1), adjacency)[0] > 4.2
    with pytest.raises(ValueError, match="must be at most 1000, or half"):
        gaussian_rule(1.0, 1e-6, problem(records=most + 1, parties=1), adjacency)
