"""A joint fit finds the minimiser of all records, asks for sums only, and forgets them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from fedpriv import strategies
from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.federation.queries.bounds import finest_grid
from fedpriv.federation.queries.kinds import RiskGradientQuery
from fedpriv.federation.strategy import joint
from fedpriv.learning.erm.certificate import ToleranceNotReachedError
from fedpriv.learning.erm.problem import ErmProblem
from fedpriv.learning.erm.solver import solve
from fedpriv.learning.losses import HuberHinge, HuberRegression, Logistic, Loss, Squared
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.ledger import Ledger
from fedpriv.privacy.planning.objective.objective import ObjectiveMechanism
from fedpriv.privacy.randomness import RandomStream
from tests.federation.worlds import build, linear_task, party_data, random_data, streams, train

if TYPE_CHECKING:
    from pathlib import Path

    from fedpriv.federation.strategy.base import SumStrategy

SIZES, WIDTH = (13, 40, 7), 4


def federation(loss: Loss | None = None) -> VectorizedFederation:
    data = random_data(SIZES, WIDTH)
    return VectorizedFederation(
        data, task=linear_task(SIZES, WIDTH, loss=loss), sampling=streams(0, "p")
    )


def pooled_minimiser(loss: Loss) -> np.ndarray:
    train_set = random_data(SIZES, WIDTH).dataset.train
    problem = ErmProblem(
        features=torch.tensor(train_set.X),
        labels=torch.tensor(train_set.y),
        offsets=torch.tensor([0, sum(SIZES)]),
        loss=loss,
        regulariser=0.01,
    )
    found: np.ndarray = solve(problem, tolerance=1e-12).theta[0].numpy()
    return found


@pytest.mark.parametrize(
    "loss",
    [
        Logistic(),
        HuberHinge(smoothing=0.5),
        HuberRegression(threshold=0.7),
        Squared(radius=20.0, label_bound=1.0),
    ],
    ids=lambda loss: type(loss).__name__,
)
def test_the_pooled_strategy_finds_the_minimiser_of_all_records(loss: Loss) -> None:
    strategy = build("pooled", linear_task(SIZES, WIDTH, loss=loss), tolerance=1e-9)
    train(strategy, federation(loss))
    # ‖θ - θ*‖ ≤ tolerance/λ for either.
    assert np.linalg.norm(strategy.theta - pooled_minimiser(loss)) <= 1.1e-9 / 0.01


def test_a_tolerance_below_what_float64_can_certify_is_refused() -> None:
    with pytest.raises(ValueError, match=r"tolerance must be at least .* got 1e-17: with less"):
        build("pooled", linear_task(SIZES, WIDTH), tolerance=1e-17)


def test_no_exact_sum_is_in_a_checkpoint_of_a_fit() -> None:
    strategy, world = build("pooled", linear_task(SIZES, WIDTH)), federation()
    for _ in range(3):
        query = strategy.ask()
        assert query is not None
        strategy.learn(world.sum(query))
    kept = strategy.checkpoint()
    assert set(kept) == {"round", "theta"}
    assert (kept["theta"] == 0).all()


@pytest.mark.parametrize("name", ["output-perturbation", "objective-perturbation", "pooled"])
def test_a_fit_taken_up_again_ends_where_it_would_have(name: str) -> None:
    options: dict[str, Any] = {"fit": "joint"} if name == "output-perturbation" else {}
    task, world = linear_task(SIZES, WIDTH), federation()
    whole = train(build(name, task, **options), world)
    broken = build(name, task, **options)
    for _ in range(2):
        query = broken.ask()
        assert query is not None
        broken.learn(world.sum(query))
    again = build(name, task, **options)
    again.restore(broken.checkpoint())
    assert (train(again, world).theta == whole.theta).all()


def test_a_party_that_drops_out_in_mid_fit_ends_it() -> None:
    strategy, world = build("pooled", linear_task(SIZES, WIDTH)), federation()
    query = strategy.ask()
    assert query is not None
    with pytest.raises(RuntimeError, match="all 3 parties"):
        strategy.learn(replace(world.sum(query), sizes=SIZES[:2]))


def test_a_fit_takes_few_exchanges_on_a_hard_problem() -> None:
    """Condition number 2500: plain descent would need thousands."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(400, 6)) * np.geomspace(1, 0.02, 6)
    X /= np.linalg.norm(X, axis=1).max() * (1 + 1e-6)
    y = np.where(X @ np.ones(6) + 0.1 * rng.normal(size=400) > 0, 1.0, -1.0)
    task = linear_task((100,) * 4, 6, regulariser=1e-4)
    world = VectorizedFederation(party_data(X, y, (100,) * 4), task=task, sampling=streams(0, "p"))
    strategy, exchanges = build("pooled", task), 0
    while (query := strategy.ask()) is not None:
        strategy.learn(world.sum(query))
        exchanges += 1
    assert exchanges < 60


def _long_b(_: ObjectiveMechanism, shape: tuple[int, ...], stream: RandomStream) -> np.ndarray:
    return np.full(shape, 1e12)


@pytest.mark.parametrize(
    ("where", "name", "value", "error"),
    [
        (joint, "_MAX_EXCHANGES", 3, ToleranceNotReachedError),
        (ObjectiveMechanism, "draw_linear", _long_b, ValueError),
    ],
    ids=["slow", "long"],
)
def test_a_fit_that_fails_spends_its_release_and_is_not_tried_again(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    where: object,
    name: str,
    value: object,
    error: type[Exception],
) -> None:
    """Else failures, which depend on b and on records, would choose among draws of one payment."""
    budget = Budget(epsilon=1.0, delta=1e-6)
    path = tmp_path / "own.ledger"
    with Ledger.create(
        path, data_name="d", budget=budget, adjacency="replace-one", composition="basic"
    ) as ledger:

        def begun() -> SumStrategy:
            return strategies.build(
                "objective-perturbation",
                task=linear_task(SIZES, WIDTH),
                budget=budget,
                adjacency="replace-one",
                options={},
                noise=lambda _round: RandomStream.from_os(),
                run="r",
                ledger=ledger,
            )

        monkeypatch.setattr(where, name, value)
        with pytest.raises(error):
            train(begun(), federation())
        monkeypatch.undo()
        with pytest.raises(RuntimeError, match="failed, and is not tried again"):
            train(begun(), federation())
        assert ledger.spent().guarantee.epsilon == pytest.approx(1.0)


def test_a_condition_number_at_which_records_decide_is_refused_from_public_facts() -> None:
    task = replace(linear_task(SIZES, WIDTH), regulariser=1e-8)
    with pytest.raises(ValueError, match=r"M/λ is 2\.5e\+07, and beyond 1e\+07"):
        build("objective-perturbation", task)
    build("pooled", task)  # it promises nothing


@pytest.mark.parametrize("wide", [4, 60])
def test_a_mean_gradient_is_as_exact_as_its_error_bound_says(wide: int) -> None:
    """At points as long as a minimiser may be, against sums in extended precision.

    Scores cancel there: x is nearly perpendicular to a long θ, so that what rounding leaves of a
    score is an error of the size that is bounded, and slopes are not saturated.
    """
    rng, sizes, strong = np.random.default_rng(3), (4000,), 1e-5
    task = linear_task(sizes, wide, regulariser=strong)
    theta = rng.normal(size=wide)
    theta *= 1 / (strong * np.linalg.norm(theta))  # G/λ
    X = rng.normal(size=(4000, wide))
    X -= np.outer(X @ theta, theta) / (theta @ theta)
    X = (X / np.linalg.norm(X, axis=1, keepdims=True) * 0.999).astype(np.float32)
    y = rng.choice([-1.0, 1.0], 4000)
    query = RiskGradientQuery(
        run="r",
        round=0,
        grid=finest_grid(bound=4000.0),
        event=None,
        theta=theta,
        exchange=0,
    )
    world = VectorizedFederation(party_data(X, y, sizes), task=task, sampling=streams(0, "p"))
    found = world.sum(query).value / 4000
    long = X.astype(np.longdouble)
    scores = (long * theta.astype(np.longdouble)).sum(axis=1)
    exact = -(y / (1 + np.exp(y * scores))) @ long / 4000
    error = float(np.linalg.norm((found - exact).astype(float)))
    bound = joint._oracle_error(
        task, headroom=1.0, strong_convexity=strong, pull=0.0, tolerance=0.0, step=query.grid.step
    )
    assert 0 < error <= bound
    assert bound < 1e-9 * (1 + wide)


@pytest.mark.parametrize("name", ["objective-perturbation", "inference"])
def test_the_points_of_a_fit_tell_a_party_what_the_sums_were(name: str) -> None:
    """Why the statement of a fit says that parties see its points, and must be trusted with them.

    Whoever knows all records but one takes b off the second point, once for each of two data sets,
    and predicts the third: one of the two is what was seen. The release itself tells nothing of it.
    """
    data, task = random_data(SIZES, WIDTH), linear_task(SIZES, WIDTH)
    X = data.dataset.train.X.copy()
    X[0] = np.roll(X[0], 1)
    others = replace(data.dataset.train, X=X)
    changed = replace(data, dataset=replace(data.dataset, train=others))
    strategy = build(name, task, epsilon=0.1)
    seen: list[RiskGradientQuery] = []
    truth, neighbour = (
        VectorizedFederation(each, task=strategy.task, sampling=streams(0, "p"))
        for each in (data, changed)
    )
    while len(seen) < 4 and isinstance(query := strategy.ask(), RiskGradientQuery):
        seen.append(query)
        strategy.learn(truth.sum(query))

    def missed(world: VectorizedFederation) -> float:
        """How far the points that follow, if these are the records, are from those seen."""
        assert isinstance(strategy, joint.JointStrategy)
        assert strategy._fit is not None
        strong = strategy._fit._strong_convexity
        steepest = task.curvature + strong
        linear = -steepest * seen[1].theta - world.sum(seen[0]).value / task.records
        fit = joint.Fit(
            task=strategy.task,
            linear=linear,
            strong_convexity=strong,
            tolerance=strategy._tolerance,
        )
        for query in seen[:3]:
            fit.tell(world.sum(query).value / task.records)
        return float(np.linalg.norm(fit.wanted - seen[3].theta) / np.linalg.norm(seen[3].theta))

    assert missed(truth) < 1e-9
    assert missed(neighbour) > 1e-5


def test_the_error_of_a_gradient_covers_the_grid_of_its_sum() -> None:
    """Every party's answer may be rounded by half a step in every coordinate, all one way."""
    task, step = linear_task(SIZES, WIDTH), 2.0**-3
    off = len(SIZES) * np.full(WIDTH, step / 2) / sum(SIZES)
    bound = joint._oracle_error(
        task, headroom=1.0, strong_convexity=1.0, pull=0.0, tolerance=0.0, step=step
    )
    assert np.linalg.norm(off) <= bound <= 1.001 * float(np.linalg.norm(off))
