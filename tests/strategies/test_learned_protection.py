"""Learned protection: whatever the networks say, every release is paid for and none is too much."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle, product
from math import inf, nan
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.learning.protector import (
    LEAST_NOISE,
    MOST_NOISE,
    Card,
    Horizon,
    Protector,
    to_bytes,
)
from fedpriv.privacy.accountants import account
from fedpriv.privacy.budget import Budget, BudgetExceeded
from fedpriv.privacy.ledger import Kind, Ledger
from fedpriv.privacy.mechanisms import GaussianMechanism
from fedpriv.privacy.statement import RunFacts, TrustModel, make_statement, to_text
from fedpriv.strategies.learned_protection import LearnedProtection
from tests.federation.worlds import build, linear_task, party_data, random_data, streams, train

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from fedpriv.federation.federation import Sum
    from fedpriv.learning.protector import State
    from fedpriv.strategies.common.learned_noise import Noises

SIZES, WIDTH = (30, 12, 45), 4
TASK = linear_task(SIZES, WIDTH, regulariser=0.05)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A protector that nobody trained: what it does is arbitrary, but not constant."""
    protector, generator = Protector(), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in protector.parameters():
            parameter.uniform_(-0.5, 0.5, generator=generator)
    card = Card(
        trained_on="nothing",
        version="0",
        clip_norm=0.5,
        norm_share=0.2,
        horizons=(Horizon(noise=0.1, rounds=6), Horizon(noise=1e-4, rounds=12)),
    )
    file = tmp_path_factory.mktemp("protector") / "untrained.json"
    file.write_bytes(to_bytes(protector, card))
    return str(file)


def learned(path: str, **options: Any) -> LearnedProtection:
    strategy = build("learned-protection", TASK, protector=path, **options)
    assert isinstance(strategy, LearnedProtection)
    return strategy


def federation(seed: int = 0) -> VectorizedFederation:
    return VectorizedFederation(
        random_data(SIZES, WIDTH, seed=seed), task=TASK, sampling=streams(0, "parties")
    )


class Says:
    """A chooser that answers what it is told to, whatever it sees."""

    def __init__(self, noises: Sequence[float], step: float = 0.1) -> None:
        self._noises, self._step = cycle(noises), step

    def start(self, dimension: int) -> State:
        return Protector().start(dimension)

    def schedule(self, norm: torch.Tensor, **others: Any) -> tuple[torch.Tensor, State]:
        return torch.tensor([next(self._noises)]), others["state"]

    def project(self, gradient: torch.Tensor, **others: Any) -> tuple[torch.Tensor, State]:
        return torch.full_like(gradient, self._step), others["state"]


def with_chooser(strategy: LearnedProtection, chooser: Says) -> LearnedProtection:
    strategy._protector = chooser
    return strategy


def mechanisms_of(strategy: LearnedProtection) -> Noises:
    assert strategy._noises is not None
    return strategy._noises


# The budget


NOISES = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True, width=32),
    st.sampled_from([nan, inf, -inf, 0.0, -1.0, 1e-30, 1e30, LEAST_NOISE, MOST_NOISE]),
)


@given(
    noises=st.lists(NOISES, min_size=1, max_size=8),
    epsilon=st.floats(0.05, 5),
    adjacency=st.sampled_from(["replace-one", "add-remove"]),
    horizon=st.integers(1, 15),
)
@settings(max_examples=25, deadline=None)
def test_no_scheduler_however_wild_exceeds_the_budget(
    path: str, noises: list[float], epsilon: float, adjacency: str, horizon: int
) -> None:
    strategy = with_chooser(
        learned(path, epsilon=epsilon, adjacency=adjacency, horizon=horizon), Says(noises)
    )
    reference = mechanisms_of(strategy).reference.stddev
    train(strategy, federation())
    plan = strategy.paid
    assert strategy.stopped.startswith("the budget is spent")
    report = account(plan.releases, delta=plan.budget.delta, accountant="gdp")
    assert report.epsilon is not None
    assert report.epsilon <= epsilon * (1 + 1e-9)
    chosen = [m.stddev / reference for m in plan.part() if isinstance(m, GaussianMechanism)]
    assert all(LEAST_NOISE * (1 - 1e-9) <= noise <= MOST_NOISE * (1 + 1e-9) for noise in chosen)
    assert len(plan.part("norm")) == len(plan.part()) == strategy.round


@pytest.mark.parametrize("horizon", [1, 3, 7, 10, 49])
def test_a_scheduler_that_keeps_to_the_reference_gets_exactly_its_horizon(
    path: str, horizon: int
) -> None:
    """T shares of 1/T: the last round is not lost to rounding, and there is no other."""
    strategy = with_chooser(learned(path, horizon=horizon), Says([1.0]))
    train(strategy, federation())
    assert strategy.round == horizon
    assert strategy.paid.filter.spent == pytest.approx(strategy.paid.filter.limit)


@pytest.mark.parametrize("noise", [LEAST_NOISE, 0.5, 0.9, 1.3, MOST_NOISE])
def test_a_run_leaves_less_than_its_cheapest_round(path: str, noise: float) -> None:
    strategy = with_chooser(learned(path, horizon=20), Says([noise]))
    train(strategy, federation())
    cheapest = strategy.paid.filter
    assert not strategy.paid.affords(
        mechanisms_of(strategy).norm, mechanisms_of(strategy).times(MOST_NOISE)
    )
    assert cheapest.left < 0.425 / 20 * cheapest.limit * 1.001  # 0.2 + 0.8/4 of a round, or less


def test_a_budget_of_less_than_a_round_is_spent_on_nothing_more(path: str) -> None:
    """A quiet first choice is answered with what the budget has, and ends the run."""
    strategy = with_chooser(learned(path, horizon=1), Says([LEAST_NOISE]))
    train(strategy, federation())
    assert strategy.round == 1
    assert strategy.paid.filter.spent == pytest.approx(strategy.paid.filter.limit)


# What the protector sees


def test_a_neighbour_with_the_same_noisy_views_gets_the_same_treatment(path: str) -> None:
    """Post-processing, by test: all that reaches a decision went through a release.

    The second run holds another data set, one record apart, and its own sums are computed; only
    what its releases return is that of the first run. Every query, noise and model is the same.
    """
    first = learned(path)
    releases: list[np.ndarray[Any, Any]] = []
    queries: list[np.ndarray[Any, Any]] = []
    real = {name: getattr(first, name) for name in ("_draw_norm", "_draw_mean")}

    def note(draw: str, *arguments: Any) -> Any:
        releases.append(real[draw](*arguments))
        return releases[-1]

    first._draw_norm = lambda *a: note("_draw_norm", *a)  # type: ignore[method-assign]
    first._draw_mean = lambda *a: note("_draw_mean", *a)  # type: ignore[method-assign]
    world = federation()
    while (query := first.ask()) is not None:
        queries.append(query.theta)  # type: ignore[attr-defined]
        first.learn(world.sum(query))

    data = random_data(SIZES, WIDTH)
    X, y = data.dataset.train.X.copy(), data.dataset.train.y.astype(np.float64)
    X[5], y[5] = UNIT, -y[5]
    neighbour = VectorizedFederation(
        party_data(X, y, SIZES), task=TASK, sampling=streams(0, "parties")
    )
    second = learned(path, seed=99)  # other noise, too: it must not matter
    told, sums = iter(releases), 0

    def tell(*_: Any) -> Any:
        return next(told)

    second._draw_norm = tell  # type: ignore[method-assign, assignment]
    second._draw_mean = tell  # type: ignore[method-assign, assignment]
    for theta in queries:
        query = second.ask()
        assert query is not None
        assert (query.theta == theta).all()  # type: ignore[attr-defined]
        answer = neighbour.sum(query)
        sums += (answer.total != world.sum(query).total).any()
        second.learn(answer)
    assert second.ask() is None
    assert second.plan == first.plan
    assert second.stopped == first.stopped
    assert (second.theta == first.theta).all()
    assert sums == len(queries)  # the exact sums did differ, every time


def test_other_noisy_views_get_another_treatment(path: str) -> None:
    """The twin of the test above: decisions do depend on the releases."""
    one, two = learned(path), learned(path, seed=99)
    train(one, federation())
    train(two, federation())
    assert one.paid.mechanisms != two.paid.mechanisms
    assert (one.theta != two.theta).any()


def test_a_step_that_is_no_number_is_not_taken_and_ends_the_run(path: str) -> None:
    strategy = with_chooser(learned(path), Says([1.0], step=nan))
    train(strategy, federation())
    assert "not finite" in strategy.stopped
    assert strategy.round == 1
    assert (strategy.theta == 0).all()


# The norm


def exact_norm(strategy: LearnedProtection, answer: Sum) -> float:
    """The norm as `_draw_norm` computes it: with noise that rounds to zero."""
    norm = replace(mechanisms_of(strategy).norm, stddev=1e-6 * answer.step)
    release = strategy._draw_norm(norm, answer, streams(0, "n")(0))
    return float(release[0]) * strategy._clip * sum(answer.sizes)


def rows(*vectors: Sequence[float]) -> np.ndarray[Any, Any]:
    return np.array(vectors, dtype=np.float32)


UNIT = rows([0.999, 0, 0, 0])[0]


def first_norm(
    path: str, X: np.ndarray[Any, Any], y: np.ndarray[Any, Any], sizes: Any, adjacency: str
) -> tuple[float, float]:
    """The exact norm of the first sum, and how far one record may move it."""
    task = linear_task(sizes, WIDTH)
    strategy = build("learned-protection", task, protector=path, adjacency=adjacency, clip=0.3)
    assert isinstance(strategy, LearnedProtection)
    allowed = mechanisms_of(strategy).norm.sensitivity
    world = VectorizedFederation(party_data(X, y, sizes), task=task, sampling=streams(0, "p"))
    query = strategy.ask()
    assert query is not None
    return exact_norm(strategy, world.sum(query)), allowed


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("sizes", [(1, 2), (3, 2), (4, 3)])
def test_replacing_one_record_moves_the_norm_by_no_more_than_its_sensitivity(
    path: str, sizes: tuple[int, int], aligned: bool
) -> None:
    """By brute force over places, signs and directions; and the bound is not loose."""
    n = sum(sizes)
    spread = random_data(sizes, WIDTH, seed=n).dataset.train.X
    X, y = np.tile(UNIT, (n, 1)) if aligned else spread, np.ones(n)
    norm, allowed = first_norm(path, X, y, sizes, "replace-one")
    farthest = 0.0
    for index, sign, row in product(range(n), (1.0, -1.0), (UNIT, UNIT[::-1])):
        other_X, other_y = X.copy(), y.copy()
        other_X[index], other_y[index] = row, sign
        other, _ = first_norm(path, other_X, other_y, sizes, "replace-one")
        farthest = max(farthest, abs(norm - other) / allowed)
    assert farthest <= 1
    assert not aligned or farthest > 0.98


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("sizes", [(2, 2), (4, 3)])
def test_removing_one_record_moves_the_norm_by_no_more_than_its_sensitivity(
    path: str, sizes: tuple[int, int], aligned: bool
) -> None:
    n = sum(sizes)
    spread = random_data(sizes, WIDTH, seed=n).dataset.train.X
    X, y = np.tile(UNIT, (n, 1)) if aligned else spread, np.ones(n)
    norm, allowed = first_norm(path, X, y, sizes, "add-remove")
    farthest = 0.0
    for index in range(n):
        home = index < sizes[0]
        left = (sizes[0] - home, sizes[1] - (not home))
        other, least = first_norm(
            path, np.delete(X, index, 0), np.delete(y, index), left, "add-remove"
        )
        farthest = max(farthest, abs(norm - other) / min(allowed, least))
    assert farthest <= 1
    assert not aligned or farthest > 0.98


# Ledgers, checkpoints, statements


def ledger_at(folder: Path, *, epsilon: float = 1.0) -> Ledger:
    return Ledger.create(
        folder / "ledger.db",
        data_name="data",
        budget=Budget(epsilon=epsilon, delta=1e-6),
        adjacency="replace-one",
    )


def test_both_releases_of_a_round_are_reserved_under_names_of_their_own(
    path: str, tmp_path: Path
) -> None:
    ledger = ledger_at(tmp_path)
    strategy = learned(path, ledger=ledger)
    train(strategy, federation())
    rows = [(row.kind, row.run) for row in ledger.rows() if row.round >= 0]
    assert rows[:4] == [
        (Kind.RESERVED, "run/norm"),
        (Kind.COMMITTED, "run/norm"),
        (Kind.RESERVED, "run"),
        (Kind.COMMITTED, "run"),
    ]
    assert len(rows) == 4 * strategy.round
    assert ledger.spent().guarantee.epsilon <= 1 + 1e-9
    assert ledger.spent().guarantee.epsilon == pytest.approx(strategy.paid.filter.epsilon)
    ledger.verify()


@pytest.mark.parametrize("finished", [0, 1, 4])
def test_a_run_taken_up_from_its_ledger_replays_its_releases(
    path: str, tmp_path: Path, finished: int
) -> None:
    ledger, world = ledger_at(tmp_path), federation()
    first = learned(path, ledger=ledger)
    for _ in range(finished):
        query = first.ask()
        assert query is not None
        first.learn(world.sum(query))
    first.ask()  # reserved, and then the process dies
    second = learned(path, ledger=ledger)
    query = second.ask()
    assert query is not None
    assert query.round == finished
    assert second.plan == first.plan
    assert (second.theta == first.theta).all()


def test_a_ledger_without_budget_refuses_the_first_norm(path: str, tmp_path: Path) -> None:
    ledger = ledger_at(tmp_path, epsilon=1e-5)
    with pytest.raises(BudgetExceeded):
        learned(path, ledger=ledger).ask()


def test_a_restored_run_ends_as_if_uninterrupted(path: str) -> None:
    world = federation()
    whole, broken, again = learned(path), learned(path), learned(path)
    train(whole, world)
    for _ in range(3):
        query = broken.ask()
        assert query is not None
        broken.learn(world.sum(query))
    again.restore(broken.checkpoint())
    train(again, world)
    assert again.plan == whole.plan
    assert (again.theta == whole.theta).all()


def test_the_statement_names_the_protector_its_filter_and_both_releases(path: str) -> None:
    strategy = learned(path)
    train(strategy, federation())
    statement = make_statement(
        strategy.paid,
        facts=RunFacts(
            run="r", data="made", simulated=True, randomness="seeded", sampler="full batch"
        ),
        trust=TrustModel(secure_aggregation="ideal"),
    )
    text = " ".join(to_text(statement).split())
    assert "untrained.json" in text
    assert "trained on nothing" in text
    assert "gdp-filter" in text
    assert "norm" in text
    assert "(epsilon, delta) = (1, 1e-06)" in text


def test_the_horizon_follows_from_the_budget_by_the_card(path: str) -> None:
    assert learned(path, epsilon=0.5)._around.horizon == 6
    assert learned(path, epsilon=1e3)._around.horizon == 12
    assert learned(path, horizon=9)._around.horizon == 9


@pytest.mark.parametrize("factor", [1.0, 4.0])
def test_a_protector_serves_features_of_any_bound(path: str, factor: float) -> None:
    """Features B times as long, clip B times: the same decisions, and scores alike."""
    data = random_data(SIZES, WIDTH)
    task = replace(TASK, feature_bound=factor, regulariser=0.0)
    X = data.dataset.train.X * np.float32(factor)
    world = VectorizedFederation(
        party_data(X, data.dataset.train.y.astype(np.float64), SIZES),
        task=task,
        sampling=streams(0, "parties"),
    )
    strategy = build("learned-protection", task, protector=path)
    train(strategy, world)
    plain = build("learned-protection", replace(TASK, regulariser=0.0), protector=path)
    train(plain, federation())
    np.testing.assert_allclose(strategy.theta * factor, plain.theta, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"protector": "mnist-4v7"}, "Did you mean 'mnist-4v6'"),
        ({"protector": "/nowhere/x.json"}, "cannot be read"),
        ({"delta": 0.0}, "delta"),
    ],
)
def test_what_cannot_be_is_refused_by_name(path: str, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        build("learned-protection", TASK, **{"protector": path, **options})
