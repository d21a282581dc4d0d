"""Federated averaging: it is what the papers say, and its noise and bounds are what is claimed."""

from __future__ import annotations

from dataclasses import replace
from math import log, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from pydantic import ValidationError
from scipy.stats import chi2

from fedpriv.federation.engines.dropouts import Dropouts
from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.federation.federation import Sum
from fedpriv.federation.party.guard import Policy
from fedpriv.federation.party.party import Party
from fedpriv.learning.optimisers import Adam, Momentum, Nesterov, Yogi
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.events import GaussianEvent, PoissonGaussianEvent
from fedpriv.privacy.ledger import Ledger
from fedpriv.privacy.mechanisms.shares import SharedNoise
from fedpriv.privacy.planning.shares import Sharing
from fedpriv.privacy.unit import Unit
from fedpriv.strategies import federated_averaging as averaging
from tests.federation.worlds import SilentFederation, linear_task, random_data, streams
from tests.statistical import FALSE_FAILURE
from tests.strategies.plain_training import MODELS, SIZES, WIDTH, Plain, make, task_of, trained

if TYPE_CHECKING:
    from pathlib import Path

    from fedpriv.federation.task import Task

DATA = random_data(SIZES, WIDTH)
BUDGET = Budget(epsilon=3.0, delta=1e-5)
BY_SIZE = [size / max(SIZES) for size in SIZES]
MANY = (3,) * 60  # parties
# float32 training against float64: relative 2⁻²⁴ a step, about ten steps a round, four rounds.
CLOSE = 3e-5


def federation(task: Task, **more: Any) -> VectorizedFederation:
    data = DATA if task.sizes == SIZES else random_data(task.sizes, task.model.features)
    return VectorizedFederation(data, task=task, sampling=streams(0, "parties"), **more)


def private(task: Task, **options: Any) -> Any:
    chosen: dict[str, Any] = {"budget": BUDGET, "allow_swamped": True, "rounds": 3, **options}
    return make(averaging, task, **chosen)


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_it_is_plain_federated_averaging_to_rounding(name: str, apart: bool) -> None:
    task = task_of(name)
    plain = Plain(task=task, data=DATA, rate=0.5, epochs=2)
    strategy = make(averaging, task, rounds=4, local_epochs=2, local_learning_rate=0.5)
    start = np.array(strategy.theta)
    found = trained(strategy, federation(task, apart=apart))
    expected = plain.average(start, 4, lambda theta, mean: theta + mean, weights=BY_SIZE)
    np.testing.assert_allclose(found, expected, rtol=0, atol=CLOSE)
    assert np.abs(found - start).max() > 0.05


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    ("options", "more"),
    [
        ({"local_momentum": 0.7}, {"momentum": 0.7}),
        ({"proximal": 0.9}, {"proximal": 0.9}),
        ({"local_momentum": 0.5, "proximal": 0.3, "batch_size": 4}, {}),
    ],
    ids=["momentum", "proximal", "both"],
)
def test_local_momentum_and_the_proximal_term_are_those_of_the_papers(
    name: str, options: dict[str, Any], more: dict[str, Any]
) -> None:
    task = task_of(name)
    more = more or {"momentum": 0.5, "proximal": 0.3, "batch": 4}
    plain = Plain(task=task, data=DATA, rate=0.3, epochs=2, **more)
    strategy = make(averaging, task, rounds=3, local_epochs=2, local_learning_rate=0.3, **options)
    start = np.array(strategy.theta)
    found = trained(strategy, federation(task))
    expected = plain.average(start, 3, lambda theta, mean: theta + mean, weights=BY_SIZE)
    np.testing.assert_allclose(found, expected, rtol=0, atol=CLOSE)
    without = replace(plain, momentum=0.0, proximal=0.0)
    other = without.average(start, 3, lambda theta, mean: theta + mean, weights=BY_SIZE)
    assert np.abs(found - other).max() > 1e-3  # the terms matter here


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("momentum", Momentum(learning_rate=1 - 0.9, decay=0.9)),
        ("nesterov", Nesterov(learning_rate=1 - 0.9, decay=0.9)),
        ("adam", Adam(learning_rate=0.01, stability=1e-3)),
        ("yogi", Yogi(learning_rate=0.01, stability=1e-3)),
    ],
)
def test_the_server_takes_the_mean_update_for_a_gradient_downhill(name: str, rule: Any) -> None:
    task = task_of("logistic")
    plain = Plain(task=task, data=DATA, rate=0.5)
    state = rule.start(np.zeros(WIDTH))

    def step(theta: Any, mean: Any) -> Any:
        nonlocal state
        theta, state = rule.step(theta, -mean, state)
        return theta

    expected = plain.average(np.zeros(WIDTH), 4, step, weights=[1.0] * 4)
    strategy = make(
        averaging, task, rounds=4, local_learning_rate=0.5, optimiser=name, weights="equal"
    )
    np.testing.assert_allclose(trained(strategy, federation(task)), expected, rtol=0, atol=CLOSE)


def test_one_step_on_all_records_is_a_step_of_gradient_descent() -> None:
    """FedSGD: the mean over parties by size is the mean over records."""
    task = task_of("logistic", regulariser=0.0)
    strategy = make(
        averaging, task, rounds=1, local_steps=1, batch_size="all", local_learning_rate=1.0
    )
    X, y = DATA.dataset.train.X.astype(np.float64), DATA.dataset.train.y.astype(np.float64)
    expected = (y / 2) @ X / len(X)
    np.testing.assert_allclose(trained(strategy, federation(task)), expected, atol=1e-6)


def test_a_cohort_is_public_and_its_mean_is_over_its_members() -> None:
    task = task_of("logistic")
    strategy = make(averaging, task, rounds=3, cohort=2, local_learning_rate=0.5)
    world, plain = federation(task), Plain(task=task, data=DATA, rate=0.5)
    theta, cohorts = np.zeros(WIDTH), set()
    for round_ in range(3):
        query = strategy.ask()
        members = tuple(np.flatnonzero(query.trainees(4)).tolist())
        cohorts.add(members)
        updates = np.array([BY_SIZE[j] * plain.update(theta, j, round_)[0] for j in members])
        theta = theta + updates.sum(axis=0) / sum(BY_SIZE[j] for j in members)
        strategy.learn(world.sum(query))
        assert len(members) == 2
    np.testing.assert_allclose(strategy.theta, theta, rtol=0, atol=CLOSE)
    assert len(cohorts) > 1


def test_a_sample_is_drawn_by_coins_and_divided_by_what_is_expected() -> None:
    task = linear_task(MANY, 4)
    world = federation(task)
    strategy = make(
        averaging, task, rounds=40, party_rate=0.25, weights="equal", clip=1e-6, learning_rate=1e-9
    )
    everybody = make(averaging, task, rounds=1, weights="equal", clip=1e-6)
    whole = world.sum(everybody.ask()).value  # of updates that are all clipped to the same length
    shares = []
    while (query := strategy.ask()) is not None:
        answer = world.sum(query)
        assert len(answer.sizes) == len(MANY)  # who stayed out does not show
        shares.append(answer.value @ whole / (whole @ whole))
        before = strategy.theta.copy()
        strategy.learn(answer)
        moved = (strategy.theta - before) / 1e-9
        np.testing.assert_allclose(moved, answer.value * 1e-6 / (0.25 * 60), rtol=1e-5, atol=1e-12)
    assert np.mean(shares) == pytest.approx(0.25, abs=6 * sqrt(0.25 * 0.75 / (60 * 40)))
    assert np.std(shares) > 0.02


def test_who_drops_out_counts_as_one_who_did_not_move() -> None:
    """Dropping out is no sampling: the divisor stays."""
    task = linear_task(MANY, 4)
    dropouts = Dropouts(parties=60, fraction=0.2, seed=0)
    strategy = make(averaging, task, rounds=1, weights="equal", clip=1.0)
    query = strategy.ask()
    answer = federation(task, dropouts=dropouts).sum(query)
    absent = dropouts.silent(0)
    assert absent
    assert len(answer.sizes) == 60 - len(absent)
    data, total = random_data(MANY, 4), np.zeros(4, np.int64)
    for number in set(range(60)) - set(absent):
        party = Party(
            data.party(number),
            task=task,
            number=number,
            sampling=streams(0, "p"),
            policy=Policy(unpaid=True),
        )
        total += query.grid.decode(party.answer(query))
    np.testing.assert_allclose(answer.value, total * query.grid.step, atol=1e-5)
    strategy.learn(answer)
    np.testing.assert_allclose(strategy.theta, answer.value / 60)


# Privacy.


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
        ({"clip": "none"}, "clip must be a number where privacy is promised"),
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


def assert_scale(noise: np.ndarray, stddev: float) -> None:
    """Σx²/σ² is chi-squared; a tenth of the stated probability is for what σ leaves out."""
    statistic = float(np.square(noise).sum()) / stddev**2
    low, high = chi2.ppf(FALSE_FAILURE / 20, noise.size), chi2.isf(FALSE_FAILURE / 20, noise.size)
    assert low <= statistic <= high, f"{statistic:.0f} outside [{low:.0f}, {high:.0f}]"


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


# A run that ends and goes on.


@pytest.mark.parametrize("options", [{}, {"clip_quantile": 0.5, "count_noise": 5.0}])
def test_a_restored_run_ends_as_if_uninterrupted(options: dict[str, Any]) -> None:
    task = task_of("logistic")
    whole, broken, again = (
        private(task, rounds=5, party_rate=0.5, optimiser="adam", **options) for _ in range(3)
    )
    trained(whole, federation(task))
    for _ in range(2):
        broken.learn(federation(task).sum(broken.ask()))
    again.restore(broken.checkpoint())
    assert (trained(again, federation(task)) == whole.theta).all()
    assert again._clip == whole._clip


@pytest.mark.parametrize("options", [{}, {"party_rate": 0.5}, {"clip_quantile": 0.5}])
def test_what_was_committed_is_replayed_from_the_ledger(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    """A process that crashed: its releases are taken from the ledger, and none is drawn again."""
    task = task_of("logistic")
    more = {"count_noise": 9.0} if "clip_quantile" in options else {}
    path, budget = tmp_path / "ledger", Budget(epsilon=6.0, delta=1e-5)

    def begun(ledger: Ledger) -> Any:
        return private(task, ledger=ledger, rounds=4, clip=0.1, **options, **more)

    with Ledger.create(
        path,
        data_name="d",
        budget=budget,
        adjacency="add-remove",
        unit=Unit.PARTY,
        composition="rdp",  # it has a price for sampled rounds, too
    ) as ledger:
        one = begun(ledger)
        for _ in range(2):
            one.learn(federation(task).sum(one.ask()))
        left, clip = one.theta.copy(), one._clip
    with Ledger.open(path) as ledger:
        again = begun(ledger)
        query = again.ask()
        assert (query.round, again.round) == (2, 2)
        assert (again.theta == left).all()
        assert again._clip == clip
        trained_again = again.theta.copy()
        again.learn(federation(task).sum(query))
        assert (again.theta != trained_again).any()
        assert ledger.settings.unit is Unit.PARTY
        assert {event.unit for event, _ in again.plan.releases} == {Unit.PARTY}
