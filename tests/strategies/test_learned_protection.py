"""Learned protection: what it sees and releases, and what a ledger and a statement say of it."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.privacy.budget import BudgetExceeded
from fedpriv.privacy.ledger import Kind
from fedpriv.privacy.statement import RunFacts, TrustModel, make_statement, to_text
from fedpriv.strategies.learned_protection import LearnedProtection
from tests.federation.worlds import (
    build,
    ledger_at,
    linear_task,
    party_data,
    random_data,
    streams,
    train,
)
from tests.strategies.learned import SIZES, TASK, WIDTH, federation, learned, mechanisms_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from fedpriv.federation.federation import Sum


# What the protector sees


def test_a_neighbour_with_the_same_noisy_views_gets_the_same_treatment(untrained: str) -> None:
    """Post-processing, by test: all that reaches a decision went through a release.

    The second run holds another data set, one record apart, and its own sums are computed; only
    what its releases return is that of the first run. Every query, noise and model is the same.
    """
    first = learned(untrained)
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
    second = learned(untrained, seed=99)  # other noise, too: it must not matter
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


def test_other_noisy_views_get_another_treatment(untrained: str) -> None:
    """The twin of the test above: decisions do depend on the releases."""
    one, two = learned(untrained), learned(untrained, seed=99)
    train(one, federation())
    train(two, federation())
    assert one.paid.mechanisms != two.paid.mechanisms
    assert (one.theta != two.theta).any()


def exact_norm(strategy: LearnedProtection, answer: Sum) -> float:
    """The norm as `_draw_norm` computes it: with noise that rounds to zero."""
    norm = replace(mechanisms_of(strategy).norm, stddev=1e-6 * answer.step)
    release = strategy._draw_norm(norm, answer, streams(0, "n")(0))
    return float(release[0]) * strategy._clip * sum(answer.sizes)


def rows(*vectors: Sequence[float]) -> np.ndarray[Any, Any]:
    return np.array(vectors, dtype=np.float32)


UNIT = rows([0.999, 0, 0, 0])[0]


def first_norm(
    untrained: str, X: np.ndarray[Any, Any], y: np.ndarray[Any, Any], sizes: Any, adjacency: str
) -> tuple[float, float]:
    """The exact norm of the first sum, and how far one record may move it."""
    task = linear_task(sizes, WIDTH)
    strategy = build("learned-protection", task, protector=untrained, adjacency=adjacency, clip=0.3)
    assert isinstance(strategy, LearnedProtection)
    allowed = mechanisms_of(strategy).norm.sensitivity
    world = VectorizedFederation(party_data(X, y, sizes), task=task, sampling=streams(0, "p"))
    query = strategy.ask()
    assert query is not None
    return exact_norm(strategy, world.sum(query)), allowed


# The norm


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("sizes", [(1, 2), (3, 2), (4, 3)])
def test_replacing_one_record_moves_the_norm_by_no_more_than_its_sensitivity(
    untrained: str, sizes: tuple[int, int], aligned: bool
) -> None:
    """By brute force over places, signs and directions; and the bound is not loose."""
    n = sum(sizes)
    spread = random_data(sizes, WIDTH, seed=n).dataset.train.X
    X, y = np.tile(UNIT, (n, 1)) if aligned else spread, np.ones(n)
    norm, allowed = first_norm(untrained, X, y, sizes, "replace-one")
    farthest = 0.0
    for index, sign, row in product(range(n), (1.0, -1.0), (UNIT, UNIT[::-1])):
        other_X, other_y = X.copy(), y.copy()
        other_X[index], other_y[index] = row, sign
        other, _ = first_norm(untrained, other_X, other_y, sizes, "replace-one")
        farthest = max(farthest, abs(norm - other) / allowed)
    assert farthest <= 1
    assert not aligned or farthest > 0.98


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("sizes", [(2, 2), (4, 3)])
def test_removing_one_record_moves_the_norm_by_no_more_than_its_sensitivity(
    untrained: str, sizes: tuple[int, int], aligned: bool
) -> None:
    n = sum(sizes)
    spread = random_data(sizes, WIDTH, seed=n).dataset.train.X
    X, y = np.tile(UNIT, (n, 1)) if aligned else spread, np.ones(n)
    norm, allowed = first_norm(untrained, X, y, sizes, "add-remove")
    farthest = 0.0
    for index in range(n):
        home = index < sizes[0]
        left = (sizes[0] - home, sizes[1] - (not home))
        other, least = first_norm(
            untrained, np.delete(X, index, 0), np.delete(y, index), left, "add-remove"
        )
        farthest = max(farthest, abs(norm - other) / min(allowed, least))
    assert farthest <= 1
    assert not aligned or farthest > 0.98


# Ledgers, checkpoints, statements


def test_both_releases_of_a_round_are_reserved_under_names_of_their_own(
    untrained: str, tmp_path: Path
) -> None:
    ledger = ledger_at(tmp_path)
    strategy = learned(untrained, ledger=ledger)
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
    untrained: str, tmp_path: Path, finished: int
) -> None:
    ledger, world = ledger_at(tmp_path), federation()
    first = learned(untrained, ledger=ledger)
    for _ in range(finished):
        query = first.ask()
        assert query is not None
        first.learn(world.sum(query))
    first.ask()  # reserved, and then the process dies
    second = learned(untrained, ledger=ledger)
    query = second.ask()
    assert query is not None
    assert query.round == finished
    assert second.plan == first.plan
    assert (second.theta == first.theta).all()


def test_a_ledger_without_budget_refuses_the_first_norm(untrained: str, tmp_path: Path) -> None:
    ledger = ledger_at(tmp_path, epsilon=1e-5)
    with pytest.raises(BudgetExceeded):
        learned(untrained, ledger=ledger).ask()


def test_a_restored_run_ends_as_if_uninterrupted(untrained: str) -> None:
    world = federation()
    whole, broken, again = learned(untrained), learned(untrained), learned(untrained)
    train(whole, world)
    for _ in range(3):
        query = broken.ask()
        assert query is not None
        broken.learn(world.sum(query))
    again.restore(broken.checkpoint())
    train(again, world)
    assert again.plan == whole.plan
    assert (again.theta == whole.theta).all()


def test_the_statement_names_the_protector_its_filter_and_both_releases(untrained: str) -> None:
    strategy = learned(untrained)
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


def test_the_horizon_follows_from_the_budget_by_the_card(untrained: str) -> None:
    assert learned(untrained, epsilon=0.5)._around.horizon == 6
    assert learned(untrained, epsilon=1e3)._around.horizon == 12
    assert learned(untrained, horizon=9)._around.horizon == 9


@pytest.mark.parametrize("factor", [1.0, 4.0])
def test_a_protector_serves_features_of_any_bound(untrained: str, factor: float) -> None:
    """Features B times as long, clip B times: the same decisions, and scores alike."""
    data = random_data(SIZES, WIDTH)
    task = replace(TASK, feature_bound=factor, regulariser=0.0)
    X = data.dataset.train.X * np.float32(factor)
    world = VectorizedFederation(
        party_data(X, data.dataset.train.y.astype(np.float64), SIZES),
        task=task,
        sampling=streams(0, "parties"),
    )
    strategy = build("learned-protection", task, protector=untrained)
    train(strategy, world)
    plain = build("learned-protection", replace(TASK, regulariser=0.0), protector=untrained)
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
def test_what_cannot_be_is_refused_by_name(
    untrained: str, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        build("learned-protection", TASK, **{"protector": untrained, **options})
