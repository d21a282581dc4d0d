"""Inference: what is released has the noise that was paid for, and says what the records say."""

from __future__ import annotations

from dataclasses import replace
from math import expm1, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.stats import chi2
from statsmodels.regression.linear_model import OLS

from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.federation.queries.kinds import HessianQuery, MomentsQuery, RiskGradientQuery
from fedpriv.inference.coding import Coding
from fedpriv.learning.losses import Squared
from fedpriv.learning.moments import symmetric, triangle
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.gaussian import gdp_mu
from fedpriv.privacy.ledger import Ledger
from fedpriv.privacy.planning.objective.objective_fit import ObjectiveFitMechanism
from fedpriv.privacy.statement import RunFacts, TrustModel, make_statement, to_text
from fedpriv.strategies.common.inference.linear_inference import LinearInference
from fedpriv.strategies.common.inference.logistic_inference import LogisticInference
from tests.federation.worlds import build, linear_task, party_data, streams, train
from tests.statistical import FALSE_FAILURE

if TYPE_CHECKING:
    from pathlib import Path

    from fedpriv.federation.strategy.base import SumStrategy

SIZES, WIDTH = (300, 120, 450), 3
RNG = np.random.default_rng(8)
X = np.column_stack([RNG.uniform(-0.5, 0.5, (sum(SIZES), 2)), np.full(sum(SIZES), 0.5)])
X = X.astype(np.float32).astype(float)
Y = np.clip(X @ [0.8, -0.4, 0.2] + RNG.normal(0, 0.1, len(X)), -1, 1).astype(np.float32)
SIGNS = np.where(RNG.random(len(X)) < 1 / (1 + np.exp(-X @ [2.0, -1.0, 0.5])), 1.0, -1.0)
LINEAR = linear_task(SIZES, WIDTH, loss=Squared(radius=5.0, label_bound=1.0))
LOGISTIC = linear_task(SIZES, WIDTH)
PLAIN = Coding.plain(WIDTH)
KEYED = replace(PLAIN, constant=(2, 0.5))


def world(strategy: SumStrategy, seed: int = 0) -> VectorizedFederation:
    linear = isinstance(strategy, LinearInference)
    return VectorizedFederation(
        party_data(X, Y if linear else SIGNS, SIZES),
        task=strategy.task,
        sampling=streams(seed, "p"),  # what parties draw: their shares of the noise
    )


def made(linear: bool, **options: Any) -> LinearInference | LogisticInference:
    options = {"epsilon": 4.0, **options}
    strategy = build("inference", LINEAR if linear else LOGISTIC, **options)
    assert isinstance(strategy, LinearInference | LogisticInference)
    return strategy


def run(linear: bool, **options: Any) -> LinearInference | LogisticInference:
    strategy = made(linear, **options)
    train(strategy, world(strategy, options.get("seed", 0)))
    return strategy


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_the_moments_get_the_least_noise_that_hides_a_record(adjacency: Adjacency) -> None:
    """Labels are scaled to the length of features: R² = 2B², and √2 of that for an exchange."""
    strategy = made(linear=True, epsilon=1.0, adjacency=adjacency.value)
    assert isinstance(strategy, LinearInference)
    exact = 2 * (sqrt(2) if adjacency is Adjacency.REPLACE_ONE else 1.0)
    least = exact / gdp_mu(epsilon=1.0, delta=1e-6)
    assert least <= strategy.noise_stddev <= 1.002 * least
    assert strategy.plan is not None
    assert strategy.plan.epsilon <= 1.0


SHARING = {"colluding": 0.4, "share_law": "skellam"}


@pytest.mark.parametrize("sharing", [None, SHARING], ids=["server", "shares"])
def test_released_moments_have_their_noise_and_no_less(sharing: dict[str, Any] | None) -> None:
    """Σ noise²/σ² over 30 releases of 10 numbers, by the law of χ²; half the noise is caught.

    Of shares it is the noise of all parties: that is what intervals must know of.
    """
    z = np.column_stack([X, Y])
    exact, total, count, stddev = triangle(z.T @ z), 0.0, 0, 0.0
    for seed in range(30):
        strategy = run(linear=True, seed=seed, sharing=sharing)
        assert isinstance(strategy, LinearInference)
        noise = strategy.checkpoint()["state.released"] - exact
        stddev = strategy.noise_stddev
        total += float((noise**2).sum()) / stddev**2
        count += noise.size
    low, high = chi2.ppf(FALSE_FAILURE / 2, count), chi2.isf(FALSE_FAILURE / 2, count)
    assert low < total < high
    assert not low < total / 4 < high


def test_shares_of_all_but_the_colluders_hide_a_record() -> None:
    """Of three parties one may tell: the other two bring what a server would have to add."""
    for adjacency in Adjacency:
        shared = made(linear=True, adjacency=adjacency.value, sharing=SHARING)
        central = made(linear=True, adjacency=adjacency.value)
        assert isinstance(shared, LinearInference)
        assert isinstance(central, LinearInference)
        honest = shared.noise_stddev * sqrt(2 / 3)
        assert 1 <= honest / central.noise_stddev < 1.07  # Rényi divergences of integer noise
        assert shared.plan is not None
        assert shared.plan.epsilon <= 4.0


def test_the_hessian_is_that_at_the_released_point_with_its_noise() -> None:
    total, count = 0.0, 0
    for seed in range(12):
        strategy = run(linear=False, seed=seed)
        assert strategy.plan is not None
        (mechanism,) = strategy.plan.mechanisms
        assert isinstance(mechanism, ObjectiveFitMechanism)
        p = 1 / (1 + np.exp(-X @ strategy.theta.astype(np.float32)))
        exact = triangle((X * (p * (1 - p))[:, None]).T @ X)
        noise = strategy.checkpoint()["state.released"][WIDTH:] - exact
        total += float((noise**2).sum()) / mechanism.hessian.stddev**2
        count += noise.size
    low, high = chi2.ppf(FALSE_FAILURE / 2, count), chi2.isf(FALSE_FAILURE / 2, count)
    assert low < total < high
    assert not low < total / 4 < high


def test_without_noise_the_estimate_is_least_squares() -> None:
    strategy = build("inference", LINEAR, noise_free=True)
    assert isinstance(strategy, LinearInference)
    train(strategy, world(strategy))
    found = strategy.estimate(PLAIN)
    peer = OLS(Y, X).fit()
    assert found.values == pytest.approx(peer.params, abs=1e-4)
    assert found.stderr == pytest.approx(peer.bse, rel=1e-3)


@pytest.mark.parametrize("linear", [True, False], ids=["linear", "logistic"])
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_the_truth_is_within_a_few_standard_errors(linear: bool, adjacency: str) -> None:
    """Within 6 of them, which the coefficients leave with a probability below 1e-8."""
    found = run(linear, adjacency=adjacency, epsilon=30.0).estimate(KEYED)
    assert found.stderr is not None
    truth = np.array([0.8, -0.4, 0.2] if linear else [2.0, -1.0, 0.5])
    assert (np.abs(found.values - truth) < 6 * found.stderr).all()
    assert found.stderr.max() < (0.5 if linear else 2.0)


def test_the_number_of_records_is_used_where_it_is_a_fact() -> None:
    """Under add-remove it is not: the entry stays noisy, and so does the variance."""
    for adjacency in ("replace-one", "add-remove"):
        strategy = run(linear=True, adjacency=adjacency, epsilon=30.0)
        known, unknown = strategy.estimate(KEYED), strategy.estimate(PLAIN)
        same = bool((known.values == unknown.values).all())
        assert same == (adjacency == "add-remove")
    held_out = replace(LINEAR, in_place=False)
    other = build("inference", held_out, epsilon=30.0)
    assert isinstance(other, LinearInference)
    train(other, world(other))
    assert (other.estimate(KEYED).values == other.estimate(PLAIN).values).all()


def test_the_questions_are_these() -> None:
    strategy = made(linear=True)
    query = strategy.ask()
    assert isinstance(query, MomentsQuery)
    assert query.label_bound == 1.0
    fit, kinds = made(linear=False), []
    place = world(fit)
    while (asked := fit.ask()) is not None:
        kinds.append(type(asked))
        fit.learn(place.sum(asked))
    assert kinds[-1] is HessianQuery
    assert set(kinds[:-1]) == {RiskGradientQuery}


def test_a_release_is_paid_once_and_replayed(tmp_path: Path) -> None:
    """A crash before the Hessian releases nothing; after it, the ledger has both parts."""
    budget = Budget(epsilon=4.0, delta=1e-6)
    with Ledger.create(
        tmp_path / "l", data_name="d", budget=budget, adjacency="replace-one", composition="basic"
    ) as ledger:
        first = made(linear=False, ledger=ledger)
        place = world(first)
        while not isinstance(query := first.ask(), HessianQuery):
            assert query is not None
            first.learn(place.sum(query))
        again = made(linear=False, ledger=ledger)
        assert isinstance(again.ask(), RiskGradientQuery)  # anew, with another b
        train(again, place)
        last = made(linear=False, ledger=ledger)
        assert last.ask() is None
        assert (last.theta == again.theta).all()
        assert (last.estimate(PLAIN).values == again.estimate(PLAIN).values).all()
        assert ledger.spent().guarantee.epsilon == pytest.approx(4.0)


def test_all_parties_must_be_in_the_sum() -> None:
    strategy = made(linear=True)
    query = strategy.ask()
    assert query is not None
    answer = world(strategy).sum(query)
    with pytest.raises(RuntimeError, match="needs all 3 parties"):
        strategy.learn(replace(answer, sizes=answer.sizes[:2]))


@pytest.mark.parametrize("records", [2_000, 100_000, 1_000_000])
def test_the_regulariser_is_the_least_that_keeps_the_solver_quiet(records: int) -> None:
    """A tenth of ε for the Jacobian; more of it only where hiding the solver would be loud."""
    task = linear_task((records,), 4)
    strategy: Any = build("inference", task, epsilon=1.0)
    mechanism, found = strategy.plan.mechanisms[0], strategy.task.regulariser
    least = task.curvature / (records * expm1(0.1))
    most = task.curvature / (200 * task.dimension)
    assert least <= found <= max(least, most)
    quiet = 0.3 * sqrt(task.dimension / (task.curvature * records))
    assert mechanism.output.noise_stddev <= quiet or found == most
    if found > least:
        weaker: Any = build(
            "inference", replace(task, regulariser=found / 1.6), epsilon=1.0, regulariser="model"
        )
        assert weaker.plan.mechanisms[0].output.noise_stddev > quiet


def test_others_than_records_and_other_budgets_are_refused() -> None:
    with pytest.raises(ValueError, match=r"records of one person are alike"):
        build("inference", LOGISTIC, unit="person")
    with pytest.raises(ValueError, match="delta must be positive"):
        made(linear=True, delta=0.0)
    with pytest.raises(ValueError, match=r"law must be 'gaussian'.*privacy\.delta"):
        made(linear=False, delta=0.0)


def test_levels_of_a_category_have_no_noise_between_them() -> None:
    strategy = run(linear=True)
    known = replace(PLAIN, exclusive=((0, 1),))
    assert symmetric(strategy.checkpoint()["state.released"])[0, 1] != 0
    matrix = known.known(strategy._moments())  # type: ignore[union-attr]
    assert matrix.value[0, 1] == matrix.variance[0, 1] == 0


def test_the_statement_of_a_fit_tells_all_of_its_noise_and_where_it_is() -> None:
    """None of it is on a sum: it said so, and of the noise on b alone."""
    strategy = made(linear=False)
    plan = strategy.plan
    assert plan is not None
    (mechanism,) = plan.mechanisms
    assert isinstance(mechanism, ObjectiveFitMechanism)
    statement = make_statement(
        plan,
        facts=RunFacts(
            run="r", data="d", simulated=True, randomness="seeded", sampler="full batch"
        ),
        trust=TrustModel(secure_aggregation="ideal", server_also_sees=strategy.server_also_sees),
    )
    text = " ".join(to_text(statement).split())
    for what, law in (
        ("in the objective", mechanism.linear),
        ("minimiser found", mechanism.output),
        ("Hessian there", mechanism.hessian),
    ):
        assert f"{what}: {law.noise_stddev:.6g}" in text
    assert "of the sum:" not in text
    assert "sums are integers" not in text
