"""Private federated averaging: its plan, its noise and its clip norm are what is claimed."""

from __future__ import annotations

from functools import partial
from math import log, sqrt
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from fedpriv.federation.federation import Sum
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.events import GaussianEvent, PoissonGaussianEvent
from fedpriv.privacy.mechanisms.shares import SharedNoise
from fedpriv.privacy.planning.shares import Sharing
from fedpriv.privacy.unit import Unit
from fedpriv.strategies import federated_averaging as averaging
from tests.federation.worlds import SilentFederation, linear_task, streams
from tests.statistical import FALSE_FAILURE, assert_gaussian_scale
from tests.strategies.averaging import BUDGET, MANY, federation, private
from tests.strategies.plain_training import WIDTH, make, task_of, trained

# A tenth of the stated probability is for what σ leaves out.
assert_scale = partial(assert_gaussian_scale, false_failure=FALSE_FAILURE / 10)


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_a_plan_is_for_a_party_and_fits_its_budget(adjacency: str) -> None:
    strategy = private(task_of("logistic"), adjacency=adjacency)
    plan = strategy.plan
    assert plan.unit is Unit.PARTY
    assert plan.adjacency is Adjacency(adjacency)
    assert plan.epsilon <= BUDGET.epsilon
    assert plan.accountant == "gdp"
    event = plan.event(0)
    assert isinstance(event, GaussianEvent)
    # In units of C: the charge times what a party can do, which the grid raises by at most 1 %.
    moved = {"add-remove": 1.0, "replace-one": 2.0}[adjacency]
    stddev = plan.mechanisms[0].noise_stddev
    assert moved <= stddev / event.relative_noise <= 1.01 * moved


def test_sampled_parties_are_accounted_for_as_a_sampled_gaussian() -> None:
    plan = private(task_of("logistic"), party_rate=0.2).plan
    assert plan.accountant == "pld"
    assert isinstance(plan.event(0), PoissonGaussianEvent)
    assert (plan.event(0).sampling_rate, plan.event(0).unit) == (0.2, Unit.PARTY)
    full = private(task_of("logistic")).plan
    assert plan.mechanisms[0].noise_stddev < 0.7 * full.mechanisms[0].noise_stddev


def test_a_cohort_amplifies_nothing() -> None:
    one, full = private(task_of("logistic"), cohort=1).plan, private(task_of("logistic")).plan
    assert one.mechanisms == full.mechanisms


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_a_count_is_paid_for_by_a_little_more_noise(adjacency: str) -> None:
    """Everything follows from z and σ_b: noise z_Δ on updates, σ_b on the count."""
    task = task_of("logistic")
    plain = private(task, adjacency=adjacency)
    counted = private(task, adjacency=adjacency, clip_quantile=0.5, count_noise=3.0)
    assert counted.plan.event(0).relative_noise == pytest.approx(
        plain.plan.event(0).relative_noise, rel=1e-9
    )
    z = plain.plan.event(0).relative_noise * {"add-remove": 1, "replace-one": 2}[adjacency]
    noise = counted.plan.mechanisms[0].noise_stddev
    assert noise == pytest.approx((z**-2 - 6.0**-2) ** -0.5, rel=3e-3)
    assert noise / counted._counting == pytest.approx(3.0, rel=3e-3)
    assert counted.plan.dimension == WIDTH + 1


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"party_rate": 0.5, "adjacency": "replace-one"}, "adjacency must be 'add-remove'"),
        ({"budget": Budget(epsilon=1.0, delta=0.0)}, "delta must be positive"),
        ({"clip": "none"}, "clip must be a number for a private run"),
        ({"clip_quantile": 0.5, "count_noise": 0.1}, "count_noise must be more than half"),
        (
            {"party_rate": 0.5, "sharing": Sharing(parties=4, law="discrete-gaussian")},
            "party_rate must be 1 with 'discrete-gaussian' shares",
        ),
        ({"sharing": Sharing(parties=4, law="polya")}, "share_law must not be 'polya'"),
    ],
)
def test_what_has_no_theorem_is_refused(options: dict[str, Any], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        private(task_of("logistic"), **options)


def test_options_that_contradict_each_other_are_refused() -> None:
    for options in ({"local_epochs": 1, "local_steps": 1}, {"cohort": 2, "party_rate": 0.5}):
        with pytest.raises(ValidationError):
            make(averaging, task_of("logistic"), **options)
    with pytest.raises(ValueError, match="clip must be a number with clip_quantile"):
        make(averaging, task_of("logistic"), clip_quantile=0.5)
    with pytest.raises(ValueError, match="local_learning_rate must be a number"):
        make(averaging, task_of("mlp"))


def test_noise_that_would_swamp_the_model_is_refused_with_a_remedy() -> None:
    task = task_of("logistic")
    with pytest.raises(ValueError, match=r"swamp the model.*gradient-perturbation"):
        private(task, allow_swamped=False)
    # z·√d/(q·m) ≤ 1 decides, and nothing else.
    plan = private(task).plan
    needed = plan.mechanisms[0].noise_stddev * sqrt(WIDTH)
    enough, few = int(needed) + 2, int(needed) - 2
    for parties, fine in ((enough, True), (few, False)):
        many = linear_task((5,) * parties, WIDTH)
        if fine:
            assert private(many, allow_swamped=False).plan is not None
        else:
            with pytest.raises(ValueError, match="swamp"):
                private(many, allow_swamped=False)


@pytest.mark.parametrize("rate", [1.0, 0.2])
def test_the_noise_on_a_mean_update_is_that_of_the_plan(rate: float) -> None:
    """Parties that do not move leave nothing but noise: stddev·C/(q·m) on every coordinate."""
    wide = linear_task((5,) * 50, 2000)
    noise = []
    for seed in range(5):
        strategy = private(wide, seed=seed, rounds=1, clip=0.3, party_rate=rate, weights="equal")
        strategy.learn(SilentFederation(wide, sampling=streams(0, "p")).sum(strategy.ask()))
        noise.append(strategy.theta.copy())
    expected = 0.3 * strategy.plan.mechanisms[0].noise_stddev / (rate * 50)
    assert_scale(np.concatenate(noise), expected)
    for twin in (0.5, 0.9):
        with pytest.raises(AssertionError, match="outside"):
            assert_scale(twin * np.concatenate(noise), expected)


def test_shares_of_noise_make_up_the_noise_of_the_plan() -> None:
    wide = linear_task((5,) * 20, 2000)
    strategy = private(wide, rounds=1, weights="equal", sharing=Sharing(parties=20, colluding=0.1))
    mechanism = strategy.plan.mechanisms[0]
    assert isinstance(mechanism, SharedNoise)
    query = strategy.ask()
    assert query.share == mechanism.share
    answer = SilentFederation(wide, sampling=streams(0, "p")).sum(query)
    assert_scale(answer.value, mechanism.stddev_of(20))
    strategy.learn(answer)
    np.testing.assert_allclose(strategy.theta, answer.value / 20)


def test_a_clip_norm_that_follows_a_quantile_finds_it() -> None:
    """Half of the updates are short, half are long: at γ = ½, C ends between the two."""
    task = linear_task(MANY, 4)
    strategy = make(
        averaging,
        task,
        budget=Budget(epsilon=80.0, delta=1e-3),
        rounds=60,
        clip=10.0,
        clip_quantile=0.5,
        weights="equal",
        count_noise=6.0,
    )

    class Halves:
        sizes = MANY

        def sum(self, query: Any) -> Sum:
            kept = sum(norm <= query.clip_norm for norm in [0.1] * 30 + [0.4] * 30)
            total = np.zeros(5, np.int64)
            total[4] = round(query.counting / 2 / query.grid.step) * (2 * kept - 60)
            return Sum(total=total, step=query.grid.step, sizes=MANY)

    trained(strategy, Halves())
    assert 0.08 < strategy._clip < 0.5


def test_the_first_step_of_the_clip_norm_is_that_of_the_formula() -> None:
    task = linear_task(MANY, 4)
    strategy = make(averaging, task, rounds=1, clip=0.5, clip_quantile=0.7, clip_rate=0.3)
    query = strategy.ask()
    answer = federation(task).sum(query)
    kept = 1 - answer.diagnostics["clipped"]
    strategy.learn(answer)
    assert log(strategy._clip / 0.5) == pytest.approx(-0.3 * (kept - 0.7), rel=1e-6)
