"""What every strategy promises, whichever it is."""

from __future__ import annotations

import ast
import inspect
import json
import re
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from pydantic import ValidationError

from fedpriv import strategies
from fedpriv.federation.deployed.statements.stated_words import require_known_words
from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.federation.task import PersonBounds
from fedpriv.learning.losses import Logistic
from fedpriv.learning.models import MlpModel
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.events import GaussianEvent
from fedpriv.privacy.ledger import Ledger
from fedpriv.privacy.mechanisms import GaussianMechanism
from fedpriv.privacy.planning.adaptive_plan import AdaptivePlan
from fedpriv.privacy.planning.written_plan import require_written
from fedpriv.privacy.statement import RunFacts, TrustModel, make_statement, to_text
from fedpriv.privacy.unit import Unit
from fedpriv.strategies import gradient_perturbation
from tests.federation.worlds import (
    PRIVATE,
    SilentFederation,
    build,
    linear_task,
    random_data,
    streams,
    train,
)

if TYPE_CHECKING:
    from fedpriv.federation.strategy.base import SumStrategy
    from fedpriv.federation.task import Task

SIZES, WIDTH = (30, 12, 45), 4
TASK = linear_task(SIZES, WIDTH, regulariser=0.05)
NETWORK = replace(TASK, model=MlpModel(widths=(WIDTH, 3, 1)), loss=Logistic())
ALL = list(strategies.STRATEGIES)
ROUNDS: dict[str, dict[str, Any]] = {
    "gradient-perturbation": {"rounds": 6},
    "local-gradient-perturbation": {"rounds": 6},
    "adaptive-clipping": {"rounds": 6},
    "second-order": {"rounds": 5},
    "agd": {"splits": 6},
    "learned-protection": {"horizon": 6},
    "federated-averaging": {"rounds": 6, "allow_swamped": True},
    "scaffold": {"rounds": 6, "allow_swamped": True},
}

# An answer rests on how many records its party has, which only a record that is exchanged keeps; or
# on how many persons, which is a declared number where they are the unit.
BY_SIZES = {
    "output-perturbation",
    "local-output-perturbation",
    "local-objective-perturbation",
    "pathak",
}


def task_for(unit: Unit) -> Task:
    """The task, with persons where those are the unit."""
    if unit is not Unit.PERSON:
        return TASK
    return replace(TASK, in_place=False, persons=PersonBounds(records=2))


def federation(task: Any = TASK) -> VectorizedFederation:
    return VectorizedFederation(
        random_data(SIZES, WIDTH), task=task, sampling=streams(0, "parties")
    )


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


@pytest.mark.parametrize("name", ALL)
def test_a_strategy_learns_from_sums_alone(name: str) -> None:
    """The federation of this test cannot give anything else."""
    strategy = build(name, TASK, **ROUNDS.get(name, {}))
    train(strategy, SilentFederation(TASK, sampling=streams(0, "p")))
    assert strategy.name == name
    assert strategy.theta.shape == (WIDTH,)
    assert np.isfinite(strategy.theta).all()


@pytest.mark.parametrize("name", ALL)
def test_no_strategy_holds_more_numbers_than_a_sum_has(name: str) -> None:
    """After a run on real records, nothing that it can reach has a row for every party."""
    strategy = train(build(name, TASK, **ROUNDS.get(name, {})), federation())
    seen: set[int] = set()

    def arrays(value: object) -> list[np.ndarray]:
        if id(value) in seen or inspect.isfunction(value) or inspect.ismodule(value):
            return []
        seen.add(id(value))
        if isinstance(value, np.ndarray):
            return [value]
        parts: list[object] = []
        if isinstance(value, dict):
            parts = list(value.values())
        elif isinstance(value, list | tuple | set):
            parts = list(value)
        elif hasattr(value, "__dict__"):
            parts = list(vars(value).values())
        return [array for part in parts for array in arrays(part)]

    found = arrays(vars(strategy))
    assert found
    shapes: set[Any] = {(WIDTH,), (strategy.width,)}
    if strategy.last_release is not None:  # as published
        shapes.add(strategy.last_release.shape)
    if name == "second-order":  # of its matrix
        shapes.add((WIDTH, WIDTH))
    assert {array.shape for array in found} <= shapes


FOLDER = Path(inspect.getfile(strategies)).parent
# Where the answer of a single party can be found; strategies have no business there.
PARTY_SIDE = {
    "fedpriv.federation.party",
    "fedpriv.federation.deployed",
    "fedpriv.federation.engines",
    "fedpriv.federation.protocol",
    "fedpriv.federation.queries.encoding",
    "fedpriv.data",
    "fedpriv.learning.batch",
    "fedpriv.learning.clipping.clipped_sum",
    "fedpriv.learning.erm.solver",
    "fedpriv.learning.training.trainer",
}


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.py")), ids=lambda path: path.stem)
def test_no_strategy_imports_what_can_hold_an_answer(path: Path) -> None:
    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            imported |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
    assert not [name for name in imported if on_party_side(name)]


def on_party_side(module: str) -> bool:
    return any(module == side or module.startswith(f"{side}.") for side in PARTY_SIDE)


def test_the_import_check_has_teeth() -> None:
    assert all(find_spec(side) for side in PARTY_SIDE)
    assert on_party_side("fedpriv.federation.party.answers")
    assert on_party_side("fedpriv.federation.party")
    assert not on_party_side("fedpriv.federation.queries.kinds")


@pytest.mark.parametrize("name", PRIVATE)
def test_a_private_strategy_does_not_start_without_a_budget(name: str) -> None:
    with pytest.raises(ValueError, match=f"budget must be given for {name}"):
        strategies.build(
            name,
            task=TASK,
            budget=None,
            adjacency="replace-one",
            options={},
            noise=streams(0, "n"),
            run="r",
        )


@pytest.mark.parametrize("name", sorted(set(ALL) - set(PRIVATE)))
def test_a_strategy_that_promises_nothing_takes_no_budget(name: str) -> None:
    with pytest.raises(ValueError, match="budget must be None"):
        strategies.build(
            name,
            task=TASK,
            budget=Budget(epsilon=1.0, delta=0.0),
            adjacency="replace-one",
            options={},
            noise=streams(0, "n"),
            run="r",
        )


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


@pytest.mark.parametrize("name", [n for n in ALL if strategies.STRATEGIES[n].minimises])
def test_a_strategy_of_minimisers_refuses_what_has_no_stable_one(name: str) -> None:
    with pytest.raises(ValueError, match="needs a convex problem"):
        build(name, NETWORK)
    with pytest.raises(ValueError, match="regulariser must be positive"):
        build(name, linear_task(SIZES, WIDTH, regulariser=0.0))


@pytest.mark.parametrize("name", ["gradient-perturbation", "local-gradient-perturbation"])
def test_gradients_train_networks_given_a_learning_rate(name: str) -> None:
    with pytest.raises(ValueError, match="learning_rate must be a number"):
        build(name, NETWORK, rounds=2)
    strategy = build(name, NETWORK, rounds=2, learning_rate=0.5)
    assert np.abs(strategy.theta).max() > 0  # random weights
    before = strategy.theta.copy()
    train(strategy, federation(NETWORK))
    assert (strategy.theta != before).all()


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("gradient-perturbation", {"adjacency": "add-remove", "weights": "equal"}, "replace-one"),
        ("gradient-perturbation", {"sampling_rate": 0.1, "rounds": 2}, "add-remove"),
        ("gradient-perturbation", {"law": "gaussian", "delta": 0.0}, "delta must be positive"),
        ("agd", {"delta": 0.0}, "delta must be positive"),
        ("gradient-perturbation", {"rounds": 3, "schedule": (1.0,)}, "one entry per round"),
        (
            "gradient-perturbation",
            {"rounds": 2, "schedule": (1.0, 2.0), "calibration": "textbook"},
            "must be 'exact'",
        ),
        ("output-perturbation", {"adjacency": "add-remove"}, "replace-one"),
        ("output-perturbation", {"law": "gaussian", "delta": 0.0}, "delta must be positive"),
        ("local-objective-perturbation", {"adjacency": "add-remove"}, "replace-one"),
        ("objective-perturbation", {"adjacency": "add-remove", "delta": 0.0}, "replace-one"),
        ("pathak", {"adjacency": "add-remove"}, "replace-one"),
    ],
)
def test_a_combination_that_no_theorem_covers_is_refused_by_name(
    name: str, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        build(name, TASK, **options)


@pytest.mark.parametrize("unit", [Unit.PERSON, Unit.PARTY])
@pytest.mark.parametrize("name", PRIVATE)
def test_a_unit_that_no_theorem_covers_is_refused_and_reaches_the_plan_where_one_does(
    name: str, unit: Unit
) -> None:
    info = strategies.STRATEGIES[name]

    def built(info: strategies.StrategyInfo) -> SumStrategy:
        return strategies.build(
            info,
            task=task_for(unit),
            budget=Budget(epsilon=1.0, delta=1e-6),
            adjacency="replace-one",
            options=ROUNDS.get(name, {}),
            noise=streams(0, "n"),
            run="r",
            unit=unit.value,
        )

    if unit not in info.units:
        because = re.escape(info.why_not(unit))
        with pytest.raises(ValueError, match=f"unit must be '.*' for {name}.*: {because}"):
            built(info)
        if info.units == (Unit.PARTY,):  # its plan is for parties, whatever it is asked for
            return
    any_unit = replace(info, units=tuple(Unit))
    if name in BY_SIZES and unit not in info.units:  # whatever it says that it supports
        with pytest.raises(ValueError, match=r"unit must be 'record' for .*private"):
            built(any_unit)
        return
    strategy = built(any_unit)
    assert strategy.plan is not None
    assert {strategy.plan.unit, *(event.unit for event, _ in strategy.plan.needed)} == {unit}
    # The parties are told so, and do not answer; for persons, sums of gradients may be asked for.
    if unit not in info.units and unit is not Unit.PERSON:
        with pytest.raises(ValueError, match=f"unit of the event must be .* got '{unit.value}'"):
            strategy.ask()


@pytest.mark.parametrize("unit", [Unit.PERSON, Unit.PARTY])
def test_equal_weights_are_for_the_record_unit(unit: Unit) -> None:
    info = replace(strategies.STRATEGIES["gradient-perturbation"], units=tuple(Unit))
    with pytest.raises(ValueError, match=f"unit must be 'record' for equal weights, got '{unit}'"):
        strategies.build(
            info,
            task=task_for(unit),
            budget=Budget(epsilon=1.0, delta=1e-6),
            adjacency="replace-one",
            options={"weights": "equal"},
            noise=streams(0, "n"),
            run="r",
            unit=unit,
        )


@pytest.mark.parametrize("unit", Unit)
@pytest.mark.parametrize("name", ["gradient-perturbation", "output-perturbation"])
def test_where_nothing_is_promised_any_unit_will_do(name: str, unit: Unit) -> None:
    only = next(other for other in Unit if other is not unit)
    strategy = strategies.build(
        replace(strategies.STRATEGIES[name], units=(only,)),
        task=task_for(unit),
        budget=None,
        adjacency="replace-one",
        options={},
        noise=streams(0, "n"),
        run="r",
        noise_free=True,
        unit=unit,
    )
    assert strategy.plan is None


def test_a_strategy_that_drops_the_unit_is_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    info = replace(strategies.STRATEGIES["gradient-perturbation"], units=tuple(Unit))

    def forgetful(setup: strategies.Setup, options: Any) -> SumStrategy:
        return gradient_perturbation.build(replace(setup, unit=Unit.RECORD), options)

    monkeypatch.setitem(strategies._BUILDERS, info.name, forgetful)
    with pytest.raises(ValueError, match="its plan is for unit 'record' and must be for 'party'"):
        strategies.build(
            info,
            task=TASK,
            budget=Budget(epsilon=1.0, delta=1e-6),
            adjacency="replace-one",
            options={},
            noise=streams(0, "n"),
            run="r",
            unit="party",
        )


@pytest.mark.parametrize("name", ALL)
def test_unknown_options_are_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        build(name, TASK, colour="blue")


def test_an_unknown_strategy_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(ValueError, match="Did you mean 'pathak'"):
        strategies.build(
            "patak",
            task=TASK,
            budget=None,
            adjacency="replace-one",
            options={},
            noise=streams(0, "n"),
            run="r",
        )


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
    if name != "scaffold":  # which is not deployed
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
