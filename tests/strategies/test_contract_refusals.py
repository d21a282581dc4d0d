"""What every strategy refuses: missing budgets, units without a theorem, unknown names."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from fedpriv import strategies
from fedpriv.federation.task import PersonBounds
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.unit import Unit
from fedpriv.strategies import gradient_perturbation
from tests.federation.worlds import PRIVATE, build, linear_task, streams
from tests.strategies.every_strategy import ALL, NETWORK, ROUNDS, SIZES, TASK, WIDTH

if TYPE_CHECKING:
    from fedpriv.federation.strategy.base import SumStrategy
    from fedpriv.federation.task import Task


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


@pytest.mark.parametrize("name", [n for n in ALL if strategies.STRATEGIES[n].minimises])
def test_a_strategy_of_minimisers_refuses_what_has_no_stable_one(name: str) -> None:
    with pytest.raises(ValueError, match="needs a convex problem"):
        build(name, NETWORK)
    with pytest.raises(ValueError, match="regulariser must be positive"):
        build(name, linear_task(SIZES, WIDTH, regulariser=0.0))


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
