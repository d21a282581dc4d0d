"""Parties with more records than their public size, or fewer, or none: what leaves them is the same
function of the records, divided and weighed by public numbers, within public bounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fedpriv.federation.engines.simulated_keys import simulated_sampling
from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.federation.party.draws import draw
from fedpriv.federation.party.guard import Policy, QueryRefused
from fedpriv.federation.party.party import Party
from fedpriv.federation.queries.bounds import finest_grid
from fedpriv.federation.queries.kinds import (
    ErmQuery,
    GradientQuery,
    LossQuery,
    MomentsQuery,
    Query,
    RiskGradientQuery,
)
from fedpriv.federation.queries.local_noise import LocalNoise
from fedpriv.federation.strategy import joint
from fedpriv.federation.task import HEADROOM
from fedpriv.learning.erm.minimise import minimise
from fedpriv.learning.erm.problem import ErmProblem
from fedpriv.learning.erm.solver import solve
from fedpriv.learning.losses import HuberHinge, HuberRegression, Logistic, Loss, Squared
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import GaussianEvent
from fedpriv.privacy.planning.objective.objective import ObjectiveNoise
from fedpriv.secagg import FixedPoint
from tests.federation.worlds import build, linear_task, party_data, random_data, streams, train

ONE, TWO = Adjacency.REPLACE_ONE, Adjacency.ADD_REMOVE
DECLARED, WIDTH = (10, 10, 10, 5), 3
TRUE = (10, 17, 4, 0)  # as many, more, fewer, none
TASK = linear_task(DECLARED, WIDTH, regulariser=0.05)
DATA = random_data(TRUE, WIDTH)
EVENT = GaussianEvent(adjacency=TWO, relative_noise=2.0)
COMMON: dict[str, Any] = {"run": "r", "round": 0, "grid": FixedPoint(step=2.0**-20, bits=64)}
GRADIENT = GradientQuery(event=EVENT, theta=np.full(WIDTH, 0.3), clip_norm=0.2, **COMMON)
LOSSES = LossQuery(event=EVENT, points=np.array([[0.0] * WIDTH, [0.5] * WIDTH]), clip=0.4, **COMMON)
ERM = ErmQuery(event=EVENT, regulariser=0.05, tolerance=1e-9, **COMMON)
JOINT = RiskGradientQuery(
    event=EVENT, theta=np.full(WIDTH, 0.3), exchange=0, headroom=HEADROOM, **COMMON
)
QUERIES: dict[str, Query] = {
    "gradient": GRADIENT,
    "equal": replace(GRADIENT, weights="equal"),
    "sampled": replace(GRADIENT, sampling_rate=0.5),
    "counted": replace(GRADIENT, counting=0.5),
    "loss": LOSSES,
    "erm": ERM,
    "erm equal": replace(ERM, weights="equal"),
    "joint": JOINT,
    "moments": MomentsQuery(event=EVENT, **COMMON),
    "weighted moments": MomentsQuery(
        event=EVENT, weighting="logistic", theta=np.full(WIDTH, 0.3), **COMMON
    ),
}


def world(data: Any = DATA, task: Any = TASK, seed: int = 0) -> VectorizedFederation:
    return VectorizedFederation(data, task=task, sampling=streams(seed, "p"))


def party(number: int, task: Any = TASK) -> Party:
    return Party(
        DATA.party(number),
        task=task,
        size=task.sizes[number],
        sampling=simulated_sampling(streams(0, "p"), TRUE, number),
        policy=Policy(unpaid=True),
    )


@pytest.mark.parametrize("name", QUERIES)
def test_both_engines_answer_alike_whatever_the_true_numbers_are(name: str) -> None:
    """The sum of the parties alone is that of all in one process; their sizes are the declared."""
    query = QUERIES[name]
    parties = [party(number) for number in range(len(TRUE))]
    assert tuple(each.size for each in parties) == DECLARED
    alone = sum(query.grid.decode(each.answer(query)) for each in parties)
    together = world().sum(query)
    assert together.sizes == DECLARED
    # Two certified minimisers lie within 2·tolerance/λ of one another, float64 sums closer.
    slack = len(TRUE) * (1 + 2e-9 / 0.05 / query.grid.step)
    assert np.abs(alone - together.total).max() <= (slack if isinstance(query, ErmQuery) else 2)


def test_a_minimiser_and_its_weight_are_of_the_declared_number() -> None:
    for number, true in enumerate(TRUE):
        records = DATA.party(number)
        problem = ErmProblem(
            features=torch.tensor(records.X),
            labels=torch.tensor(records.y),
            offsets=torch.tensor([0, true]),
            loss=Logistic(),
            regulariser=0.05,
            counts=torch.tensor([DECLARED[number]]),
        )
        theta = solve(problem, tolerance=1e-10).theta[0].numpy()
        found = ERM.grid.decode(party(number).answer(ERM)) * ERM.grid.step
        expected = theta * DECLARED[number] / sum(DECLARED)
        assert np.abs(found - expected).max() <= 1e-9 / 0.05 + ERM.grid.step


def test_equal_weights_are_of_the_declared_number() -> None:
    plain, equal = (
        party(1).answer(query).astype(np.int64) * 1.0 for query in (GRADIENT, QUERIES["equal"])
    )
    assert np.abs(equal - plain * 5 / 10).max() <= 1


def test_a_sample_is_one_of_the_records_that_there_are() -> None:
    sampled = replace(GRADIENT, sampling_rate=0.9)
    seen: set[int] = set()
    for seed in range(30):
        draws = draw(sampled, TASK, DECLARED, streams(seed, "p")(0), units=sum(TRUE))
        assert draws.sample is not None
        seen |= set(draws.sample.tolist())
    assert seen == set(range(sum(TRUE)))


def test_a_term_of_an_objective_follows_from_the_declared_number() -> None:
    objective = ObjectiveNoise(law="gaussian", epsilon=1.0, delta=1e-6, adjacency=TWO)
    query = replace(ERM, objective=objective)
    few, many = (draw(query, TASK, DECLARED, streams(0, "p")(0), units=units) for units in (0, 99))
    assert few.linear is not None
    assert many.linear is not None
    assert (few.linear == many.linear).all()
    assert (few.extra_regulariser == many.extra_regulariser).all()  # type: ignore[union-attr]


def crowd(records: int) -> VectorizedFederation:
    """One party of ``records`` records that agree, and a size of ten."""
    X, y = np.tile([0.9, 0.0, 0.1], (records, 1)), -np.ones(records)
    return world(party_data(X, y, (records,)), linear_task((10,), WIDTH, regulariser=0.05))


@pytest.mark.parametrize("query", [GRADIENT, LOSSES], ids=["gradient", "loss"])
def test_more_records_than_declared_never_exceed_the_public_bound(query: Query) -> None:
    """A party does not refuse: that would tell how many there are. Its sum stops at the bound, in
    steps that are no longer than before."""
    task = linear_task((10,), WIDTH, regulariser=0.05)
    bound = query.answer_bound(task, 10) / query.grid.step
    sums = np.array([crowd(records).sum(query).total for records in range(5, 25)])
    steps = np.diff(sums, axis=0)
    assert np.abs(sums).max() <= bound + 1
    assert np.abs(sums[-1]).max() >= bound - 1
    assert (np.abs(steps) <= np.abs(steps[0]) + 1).all()
    assert (steps * np.sign(steps[0]) >= 0).all()  # none turns back


def test_exact_gradients_are_not_clamped_and_end_at_their_headroom() -> None:
    grid = finest_grid(bound=HEADROOM * 10 * 1.0)
    query = replace(JOINT, theta=np.array([50.0, 0.0, 0.0]), grid=grid)
    whole = crowd(20).sum(query).value[0]
    assert whole == pytest.approx(20 * float(np.float32(0.9)), rel=1e-9)
    with pytest.raises(ValueError, match="Nothing was encoded"):
        crowd(40).sum(query)


@pytest.mark.parametrize("true", [(9, 9), (3, 30), (20, 40), (0, 5)])
@pytest.mark.parametrize(
    "loss",
    [Logistic(), HuberHinge(smoothing=0.05), HuberRegression(threshold=0.7)],
    ids=lambda loss: type(loss).__name__,
)
def test_a_joint_fit_finds_the_minimiser_for_the_declared_number(
    loss: Loss, true: tuple[int, int]
) -> None:
    """Twice as many records as are declared make the objective twice as steep."""
    declared, lam = (10, 20), 0.02
    data, task = random_data(true, WIDTH), linear_task(declared, WIDTH, loss=loss, regulariser=lam)
    strategy = build("pooled", task, adjacency="add-remove", tolerance=1e-9)
    train(strategy, world(data, task))
    problem = ErmProblem(
        features=torch.tensor(data.dataset.train.X, dtype=torch.float64),
        labels=torch.tensor(data.dataset.train.y),
        offsets=torch.tensor([0, sum(true)]),
        loss=loss,
        regulariser=lam,
        counts=torch.tensor([30]),
        feature_bound=1.0,
    )
    theta = solve(problem, tolerance=1e-11).theta[0].numpy()
    if np.linalg.norm(theta) < 0.999 * loss.lipschitz / lam:
        assert np.linalg.norm(strategy.theta - theta) <= 1.1e-9 / lam


@pytest.mark.parametrize(("adjacency", "times"), [("replace-one", 1), ("add-remove", HEADROOM)])
def test_a_joint_fit_allows_for_as_many_records_as_there_may_be(
    adjacency: str, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records on the bend of the hinge, so many times the declared: as steep as can be."""
    seen: dict[str, float] = {}

    def spied(*arguments: Any, **bounds: Any) -> Any:
        seen.update(bounds)
        return minimise(*arguments, **bounds)

    monkeypatch.setattr(joint, "minimise", spied)
    lam, loss = 0.01, HuberHinge(smoothing=0.5)
    task = linear_task((8,), 1, loss=loss, regulariser=lam)  # a power of two: no bit to spare
    X = np.ones((8 * times, 1))
    strategy = build("pooled", task, adjacency=adjacency, tolerance=1e-9)
    train(strategy, world(party_data(X, np.ones(len(X)), (len(X),)), task))
    bend = loss.curvature(torch.ones(len(X)), torch.ones(len(X))).sum().item() / 8
    assert bend == times
    assert seen["smoothness"] >= (bend + lam) * (1 - 1e-12)


def test_a_party_refuses_exact_sums_that_its_number_of_records_might_not_fit() -> None:
    with pytest.raises(QueryRefused, match="headroom must be at least 2 under 'add-remove'"):
        party(0).answer(replace(JOINT, headroom=1))
    party(0).answer(replace(JOINT, headroom=1, event=replace(EVENT, adjacency=ONE)))


def test_a_party_refuses_a_loss_that_no_rule_holds_for_before_it_uses_a_record() -> None:
    squared = linear_task(TRUE[:2], WIDTH, loss=Squared(radius=9.0, label_bound=1.0))
    small = replace(squared, loss=Squared(radius=2.0, label_bound=1.0))
    objective = ObjectiveNoise(law="gaussian", epsilon=1.0, delta=1e-6, adjacency=ONE)
    local = LocalNoise(law="gaussian", relative_noise=2.0, adjacency=ONE)
    grid = FixedPoint(step=2.0**-20, bits=64)
    event = GaussianEvent(adjacency=ONE, relative_noise=2.0)
    plain = ErmQuery(run="r", round=0, grid=grid, event=event, regulariser=0.05, tolerance=1e-9)
    for task, query, reason in (
        (squared, replace(plain, objective=objective), "Lipschitz everywhere"),
        (small, replace(plain, local=local), "radius must be at least"),
        (small, plain, "radius must be at least"),
    ):
        held = Party(DATA.party(0), task=task, sampling=streams(0, "p"))
        with pytest.raises(QueryRefused, match=reason):
            held.answer(query)
    answered = Party(DATA.party(0), task=squared, sampling=streams(0, "p")).answer(plain)
    assert np.isfinite(grid.decode(answered)).all()


def test_a_size_must_be_one_of_the_task() -> None:
    with pytest.raises(ValueError, match=r"size must be one that the task states: .*, got 11"):
        Party(DATA.party(0), task=TASK, size=11, sampling=streams(0, "p"))
