"""How far a person can move a minimiser, by brute force: averages of them, and joint ones.

A person's records count as their mean. Every person of small federations is removed, and exchanged
for the worst others that we know of, through the engine. With a hinge whose slope is G at every
minimiser here, the stated sensitivity is nearly reached: a bound for one party, and records that
count one by one, are found out.
"""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import fedpriv.federation.party.answers as answering
from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.federation.party.guard import (
    Policy,
    QueryRefused,
    check_certain,
    check_query,
    check_weighted,
)
from fedpriv.federation.party.party import Party
from fedpriv.federation.queries.kinds import ErmQuery, RiskGradientQuery
from fedpriv.federation.queries.local_noise import LocalNoise
from fedpriv.federation.task import PersonBounds, Task
from fedpriv.learning.clipping.clipped_sum import Clipping
from fedpriv.learning.erm.problem import ErmProblem
from fedpriv.learning.losses import HuberHinge, HuberRegression, Logistic, Squared
from fedpriv.learning.models import LinearModel
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import GaussianEvent
from fedpriv.privacy.gaussian import gdp_mu
from fedpriv.privacy.mechanisms import GaussianMechanism
from fedpriv.privacy.planning.objective.objective import ObjectiveMechanism
from fedpriv.privacy.planning.objective.objective_rules import ObjectiveProblem, gaussian_rule
from fedpriv.privacy.planning.plan import grid_sensitivity
from fedpriv.privacy.unit import Unit
from fedpriv.secagg import FixedPoint
from tests.federation.queries.person_scenes import (
    PARTIES,
    WIDTH,
    Visit,
    data,
    homes,
    neighbours,
    visits,
)
from tests.federation.worlds import build, streams, train

if TYPE_CHECKING:
    from fedpriv.federation.task import Weights

ONE, TWO = Adjacency.REPLACE_ONE, Adjacency.ADD_REMOVE
LAMBDA, SIZES = 4.0, (4, 5, 3, 4)  # persons; there are more of them, or fewer
GRID = FixedPoint(step=2.0**-40, bits=64)
ANY = Policy(unpaid=True, colluding=0.0)


def make_task(**bounds: Any) -> Task:
    return Task(
        model=LinearModel(width=WIDTH),
        loss=HuberHinge(smoothing=0.5),
        regulariser=LAMBDA,
        feature_bound=1.0,
        sizes=SIZES,
        in_place=False,
        persons=PersonBounds(**{"records": 6, **bounds}),
    )


def make_query(task: Task, adjacency: Adjacency, **changes: Any) -> ErmQuery:
    event = GaussianEvent(adjacency=adjacency, unit=Unit.PERSON, relative_noise=5.0)
    tolerance = task.certain_tolerance(LAMBDA)
    terms = {"event": event, "regulariser": LAMBDA, "tolerance": tolerance, **changes}
    return ErmQuery(run="r", round=0, grid=GRID, **terms)


def make_gradient(**changes: Any) -> RiskGradientQuery:
    terms = {"event": None, "theta": np.zeros(WIDTH), **changes}
    grid = FixedPoint(step=2.0**-50, bits=64)
    return RiskGradientQuery(run="r", round=0, grid=grid, exchange=0, **terms)


def total(rows: list[Visit], task: Task, query: ErmQuery) -> np.ndarray:
    federation = VectorizedFederation(data(rows), task=task, sampling=streams(0, "s"), workers=1)
    return federation.sum(query).value


def joint_minimiser(rows: list[Visit], task: Task, adjacency: Adjacency) -> np.ndarray:
    strategy = build("pooled", task, adjacency=adjacency.value)
    federation = VectorizedFederation(data(rows), task=task, sampling=streams(0, "s"), workers=1)
    return train(strategy, federation).theta


def limit(task: Task, query: ErmQuery, adjacency: Adjacency) -> float:
    moved = query.sensitivity(task, sizes=task.sizes, adjacency=adjacency)
    assert moved is not None
    return grid_sensitivity(moved, dimension=task.dimension, step=GRID.step)


def farthest(
    task: Task, adjacency: Adjacency, *, parties: int, weights: Weights | None = "proportional"
) -> float:
    """How far any neighbour is; of the joint minimiser, without weights."""

    def point(rows: list[Visit]) -> np.ndarray:
        if weights is None:
            return joint_minimiser(rows, task, adjacency)
        return total(rows, task, make_query(task, adjacency, weights=weights))

    rows = [row for row in visits() if homes(visits(), row[0]) <= parties]
    whole = point(rows)
    return max(
        float(np.linalg.norm(whole - point(other)))
        for other in neighbours(rows, adjacency, parties)
    )


@pytest.mark.parametrize("adjacency", [ONE, TWO])
@pytest.mark.parametrize("parties", [1, 2])
@pytest.mark.parametrize("weights", ["equal", "proportional"])
def test_no_person_moves_an_average_of_minimisers_further_than_is_stated(
    weights: Weights, parties: int, adjacency: Adjacency
) -> None:
    task = make_task(parties=parties)
    stated = limit(task, make_query(task, adjacency, weights=weights), adjacency)
    divisor = sum(SIZES) if weights == "proportional" else PARTIES * min(SIZES)
    expected = parties * adjacency.sum_sensitivity / (divisor * LAMBDA)
    assert stated == pytest.approx(expected, rel=1e-6)
    found = farthest(task, adjacency, parties=parties, weights=weights)
    assert found <= stated
    if weights == "proportional":  # else the smallest party decides, where few of them are
        assert found > 0.9 * stated


@pytest.mark.parametrize("adjacency", [ONE, TWO])
@pytest.mark.parametrize("parties", [1, 2])
def test_no_person_moves_a_joint_minimiser_further_than_is_stated(
    parties: int, adjacency: Adjacency
) -> None:
    task = make_task(parties=parties)
    terms: dict[str, Any] = {"adjacency": adjacency.value, "unit": "person", "fit": "joint"}
    plan = build("output-perturbation", task, **terms).plan
    assert plan is not None
    (mechanism,) = plan.mechanisms
    assert isinstance(mechanism, GaussianMechanism)
    expected = parties * adjacency.sum_sensitivity / (sum(SIZES) * LAMBDA)
    assert expected <= mechanism.sensitivity <= 1.02 * expected
    found = farthest(task, adjacency, parties=parties, weights=None)
    assert 0.9 * mechanism.sensitivity < found <= mechanism.sensitivity


def test_joint_and_averaged_minimisers_are_those_of_the_definition() -> None:
    """Where the slope is G at every minimiser, θ is the sum of the persons' mean y·x, over P·λ."""
    task = make_task(parties=4)
    rows = [row for row in visits() if row[0] != "all"]
    own: dict[tuple[str, int], list[np.ndarray]] = {}
    for who, party, x, y in rows:
        own.setdefault((who, party), []).append(y * np.array(x, np.float32))
    expected = np.sum([np.mean(of, axis=0) for of in own.values()], axis=0) / (sum(SIZES) * LAMBDA)
    found = total(rows, task, make_query(task, TWO))
    np.testing.assert_allclose(found, expected, atol=1e-6)
    np.testing.assert_allclose(joint_minimiser(rows, task, TWO), expected, atol=1e-6)


@pytest.mark.parametrize("weights", ["proportional", None])
def test_records_that_count_one_by_one_are_found_out(
    weights: Weights | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has several records then moves a minimiser as many times as far."""

    def one_by_one(**facts: Any) -> ErmProblem:
        return ErmProblem(**{**facts, "groups": None})

    def summed(self: Any, theta: Any, _persons: Any) -> Any:
        clipping = Clipping(clip_norm=2.0)
        return answering.Answers(vectors=self._wide_sums(theta, self._batch, clipping)[0])

    monkeypatch.setattr(answering, "ErmProblem", one_by_one)
    monkeypatch.setattr(answering.Holdings, "_mean_gradients", summed)
    task = make_task(parties=1)
    stated = limit(task, make_query(task, TWO), TWO)
    assert farthest(task, TWO, parties=1, weights=weights) > 2 * stated


@pytest.mark.parametrize("weights", ["proportional", None])
def test_a_bound_for_one_party_is_found_out_by_a_person_at_two(weights: Weights | None) -> None:
    task = make_task(parties=1)
    stated = limit(task, make_query(task, TWO), TWO)
    assert farthest(task, TWO, parties=2, weights=weights) > 1.8 * stated


@pytest.mark.parametrize("adjacency", [ONE, TWO])
@pytest.mark.parametrize("strategy", ["output-perturbation", "pathak"])
def test_noise_on_minimisers_is_planned_for_all_that_a_person_can_do(
    strategy: str, adjacency: Adjacency
) -> None:
    task = make_task(parties=2)
    built = build(strategy, task, adjacency=adjacency.value, unit="person")
    assert built.plan is not None
    assert built.plan.unit is Unit.PERSON
    (mechanism,) = built.plan.mechanisms
    assert isinstance(mechanism, GaussianMechanism)
    divisor = sum(SIZES) if strategy == "output-perturbation" else min(SIZES)
    reach = 2 * adjacency.sum_sensitivity / (divisor * LAMBDA)
    assert reach <= mechanism.sensitivity <= 1.02 * reach
    needed = reach / gdp_mu(epsilon=1.0, delta=1e-6)
    assert needed <= mechanism.stddev <= 1.02 * needed
    # What is drawn has that standard deviation: chi-squared bounds, half the noise is outside.
    federation = VectorizedFederation(
        data(visits()), task=task, sampling=streams(0, "s"), workers=1
    )
    noise = []
    for seed in range(60):
        again = build(strategy, task, seed=seed, adjacency=adjacency.value, unit="person")
        asked = again.ask()
        assert asked is not None
        answer = federation.sum(asked)
        released = again._release(answer)
        assert released is not None
        noise.append(released - answer.value)
    assert 0.8 * mechanism.stddev < float(np.std(noise)) < 1.2 * mechanism.stddev


@pytest.mark.parametrize("adjacency", [ONE, TWO])
def test_an_objective_is_perturbed_for_all_records_of_a_person(adjacency: Adjacency) -> None:
    task = replace(make_task(parties=2, records=3), loss=Logistic(), regulariser=0.5)
    terms: dict[str, Any] = {"adjacency": adjacency.value, "unit": "person"}
    strategy = build("objective-perturbation", task, **terms)
    assert strategy.plan is not None
    (mechanism,) = strategy.plan.mechanisms
    assert isinstance(mechanism, ObjectiveMechanism)
    assert mechanism.event().unit is Unit.PERSON
    facts = ObjectiveProblem(
        lipschitz=1.0,
        lipschitz_everywhere=True,
        curvature=0.25,
        curvature_rank=1,
        one_sided=True,
        records=sum(SIZES),
        regulariser=0.5,
        dimension=WIDTH,
        tolerance=1e-9,
        person_records=3,
        person_parties=2,
    )
    stddev, extra = gaussian_rule(1.0, 1e-6, facts, adjacency, solver_share=0.01)
    assert mechanism.linear.noise_stddev == stddev
    assert mechanism.extra_regulariser == extra
    federation = VectorizedFederation(
        data(visits()), task=task, sampling=streams(0, "s"), workers=1
    )
    assert np.isfinite(train(strategy, federation).theta).all()
    either_way = replace(task, loss=HuberRegression(threshold=0.3))
    with pytest.raises(ValueError, match="must have one sign"):
        build("objective-perturbation", either_way, **terms)


def test_a_sum_of_exact_gradients_is_one_of_persons_means() -> None:
    task = replace(make_task(parties=4, records=2), loss=Logistic())
    query = make_gradient(theta=np.array([0.3, -0.2, 0.5]), headroom=2.0)
    strong = [row for row in visits() if row[0] in ("both", "all")]  # equal records, two are left
    federation = VectorizedFederation(data(strong), task=task, sampling=streams(0, "s"), workers=1)
    x = np.array(strong[0][2], np.float32).astype(float)
    one = -x / (1 + np.exp(x @ query.theta))
    np.testing.assert_allclose(federation.sum(query).value, 6 * one, rtol=1e-12)


def test_shares_of_noise_on_minimisers_cover_a_person() -> None:
    task = make_task(parties=2)
    built = build(
        "output-perturbation", task, adjacency="add-remove", unit="person", sharing={"dropout": 0.0}
    )
    query = built.ask()
    assert query is not None
    assert query.share is not None
    check_query(query, task, Policy(colluding=0.1))
    with pytest.raises(QueryRefused, match="not that of the shares"):
        check_query(query, replace(task, persons=PersonBounds(records=6, parties=3)), Policy())


def test_a_party_alone_answers_as_the_engine_does_whatever_the_order_of_its_records() -> None:
    task, whole = make_task(parties=4), data(visits())
    query, rng = make_query(task, TWO), np.random.default_rng(0)
    alone = []
    for j in range(PARTIES):
        records = whole.party(j)
        party = Party(
            records.take(rng.permutation(len(records))),
            task=task,
            size=SIZES[j],
            sampling=streams(0, "s"),
            policy=Policy(colluding=0.0),
        )
        alone.append(query.grid.decode(party.answer(query)))
    apart = np.abs(np.sum(alone, axis=0) * GRID.step - total(visits(), task, query)).max()
    assert apart <= 2 * query.tolerance / LAMBDA + PARTIES * GRID.step


def test_what_a_party_refuses_of_persons_minimisers() -> None:
    task = make_task(parties=2)
    query = make_query(task, TWO)
    check_query(query, task, ANY)
    check_certain(query, task)
    check_weighted(query, TWO, Unit.PERSON)
    of_records = replace(query, event=GaussianEvent(adjacency=TWO, relative_noise=5.0))
    with pytest.raises(QueryRefused, match="stated for one record, and this party sums"):
        check_query(of_records, task, ANY)
    with pytest.raises(QueryRefused, match="true number of records"):
        check_weighted(of_records, TWO, Unit.RECORD)
    local = LocalNoise(law="gaussian", relative_noise=5.0, adjacency=TWO, unit=Unit.PERSON)
    with pytest.raises(QueryRefused, match="what other parties show of the same person"):
        check_query(replace(query, local=local), task, ANY)
    # What is certain of 4 persons with one record each is not of 8 with 1000.
    many = make_task(records=1000)
    with pytest.raises(QueryRefused, match="would decide whether it answers"):
        check_certain(query, many)
    with pytest.raises(QueryRefused, match=r"persons\.records must be given"):
        check_certain(query, make_task(records=None))


def test_twice_the_declared_persons_are_counted_on_under_either_adjacency() -> None:
    task = make_task(parties=1)
    tight = Squared(radius=1.0, label_bound=2.0)  # √λ·radius = 2: enough for P_j persons, not 2·P_j
    with pytest.raises(QueryRefused, match="radius must be at least"):
        check_query(make_query(task, ONE), replace(task, loss=tight), ANY)
    check_query(make_query(task, ONE), replace(task, loss=replace(tight, radius=sqrt(2))), ANY)
    gradient = make_gradient(event=make_query(task, ONE).event)
    with pytest.raises(QueryRefused, match="headroom must be at least 2"):
        check_query(gradient, task, ANY)
    check_query(replace(gradient, headroom=2.0), task, ANY)


def test_the_certain_tolerance_is_that_of_all_records_that_persons_may_have() -> None:
    persons = replace(make_task(records=7), loss=Logistic())
    records = replace(persons, persons=None, headroom=2.0, sizes=tuple(7 * n for n in SIZES))
    assert persons.certain_tolerance(0.1) == records.certain_tolerance(0.1)
