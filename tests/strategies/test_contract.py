"""What every strategy promises, whichever it is."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv.federation.deployed.statements.stated_words import require_known_words
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.events import GaussianEvent
from fedpriv.privacy.ledger import Ledger
from fedpriv.privacy.mechanisms import GaussianMechanism
from fedpriv.privacy.planning.adaptive_plan import AdaptivePlan
from fedpriv.privacy.planning.written_plan import require_written
from fedpriv.privacy.statement import RunFacts, TrustModel, make_statement, to_text
from tests.federation.worlds import PRIVATE, SilentFederation, build, streams, train
from tests.strategies.every_strategy import ALL, NETWORK, ROUNDS, SIZES, TASK, WIDTH, federation

if TYPE_CHECKING:
    from pathlib import Path


def test_the_strategies_are_these() -> None:
    assert set(ALL) == {
        "output-perturbation",
        "gradient-perturbation",
        "objective-perturbation",
        "inference",
        "second-order",
        "adaptive-clipping",
        "agd",
        "learned-protection",
        "federated-averaging",
        "scaffold",
        "local-output-perturbation",
        "local-gradient-perturbation",
        "local-objective-perturbation",
        "pathak",
        "non-private",
        "pooled",
    }
    assert set(ALL) - set(PRIVATE) == {"non-private", "pooled"}


@pytest.mark.parametrize("name", PRIVATE)
@pytest.mark.parametrize("epsilon", [0.1, 3.0])
def test_the_plan_of_a_strategy_fits_its_budget(name: str, epsilon: float) -> None:
    plan = build(name, TASK, epsilon=epsilon, **ROUNDS.get(name, {})).plan
    assert plan is not None
    assert plan.epsilon <= epsilon * (1 + 1e-10)
    assert plan.budget == Budget(epsilon=epsilon, delta=1e-6)
    assert plan.strategy == name
    assert plan.records == sum(SIZES)
    assert plan.parties == len(SIZES)


ADAPTIVE = [
    name
    for name in PRIVATE
    if isinstance(build(name, TASK, **ROUNDS.get(name, {})).plan, AdaptivePlan)
]


@pytest.mark.parametrize("name", sorted(set(PRIVATE) - set(ADAPTIVE)))
def test_every_query_states_the_event_of_its_release(name: str) -> None:
    strategy, world = build(name, TASK, **ROUNDS.get(name, {})), federation()
    assert strategy.plan is not None
    while (query := strategy.ask()) is not None:
        assert query.event == strategy.plan.event(query.round)
        assert query.round == strategy.round
        strategy.learn(world.sum(query))
    assert strategy.round == strategy.plan.rounds


@pytest.mark.parametrize("name", ALL)
def test_the_same_streams_give_the_same_model_and_others_another(name: str) -> None:
    one, two, other = (
        train(build(name, TASK, seed=seed, **ROUNDS.get(name, {})), federation()).theta
        for seed in (0, 0, 1)
    )
    assert (one == two).all()
    server_noise = name in PRIVATE and not name.startswith("local-")
    assert (one != other).all() == server_noise


@pytest.mark.parametrize("name", ADAPTIVE)
def test_in_a_release_every_query_states_number_and_event_of_the_one_release_that_it_serves(
    name: str, tmp_path: Path
) -> None:
    """Over the whole run: parties answer each number once, and pay for it by itself."""
    whole = Budget(epsilon=50.0, delta=1e-6)
    with Ledger.create(
        tmp_path / "l.db", data_name="d", budget=whole, adjacency="replace-one", composition="rdp"
    ) as ledger:
        strategy = build(name, TASK, ledger=ledger, **ROUNDS.get(name, {}))
        world, asked = federation(), 0
        while (query := strategy.ask()) is not None:
            assert isinstance(strategy.plan, AdaptivePlan)
            assert query.round == asked == strategy.plan.rounds - 1
            assert query.event == strategy.plan.event(asked)
            strategy.learn(world.sum(query))
            asked += 1
    assert strategy.plan is not None
    assert asked == strategy.plan.rounds > strategy.round


def stored(checkpoint: dict[str, Any]) -> dict[str, Any]:
    """Through a file, as far as a checkpoint is numbers."""
    return {
        key: np.frombuffer(value.tobytes(), value.dtype)
        if isinstance(value, np.ndarray)
        else json.loads(json.dumps(value))
        for key, value in checkpoint.items()
    }


RULES = (
    "sgd", "momentum", "nesterov", "debiased-momentum", "adagrad", "adam", "adamw", "yogi",
)  # fmt: skip
OPTIMISERS = [
    {"optimiser": optimiser, "averaging": averaging, "learning_rate": 0.5}
    for optimiser in RULES
    for averaging in ("last", "tail")
]
OPTIMISERS.append({"optimiser": "adam", "averaging": "mean", "learning_rate": 0.5, "warm_up": 6})


@pytest.mark.parametrize("options", OPTIMISERS, ids=lambda o: f"{o['optimiser']}-{o['averaging']}")
def test_a_run_restored_from_a_checkpoint_ends_as_if_uninterrupted(
    options: dict[str, Any],
) -> None:
    world = federation()
    made = [build("gradient-perturbation", TASK, rounds=7, **options) for _ in range(3)]
    whole, broken, again = made
    train(whole, world)
    for _ in range(4):
        query = broken.ask()
        assert query is not None
        broken.learn(world.sum(query))
    again.restore(stored(broken.checkpoint()))
    assert again.round == 4
    assert (train(again, world).theta == whole.theta).all()


@pytest.mark.parametrize("name", ALL)
def test_a_finished_run_restored_has_nothing_more_to_ask(name: str) -> None:
    done = train(build(name, TASK, **ROUNDS.get(name, {})), federation())
    again = build(name, TASK, **ROUNDS.get(name, {}))
    again.restore(stored(done.checkpoint()))
    assert again.ask() is None
    assert (again.theta == done.theta).all()


@pytest.mark.parametrize("name", ["gradient-perturbation", "local-gradient-perturbation"])
def test_gradients_train_networks_given_a_learning_rate(name: str) -> None:
    with pytest.raises(ValueError, match="learning_rate must be a number"):
        build(name, NETWORK, rounds=2, optimiser="adam")  # for which there is no rule
    strategy = build(name, NETWORK, rounds=2, learning_rate=0.5)
    assert np.abs(strategy.theta).max() > 0  # random weights
    before = strategy.theta.copy()
    train(strategy, federation(NETWORK))
    assert (strategy.theta != before).all()


@pytest.mark.parametrize("name", PRIVATE)
def test_a_run_ends_with_a_statement(name: str) -> None:
    strategy = train(build(name, TASK, **ROUNDS.get(name, {})), federation())
    assert strategy.plan is not None
    statement = make_statement(
        strategy.plan,
        facts=RunFacts(
            run=f"{name}-1", data="made", simulated=True, randomness="seeded", sampler="full batch"
        ),
        trust=TrustModel(secure_aggregation="ideal", server_also_sees=strategy.server_also_sees),
    )
    text = to_text(statement)
    assert "(1, 1e-06)" in text
    assert ("exact sums of gradients" in text) == (name in ("objective-perturbation", "inference"))
    written = json.loads(json.dumps(statement.to_dict(), allow_nan=False))
    require_written(written["plan"])
    require_known_words(written)


def test_the_statement_of_the_unsound_law_reports_what_it_costs() -> None:
    plan = build("output-perturbation", TASK, law="unsound-laplace").plan
    assert plan is not None
    statement = make_statement(
        plan,
        facts=RunFacts(
            run="r", data="made", simulated=True, randomness="seeded", sampler="full batch"
        ),
        trust=TrustModel(secure_aggregation="ideal"),
    )
    assert statement.epsilon == pytest.approx(2.0)  # √4 · 1


def test_the_optimal_regulariser_balances_bias_and_noise() -> None:
    """λ* = √(2a)/D with a = 3G²√(d·ln(1.25/δ))/(εN)."""
    strategy = build("output-perturbation", TASK, regulariser="optimal", radius=5.0)
    a = 3 * np.sqrt(WIDTH * np.log(1.25 / 1e-6)) / sum(SIZES)
    assert strategy.task.regulariser == pytest.approx(np.sqrt(2 * a) / 5)
    query = strategy.ask()
    assert query is not None
    assert query.regulariser == strategy.task.regulariser  # type: ignore[attr-defined]
    strategy.learn(federation().sum(query))


def test_without_delta_the_optimal_regulariser_balances_the_length_of_laplace_noise() -> None:
    """a = G·E‖b‖·λ = 2dG²/(εN): ‖b‖ has a Gamma law of mean d·Δ/ε."""
    strategy = build("output-perturbation", TASK, regulariser="optimal", radius=5.0, delta=0.0)
    assert strategy.task.regulariser == pytest.approx(np.sqrt(4 * WIDTH / sum(SIZES)) / 5)


def test_the_learning_rate_is_one_over_the_smoothness() -> None:
    """1/M, M = B²/4 + λ: the first step from zero moves by release/M."""
    strategy = build(
        "gradient-perturbation", TASK, rounds=1, epsilon=1e9, delta=0.5, optimiser="sgd"
    )
    query = strategy.ask()
    assert query is not None
    answer = federation().sum(query)
    strategy.learn(answer)
    step = -answer.value / sum(SIZES) / (0.25 + 0.05)
    np.testing.assert_allclose(strategy.theta, step, atol=1e-3)


def test_the_regulariser_is_neither_clipped_nor_noised() -> None:
    """With a huge λ the pull on θ is exact: it never passed through the clip."""
    task = replace(TASK, regulariser=50.0)
    start = np.full(WIDTH, 3.0)
    plan = build("gradient-perturbation", task, rounds=1).plan
    assert plan is not None
    mechanism = plan.mechanisms[0]
    assert isinstance(mechanism, GaussianMechanism)
    strategy = build("gradient-perturbation", task, rounds=1, learning_rate=0.01)
    strategy._iterate = start  # type: ignore[attr-defined]
    query = strategy.ask()
    assert query is not None
    strategy.learn(SilentFederation(task, sampling=streams(0, "p")).sum(query))
    np.testing.assert_allclose(
        strategy.theta, start * (1 - 0.01 * 50), atol=0.01 * 7 * mechanism.stddev / sum(SIZES)
    )


def test_add_remove_needs_half_the_noise_at_the_same_budget() -> None:
    plans = [
        build("gradient-perturbation", TASK, rounds=3, clip=1.0, adjacency=adjacency).plan
        for adjacency in ("replace-one", "add-remove")
    ]
    noise = [plan.mechanisms[0].noise_stddev for plan in plans if plan]
    assert noise[0] / noise[1] == pytest.approx(2, rel=5e-3)
    events = [plan.event(0) for plan in plans if plan]
    assert all(isinstance(event, GaussianEvent) for event in events)
    assert [event.adjacency for event in events] == [Adjacency.REPLACE_ONE, Adjacency.ADD_REMOVE]
