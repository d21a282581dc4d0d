"""Plans of client-level privacy: published values, and a count that is paid for exactly."""

from __future__ import annotations

from math import hypot, sqrt
from typing import Any

import numpy as np
import pytest

from fedpriv.privacy.accountants import account
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget, BudgetExceeded
from fedpriv.privacy.events import GaussianEvent, PoissonGaussianEvent
from fedpriv.privacy.gaussian import gdp_epsilon
from fedpriv.privacy.planning.party import noise_multiplier, party_plan, update_noise
from fedpriv.privacy.unit import Unit

A, R = Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE


def plan(**more: Any) -> Any:
    facts: dict[str, Any] = {
        "strategy": "federated-averaging",
        "budget": Budget(epsilon=2.0, delta=1e-5),
        "rounds": 10,
        "multiplier": 12.0,
        "norm": 1.0,
        "clip_norm": 0.5,
        "sizes": (10,) * 100,
        "dimension": 50,
        "step": 2.0**-20,
        "adjacency": A,
    }
    return party_plan(**{**facts, **more})


@pytest.mark.parametrize(
    ("rate", "multiplier", "rounds", "delta", "epsilon"),
    [(0.1, 1.0, 100, 1e-5, 7.04660), (0.05, 1.2, 500, 1e-6, 6.09506)],
)
def test_sampled_parties_cost_what_the_reference_says(
    rate: float, multiplier: float, rounds: int, delta: float, epsilon: float
) -> None:
    """Privacy-loss distributions of the sampled Gaussian, add-remove, to 1e-4."""
    event = PoissonGaussianEvent(
        adjacency=A, unit=Unit.PARTY, relative_noise=multiplier, sampling_rate=rate
    )
    report = account([(event, rounds)], delta=delta)
    assert report.accountant == "pld"
    assert report.epsilon == pytest.approx(epsilon, rel=1e-4)
    budget = Budget(epsilon=epsilon * (1 + 1e-4), delta=delta)
    made = plan(budget=budget, rounds=rounds, multiplier=multiplier, sampling_rate=rate)
    assert made.epsilon == report.epsilon
    found, accountant = noise_multiplier(
        budget=budget, rounds=rounds, adjacency=A, sampling_rate=rate
    )
    assert accountant == "pld"
    assert found == pytest.approx(multiplier, rel=1e-3)


@pytest.mark.parametrize(
    ("multiplier", "count_noise", "expected"), [(1.0, 5.0, 1.005037815), (2.0, 10.0, 2.010075631)]
)
def test_the_split_of_updates_and_count_is_that_of_the_reference(
    multiplier: float, count_noise: float, expected: float
) -> None:
    assert update_noise(multiplier, count_noise) == pytest.approx(expected, abs=5e-10)


@pytest.mark.parametrize("adjacency", [A, R])
def test_updates_and_count_together_cost_what_updates_alone_would(adjacency: Adjacency) -> None:
    """By hand: (1/z_Δ)² + (½/σ_b)² add-remove, twice each under replace-one, as two releases."""
    z, count = 1.7, 4.0
    times = adjacency.sum_sensitivity
    updates = GaussianEvent(
        adjacency=adjacency, unit=Unit.PARTY, relative_noise=update_noise(z, count) / times
    )
    counted = GaussianEvent(adjacency=adjacency, unit=Unit.PARTY, relative_noise=2 * count / times)
    alone = GaussianEvent(adjacency=adjacency, unit=Unit.PARTY, relative_noise=z / times)
    both = account([(updates, 1), (counted, 1)], delta=1e-5).epsilon
    assert both == pytest.approx(account([(alone, 1)], delta=1e-5).epsilon, rel=1e-12)


@pytest.mark.parametrize("adjacency", [A, R])
def test_no_pair_of_answers_is_further_apart_than_the_split_assumes(adjacency: Adjacency) -> None:
    """All corners: a party's scaled update and count against another's, or none."""
    kappa = 0.3
    rng = np.random.default_rng(0)
    directions = rng.normal(size=(40, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    corners = [np.append(u, s * kappa / 2) for u in directions for s in (-1, 1)]
    corners += [-corner for corner in corners]
    others = [np.zeros(4)] if adjacency is A else corners
    furthest = max(np.linalg.norm(one - other) for one in corners for other in others)
    bound = adjacency.sum_sensitivity * hypot(1, kappa / 2)
    assert furthest == pytest.approx(bound, rel=1e-12)


def test_a_count_that_costs_everything_is_refused() -> None:
    with pytest.raises(ValueError, match="count_noise must be more than half"):
        update_noise(2.0, 1.0)


def test_a_plan_states_its_unit_and_what_a_party_can_do() -> None:
    for adjacency, times in ((A, 1), (R, 2)):
        made = plan(adjacency=adjacency, multiplier=12.0 * times)
        (mechanism,) = set(made.mechanisms)
        assert made.unit is Unit.PARTY
        assert mechanism.sensitivity == pytest.approx(times + sqrt(50) * 2.0**-20, rel=1e-12)
        assert mechanism.event().relative_noise == pytest.approx(12.0, rel=1e-12)
        expected = gdp_epsilon(mu=sqrt(10) / 12.0, delta=1e-5)
        assert made.epsilon == pytest.approx(expected, rel=1e-9)


def test_a_clip_norm_that_moves_is_none_of_the_plans() -> None:
    made = plan(moves=True)
    assert made.clip_norm is None
    assert "the clip, 0.5 in the first round, which follows what was released" in made.query
    assert plan().clip_norm == 0.5


def test_half_the_noise_is_refused() -> None:
    with pytest.raises(BudgetExceeded):
        plan(multiplier=6.0)
