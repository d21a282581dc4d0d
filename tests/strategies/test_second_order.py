"""Second-order steps: against plain numpy, with the noise of the plan, on all kinds of parties."""

from __future__ import annotations

import warnings
from dataclasses import replace
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.federation.federation import Sum
from fedpriv.federation.party.party import Party
from fedpriv.federation.queries.kinds import GradientQuery, MomentsQuery
from fedpriv.federation.task import PersonBounds, Task
from fedpriv.learning.losses import HuberHinge, HuberRegression, Logistic, Softmax, Squared
from fedpriv.learning.models import LinearModel, MlpModel
from fedpriv.learning.moments import symmetric
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.ledger import Ledger
from fedpriv.privacy.mechanisms.shares import SharedNoise
from tests.federation.queries import person_scenes
from tests.federation.worlds import (
    SilentFederation,
    build,
    linear_task,
    party_data,
    random_data,
    streams,
    train,
)
from tests.statistical import assert_gaussian_scale
from tests.strategies.second_order_by_hand import by_hand

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from fedpriv.federation.queries.kinds import Query
    from fedpriv.learning.losses import Loss

SIZES, WIDTH = (300, 120, 450), 4
N = sum(SIZES)
TASK = linear_task(SIZES, WIDTH, regulariser=0.01)
DATA = random_data(SIZES, WIDTH)


def federation(task: Task = TASK, data: Any = DATA) -> VectorizedFederation:
    return VectorizedFederation(data, task=task, sampling=streams(0, "parties"))


# Without noise: the algorithm itself.


@pytest.mark.parametrize(
    ("loss", "beta"),
    [
        (Logistic(), 0.25),
        (HuberHinge(smoothing=0.5), 1.0),
        (HuberRegression(threshold=0.7), 1.0),
        (Squared(label_bound=1.0, radius=20.0), 1.0),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("rounds", [1, 12, 13])
def test_without_noise_it_is_the_algorithm_of_plain_numpy(
    loss: Loss, beta: float, rounds: int
) -> None:
    task = linear_task(SIZES, WIDTH, loss=loss, regulariser=0.01)
    strategy = train(build("second-order", task, noise_free=True, rounds=rounds), federation(task))
    X, y = DATA.dataset.train.X, DATA.dataset.train.y.astype(float)
    expected = by_hand(loss, beta, X, y, 0.01, rounds)
    # Gradients at the bound are clipped to 1 - 2⁻¹³ of it, of records and slopes in float32.
    assert strategy.theta == pytest.approx(expected, abs=2e-3 * np.abs(expected).max())


def test_every_class_steps_by_the_same_matrix_and_the_bound_on_the_hessian_holds() -> None:
    rng = np.random.default_rng(0)
    X = DATA.dataset.train.X
    y = (X @ rng.normal(size=(WIDTH, 3)) * 4).argmax(1)
    task = Task(
        model=LinearModel(width=WIDTH, classes=3),
        loss=Softmax(classes=3),
        regulariser=0.001,
        feature_bound=1.0,
        sizes=SIZES,
    )
    data = party_data(X, y.astype(float), SIZES)
    labelled = replace(data.dataset.train, y=y.astype(np.int64))
    dataset = replace(
        data.dataset,
        train=labelled,
        test=labelled.take(slice(0, 0)),
        task="multiclass",
        classes=("a", "b", "c"),
    )
    made = federation(task, replace(data, dataset=dataset))
    strategy = train(build("second-order", task, noise_free=True, rounds=300), made)
    theta = strategy.theta.reshape(3, WIDTH)
    wide = X.astype(np.float64)
    p = np.exp(wide @ theta.T)
    p /= p.sum(1, keepdims=True)
    gradient = (p - np.eye(3)[y]).T @ wide / N + 0.001 * theta
    assert np.abs(gradient).max() < 2e-4
    hessian = np.zeros((3 * WIDTH, 3 * WIDTH))
    for row, x in zip(p, wide, strict=True):
        hessian += np.kron(np.diag(row) - np.outer(row, row), np.outer(x, x))
    bound = np.kron(np.eye(3), 0.5 * wide.T @ wide)
    assert np.linalg.eigvalsh(bound - hessian).min() > 0


def test_a_problem_that_descent_finds_hard_takes_a_dozen_rounds() -> None:
    """Features of very different spread: what one step size cannot follow, the matrix can."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(N, WIDTH)) * [1.0, 0.1, 0.03, 0.3] / 5
    X /= np.maximum(1, np.linalg.norm(X, axis=1, keepdims=True) * 1.000001)
    y = np.where(X @ [1.0, 20.0, -60.0, 5.0] + rng.normal(size=N) * 0.5 > 0, 1.0, -1.0)
    task, data = linear_task(SIZES, WIDTH, regulariser=1e-5), party_data(X, y, SIZES)

    def risk(theta: NDArray[np.float64]) -> float:
        return float(np.logaddexp(0, -y * (X @ theta)).mean() + 0.5e-5 * theta @ theta)

    ours = train(build("second-order", task, noise_free=True, rounds=12), federation(task, data))
    plain = train(
        build("gradient-perturbation", task, noise_free=True, rounds=100), federation(task, data)
    )
    exact = train(build("pooled", task), federation(task, data))
    assert risk(exact.theta) < risk(ours.theta) < risk(plain.theta)
    assert risk(ours.theta) - risk(exact.theta) < 0.5 * (risk(plain.theta) - risk(exact.theta))


# With noise: how much, and what becomes of it.

LARGE = linear_task((4000, 3000), 60, regulariser=0.01)


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_the_matrix_has_goe_noise_of_the_reference_and_half_of_it_is_caught(adjacency: str) -> None:
    """σ_M on the diagonal, σ_M/√2 beside it. ε = 1, δ = 1e-6: 15.426 or 15.426/√2."""
    found: list[NDArray[np.float64]] = []
    for seed in range(8):
        strategy = build("second-order", LARGE, seed=seed, adjacency=adjacency)
        query = strategy.ask()
        assert isinstance(query, MomentsQuery)
        silent = SilentFederation(LARGE, sampling=streams(0, "p")).sum(query)
        release = strategy._release(silent)
        assert release is not None
        found.append(symmetric(release * LARGE.records))
    diagonal = np.concatenate([np.diag(each) for each in found])
    beside = np.concatenate([each[np.triu_indices(60, 1)] for each in found])
    stddev = 15.426346 / (1 if adjacency == "replace-one" else sqrt(2))
    stddev *= 1.0002  # of the grid, which adds up to 2⁻¹⁰ of 1 %
    for noise, expected in ((diagonal, stddev), (beside, stddev / sqrt(2))):
        assert_gaussian_scale(noise, expected)
        with pytest.raises(AssertionError, match="outside"):
            assert_gaussian_scale(noise / 2, expected)
    norm = np.linalg.norm(found[0], 2)
    assert norm == pytest.approx(stddev * sqrt(2 * 60), rel=0.2)  # what the floor counts on


def test_gradients_have_the_noise_of_the_reference_and_half_of_it_is_caught() -> None:
    task = linear_task((4000, 3000), 400)
    strategy, silent = build("second-order", task), SilentFederation(task, sampling=streams(0, "p"))
    drawn = []
    while (query := strategy.ask()) is not None:
        answer = silent.sum(query)
        if isinstance(query, GradientQuery):
            drawn.append(strategy._release(answer))
        strategy.learn(answer)
    noise = np.concatenate([each for each in drawn if each is not None]) * task.records
    stddev = 31.747159 * 1.001  # rounding of float32 blocks adds 10⁻³ of a sensitivity
    assert len(drawn) == 12
    assert_gaussian_scale(noise, stddev)
    with pytest.raises(AssertionError, match="outside"):
        assert_gaussian_scale(noise / 2, stddev)


def test_a_matrix_that_noise_made_indefinite_still_gives_short_steps_down() -> None:
    strategy: Any = build("second-order", LARGE, epsilon=0.05)
    query = strategy.ask()
    strategy.learn(SilentFederation(LARGE, sampling=streams(0, "p")).sum(query))
    inverse, floor = strategy._inverse, strategy._floor
    values = np.linalg.eigvalsh(inverse)
    assert values.min() > 0
    assert values.max() <= 1 / (0.25 * floor + LARGE.regulariser) * (1 + 1e-9)
    stddev = strategy.plan.mechanisms[0].noise_stddev
    assert floor == pytest.approx(stddev * sqrt(120) / 7000)
    doubled: Any = build("second-order", LARGE, epsilon=0.05, floor=2.0)
    assert doubled._floor == 2 * floor


def test_what_follows_the_matrix_follows_from_the_release_alone() -> None:
    """Two federations with other records and the same releases end in the same model."""
    strategy: Any = build("second-order", TASK, rounds=3)
    other: Any = build("second-order", TASK, rounds=3)
    for _ in range(4):
        query = strategy.ask()
        release = strategy._release(federation().sum(query))
        other.ask()
        strategy._advance(release)
        other._advance(release)
        other._asked = strategy._asked = None
    assert (other.theta == strategy.theta).all()


# Shares, persons, engines, ledgers.


@pytest.mark.parametrize("law", ["skellam", "discrete-gaussian"])
def test_parties_bring_the_noise_of_both_in_shares(law: str) -> None:
    """Seven of ten parties carry what is accounted for; all ten have more. Half is caught."""
    task = linear_task((1000,) * 10, 40)
    sharing = {"dropout": 0.2, "colluding": 0.1, "share_law": law}
    strategy = build("second-order", task, sharing=sharing, rounds=2)
    plan: Any = strategy.plan
    assert plan.epsilon <= 1.0
    assert "share of the noise" in plan.query
    silent = SilentFederation(task, sampling=streams(1, "p"))
    while (query := strategy.ask()) is not None:
        mechanism = plan.mechanisms[query.round]
        assert isinstance(mechanism, SharedNoise)
        assert query.share == mechanism.share
        assert query.event == mechanism.event()
        answer = silent.sum(query)
        stddev = mechanism.stddev_of(10)
        assert stddev == pytest.approx(sqrt(10 / 7) * mechanism.noise_stddev)
        assert_gaussian_scale(answer.value, stddev)
        if query.round == 0:
            with pytest.raises(AssertionError, match="outside"):
                assert_gaussian_scale(answer.value / 2, stddev)
        strategy.learn(answer)
    assert np.isfinite(strategy.theta).all()
    relative = [m.noise_stddev / (m.l2_sensitivity * m.step) for m in plan.mechanisms]
    assert relative[1] / relative[0] == pytest.approx(sqrt(2 / 0.85 * 0.15), rel=1e-6)


def test_parties_alone_and_all_in_one_process_agree() -> None:
    parties = [
        Party(DATA.party(j), task=TASK, sampling=streams(0, f"{j}"), size=SIZES[j])
        for j in range(len(SIZES))
    ]

    class OneByOne:
        def sum(self, query: Query) -> Sum:
            total = np.zeros(query.answer_width(TASK), query.grid.dtype)
            for party in parties:
                total += party.answer(query)
            return Sum(total=query.grid.decode(total), step=query.grid.step, sizes=SIZES)

    alone = train(build("second-order", TASK), OneByOne())  # type: ignore[arg-type]
    together = train(build("second-order", TASK), federation())
    # Float32 sums of gradients may differ by a step of the grid; the noise is the same.
    assert alone.theta == pytest.approx(together.theta, abs=1e-6)


def test_persons_are_bounded_by_k_times_the_curvature() -> None:
    task = replace(
        person_scenes.linear_task(2, size=900), persons=PersonBounds(records=6, parties=2)
    )
    world = federation(task, person_scenes.data(person_scenes.visits()))
    strategy: Any = build("second-order", task, unit="person", epsilon=4.0)
    assert strategy._smoothness == 6 * 0.25
    assert "persons' mean second moments" in strategy.plan.query
    # √2·p·B² and 2p·C, plus rounding and the grids of four answers.
    assert strategy.plan.mechanisms[0].sensitivity == pytest.approx(2 * sqrt(2), rel=1e-3)
    assert strategy.plan.mechanisms[1].sensitivity == pytest.approx(4.0, rel=1e-2)
    assert np.isfinite(train(strategy, world).theta).all()
    unbounded = replace(task, persons=PersonBounds(parties=2))
    with pytest.raises(ValueError, match=r"persons\.records must be given for second-order"):
        build("second-order", unbounded, unit="person")


def test_a_crash_between_matrix_and_gradients_is_taken_up_from_the_ledger(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    Ledger.create(path, data_name="d", budget=Budget(epsilon=2.0, delta=1e-6),
                  adjacency="replace-one")  # fmt: skip
    options: dict[str, Any] = {"rounds": 3, "run": "one"}
    with Ledger.open(path) as ledger:
        strategy = build("second-order", TASK, ledger=ledger, **options)
        for _ in range(2):
            query = strategy.ask()
            assert query is not None
            strategy.learn(federation().sum(query))
        half, inverse = strategy.theta.copy(), strategy._inverse  # type: ignore[attr-defined]
    with Ledger.open(path) as ledger:
        again = build("second-order", TASK, ledger=ledger, **options)
        query = again.ask()  # replays both releases
        assert query is not None
        assert query.round == 2
        assert (again.theta == half).all()
        assert (again._inverse == inverse).all()  # type: ignore[attr-defined]
        again.learn(federation().sum(query))
        assert train(again, federation()).round == 4


# Refusals and warnings.


def test_too_few_records_for_the_matrix_are_warned_of_with_numbers() -> None:
    few = linear_task((100, 200), 40)
    with pytest.warns(UserWarning, match=r"second-order: noise hides .* 300 records in 40 coord"):
        build("second-order", few)
    many = linear_task((100_000, 200_000), 40)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        build("second-order", many)
        build("second-order", few, noise_free=True)


def test_what_cannot_be_asked_is_refused_before_the_matrix_is_paid() -> None:
    with pytest.raises(ValueError, match="clip_norm must lie in"):
        build("second-order", TASK, clip=2.0**-30)
    with pytest.raises(ValueError, match="needs a convex problem"):
        build("second-order", replace(TASK, model=MlpModel(widths=(WIDTH, 3, 1))))
    with pytest.raises(ValueError, match="delta"):
        build("second-order", TASK, delta=0.0)
    with pytest.raises(ValueError, match="pure shares are for a single release"):
        build("second-order", TASK, sharing={"share_law": "polya"})


def test_the_clip_is_the_bound_of_the_loss_unless_it_is_given() -> None:
    assert build("second-order", TASK).plan.clip_norm == 1.0  # type: ignore[union-attr]
    huber = replace(TASK, loss=HuberRegression(threshold=0.3))
    assert build("second-order", huber).plan.clip_norm == 0.3  # type: ignore[union-attr]
    assert build("second-order", huber, clip=0.1).plan.clip_norm == 0.1  # type: ignore[union-attr]
