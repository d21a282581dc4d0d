"""What a person can do to a sum, by brute force: persons with several records, at several parties.

Every person of small federations is removed, and exchanged for the worst others that we know of,
through the engine, fixed point included. The stated sensitivity is never exceeded and nearly
reached; a party that clips records one by one, and noise for one party only, are found out.
"""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import fedpriv.federation.party.answers as answering
from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.federation.party.guard import Policy, QueryRefused, check_query
from fedpriv.federation.party.party import Party
from fedpriv.federation.queries.bounds import gradient_sensitivity
from fedpriv.federation.queries.kinds import AccuracyQuery, GradientQuery
from fedpriv.federation.task import PersonBounds, Task
from fedpriv.learning.clipping.clipped_sum import clipped_gradient_sums
from fedpriv.learning.losses import Logistic
from fedpriv.learning.models import LinearModel, MlpModel
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import GaussianEvent, PoissonGaussianEvent, PoissonPartsEvent
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
    from fedpriv.learning.models import Model

C = 0.1
GRID = FixedPoint(step=2.0**-14)
ONE, TWO = Adjacency.REPLACE_ONE, Adjacency.ADD_REMOVE
MODELS: dict[str, Model] = {
    "linear": LinearModel(width=WIDTH),
    "network": MlpModel(widths=(WIDTH, 2, 1), activation="tanh"),
}


def make_task(model: str = "linear", **bounds: Any) -> Task:
    return Task(
        model=MODELS[model],
        loss=Logistic(),
        regulariser=0.1,
        feature_bound=1.0,
        sizes=(4, 4, 4, 4),
        in_place=False,
        persons=PersonBounds(**bounds),
    )


def make_query(task: Task, adjacency: Adjacency, **changes: Any) -> GradientQuery:
    theta = task.model.initial(np.random.default_rng(1)).numpy() + 0.1
    event = GaussianEvent(adjacency=adjacency, unit=Unit.PERSON, relative_noise=5.0)
    query = GradientQuery(run="r", round=0, grid=GRID, event=event, theta=theta, clip_norm=C)
    return replace(query, **changes)


def total(rows: list[Visit], task: Task, query: GradientQuery) -> np.ndarray:
    federation = VectorizedFederation(data(rows), task=task, sampling=streams(0, "s"), workers=1)
    return federation.sum(query).value


def limit(task: Task, query: GradientQuery, adjacency: Adjacency) -> float:
    moved = query.sensitivity(task, sizes=task.sizes, adjacency=adjacency)
    assert moved is not None
    return grid_sensitivity(moved, dimension=query.answer_width(task), step=GRID.step)


def farthest(task: Task, adjacency: Adjacency, query: GradientQuery, *, parties: int) -> float:
    rows = [row for row in visits() if homes(visits(), row[0]) <= parties]
    whole = total(rows, task, query)
    return max(
        float(np.linalg.norm(whole - total(other, task, query)))
        for other in neighbours(rows, adjacency, parties)
    )


@pytest.mark.parametrize("adjacency", [ONE, TWO])
@pytest.mark.parametrize("parties", [1, 2, 4])
@pytest.mark.parametrize("model", MODELS)
def test_no_person_moves_a_sum_further_than_is_stated(
    model: str, parties: int, adjacency: Adjacency
) -> None:
    task = make_task(model, parties=parties)
    query = make_query(task, adjacency)
    stated = limit(task, query, adjacency)
    assert stated == pytest.approx(parties * adjacency.sum_sensitivity * C, rel=5e-3)
    found = farthest(task, adjacency, query, parties=parties)
    assert found <= stated
    if adjacency is TWO or parties * 2 <= PARTIES:
        assert found > 0.9 * stated  # nearly reached: half of it would be found out


@pytest.mark.parametrize("adjacency", [ONE, TWO])
def test_records_clipped_one_by_one_are_found_out(
    adjacency: Adjacency, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_by_one(self: Any, query: Any, _draws: Any, _persons: Any, clipping: Any) -> Any:
        theta = torch.from_numpy(query.theta.astype(np.float32))
        task = self._task
        sums = clipped_gradient_sums(task.model, task.loss, theta, self._batch, clipping)
        return sums.value.numpy(), sums.measures

    task = replace(make_task(parties=1), sizes=(40,) * PARTIES)  # room for such sums
    query = make_query(task, adjacency)
    monkeypatch.setattr(answering.Holdings, "_person_sums", one_by_one)
    assert farthest(task, adjacency, query, parties=1) > 1.5 * limit(task, query, adjacency)


def test_a_bound_for_one_party_is_found_out_by_a_person_at_two() -> None:
    task = make_task(parties=1)
    query = make_query(task, TWO)
    assert farthest(task, TWO, query, parties=2) > 1.9 * limit(task, query, TWO)


@pytest.mark.parametrize("adjacency", [ONE, TWO])
def test_a_count_of_persons_moves_by_half_for_each_at_each_party(adjacency: Adjacency) -> None:
    for parties in (1, 2):
        task = make_task(parties=parties)
        query = make_query(task, adjacency, counting=1.0, clip_norm=0.45)
        rows = [row for row in visits() if homes(visits(), row[0]) <= parties]
        whole = total(rows, task, query)[-1]
        moved = {
            abs(float(whole - total(other, task, query)[-1]))
            for other in neighbours(rows, adjacency, parties)
        }
        assert 0 < max(moved) <= parties * adjacency.sum_sensitivity / 2
        assert 2 * whole == round(2 * whole)


@pytest.mark.parametrize("adjacency", [ONE, TWO])
@pytest.mark.parametrize("parties", [1, 2, 4])
def test_no_person_moves_gradients_and_their_count_further_than_is_stated(
    parties: int, adjacency: Adjacency
) -> None:
    task = make_task(parties=parties)
    query = make_query(task, adjacency, counting=1.5)
    stated = limit(task, query, adjacency)
    assert stated == pytest.approx(1.25 * parties * adjacency.sum_sensitivity, rel=5e-3)
    found = farthest(task, adjacency, query, parties=parties)
    assert found <= stated
    if adjacency is TWO:
        assert found > 0.9 * stated  # nearly reached: without the count it would be found out


def test_records_beyond_the_bound_are_dropped_at_the_party() -> None:
    """A person's records in any number are those that the rule keeps, and no other is dropped."""
    task = make_task(parties=4, records=2)
    query = make_query(task, TWO, clip_norm=100.0, grid=FixedPoint(step=2.0**-20))
    found = total(visits(), task, query)
    own, _, X, y = zip(*visits(), strict=True)
    slopes = [-b / (1 + np.exp(b * np.dot(a, query.theta))) for a, b in zip(X, y, strict=True)]
    everything = np.sum([s * np.array(a) for s, a in zip(slopes, X, strict=True)], axis=0)
    unbounded = total(visits(), make_task(parties=4), query)
    np.testing.assert_allclose(unbounded, everything, atol=1e-4)
    assert not np.allclose(found, everything, atol=1e-2)
    # The two strong persons have equal records, of which two are left at each party.
    strong = slopes[own.index("all")] * np.array(X[own.index("all")])
    only = [row for row in visits() if row[0] in ("both", "all")]
    np.testing.assert_allclose(total(only, task, query), 12 * strong, atol=1e-4)


@pytest.mark.parametrize("model", MODELS)
def test_engines_agree_and_a_party_need_not_have_its_persons_sorted(model: str) -> None:
    task = make_task(model, parties=4, records=3)
    query = make_query(task, TWO)
    rows = visits()
    rng = np.random.default_rng(0)
    whole = data(rows)
    alone = []
    for j in range(PARTIES):
        records = whole.party(j)
        party = Party(
            records.take(rng.permutation(len(records))),
            task=task,
            size=4,
            sampling=streams(0, "s"),
            policy=Policy(colluding=0.0),
        )
        alone.append(query.grid.decode(party.answer(query)))
    apart = np.abs(np.sum(alone, axis=0) * GRID.step - total(rows, task, query)).max()
    assert apart <= PARTIES * GRID.step


def test_a_poisson_sample_is_one_of_persons() -> None:
    """Each joins with all records at a party or with none, at every party by its own coin."""
    task = make_task(parties=4)
    event = PoissonPartsEvent(
        adjacency=TWO, unit=Unit.PERSON, relative_noise=5.0, sampling_rate=0.5, parts=4
    )
    query = make_query(task, TWO, sampling_rate=0.5, event=event, clip_norm=100.0)
    strong = tuple(np.full(WIDTH, 0.999 / sqrt(WIDTH)))
    rows: list[Visit] = [("all", party, strong, 1.0) for party in range(4) for _ in range(3)]
    federation = VectorizedFederation(data(rows), task=task, sampling=streams(3, "s"), workers=1)
    one = 3 * np.array(strong) / (1 + np.exp(np.dot(strong, query.theta)))
    shares = [
        float(np.linalg.norm(federation.sum(replace(query, round=r)).value) / np.linalg.norm(one))
        for r in range(200)
    ]
    counts = np.bincount(np.rint(shares).astype(int), minlength=5)
    np.testing.assert_allclose(shares, np.rint(shares), atol=2e-3)
    assert (counts > 0).all()  # of four coins, every number came up: 2·(15/16)^200 < 10⁻⁵ to fail


def test_queries_that_are_not_for_persons_are_refused() -> None:
    task = make_task(parties=2)
    guard = Policy(unpaid=True, colluding=0.0)
    accuracy = AccuracyQuery(run="r", round=0, grid=GRID, event=None, theta=np.zeros(WIDTH))
    with pytest.raises(QueryRefused, match="not known for the person unit"):
        check_query(accuracy, task, guard)
    for_records = GaussianEvent(adjacency=ONE, relative_noise=5.0)
    with pytest.raises(QueryRefused, match="stated for one record, and this party sums"):
        check_query(make_query(task, ONE, event=for_records), task, guard)
    by_record = replace(task, persons=None)
    with pytest.raises(QueryRefused, match="all records of one person, and this party does not"):
        check_query(make_query(task, ONE), by_record, guard)


def test_a_sample_of_persons_at_two_parties_is_charged_for_both() -> None:
    task = make_task(parties=2)
    guard = Policy(colluding=0.0)
    terms: dict[str, Any] = {"adjacency": TWO, "unit": Unit.PERSON, "relative_noise": 5.0}
    for event in (
        PoissonGaussianEvent(**terms, sampling_rate=0.5),
        PoissonPartsEvent(**terms, sampling_rate=0.5, parts=1),
    ):
        query = make_query(task, TWO, event=event, sampling_rate=0.5)
        with pytest.raises(QueryRefused, match="samples at 2 parties"):
            check_query(query, task, guard)
        check_query(query, make_task(parties=1), guard)


@pytest.mark.parametrize("adjacency", [ONE, TWO])
@pytest.mark.parametrize("parties", [1, 3])
def test_noise_is_planned_for_all_that_a_person_can_do(parties: int, adjacency: Adjacency) -> None:
    from fedpriv.privacy.gaussian import gdp_mu
    from fedpriv.privacy.mechanisms import GaussianMechanism

    task = make_task(parties=parties)
    strategy = build(
        "gradient-perturbation",
        task,
        adjacency=adjacency.value,
        unit="person",
        rounds=7,
        clip=C,
        learning_rate=0.1,
    )
    assert strategy.plan is not None
    assert strategy.plan.unit is Unit.PERSON
    mechanism = strategy.plan.mechanisms[0]
    assert isinstance(mechanism, GaussianMechanism)
    reach = parties * adjacency.sum_sensitivity * C
    assert reach <= mechanism.sensitivity <= 1.05 * reach
    needed = sqrt(7) / gdp_mu(epsilon=1.0, delta=1e-6) * reach
    assert needed <= mechanism.stddev <= 1.05 * needed
    # What is drawn has that standard deviation: chi-squared bounds, half the noise is outside.
    query = strategy.ask()
    assert query is not None
    empty = VectorizedFederation(data(visits()), task=task, sampling=streams(0, "s"), workers=1)
    noise = []
    for seed in range(60):
        again = build(
            "gradient-perturbation",
            task,
            seed=seed,
            adjacency=adjacency.value,
            unit="person",
            rounds=7,
            clip=C,
            learning_rate=0.1,
        )
        asked = again.ask()
        assert asked is not None
        answer = empty.sum(asked)
        released = again._release(answer)
        assert released is not None
        noise.append(released * task.records - answer.value)
    spread = float(np.std(noise))
    assert 0.8 * mechanism.stddev < spread < 1.2 * mechanism.stddev


def test_a_strategy_of_ones_own_is_held_to_persons() -> None:
    from fedpriv.privacy.budget import Budget
    from fedpriv.privacy.planning.gradient import gradient_plan

    task = make_task(parties=2)
    step = 2.0**-20
    moved = gradient_sensitivity(task, clip_norm=C, adjacency=TWO, step=step)
    assert moved == pytest.approx(2 * C, rel=1e-2)
    with pytest.raises(ValueError, match="step must be given for persons"):
        gradient_sensitivity(task, clip_norm=C, adjacency=TWO)
    plan = gradient_plan(
        budget=Budget(epsilon=1.0, delta=1e-6),
        rounds=2,
        sensitivity=moved,
        clip_norm=C,
        sizes=task.sizes,
        dimension=task.dimension,
        step=step,
        adjacency=TWO,
        unit=Unit.PERSON,
        sampling_rate=0.5,
        parts=2,
    )
    assert isinstance(plan.event(0), PoissonPartsEvent)


def test_adaptive_clipping_runs_for_persons() -> None:
    for rule in ("quantile", "coordinate"):
        task = make_task(parties=2)
        strategy = build(
            "adaptive-clipping",
            task,
            adjacency="add-remove",
            unit="person",
            rounds=3,
            rule=rule,
            learning_rate=0.1,
        )
        federation = VectorizedFederation(
            data(visits()), task=task, sampling=streams(0, "s"), workers=1
        )
        train(strategy, federation)
        assert strategy.plan is not None
        assert strategy.plan.unit is Unit.PERSON
        assert np.isfinite(strategy.theta).all()
