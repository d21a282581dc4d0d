"""Axes of a comparison: any key of an experiment, and the values that it takes in turn.

`compare.over`, and `fedpriv compare --over`, name one key or two. A key is written in full, as in
``model.l2``; a bare one is an option of a strategy, or else a key of data, model, privacy or run.
A strategy without the key is unaffected by it: it is computed once, and drawn as a line.
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from fedpriv.simulations.experiment.catalogue import strategy_info
from fedpriv.simulations.experiment.complaints import unknown_key
from fedpriv.simulations.experiment.model_section import ModelSection
from fedpriv.simulations.experiment.sections import (
    DataSection,
    PersonsSection,
    PrivacySection,
    RunSection,
    Section,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from fedpriv.simulations.experiment.file import Experiment
    from fedpriv.strategies import StrategyInfo

    Point = Mapping[str, Any]

_MOST = 2  # axes: a curve over one of them for each value of the other
_STRATEGY = "strategy"
_TABLES: dict[str, type[Section]] = {
    "data": DataSection,
    "model": ModelSection,
    "privacy": PrivacySection,
    "run": RunSection,
    "persons": PersonsSection,
}
# Keys that are axes of their own, and keys that no number of a cell follows from.
_ELSEWHERE = {
    "privacy.epsilon": "list budgets in compare.epsilons",
    "run.seed": "give their number as compare.seeds",
    "strategy.name": "list strategies in compare.strategies",
    "strategy.label": "list strategies in compare.strategies",
    "data.path": "compare each file by itself",
    "data.schema": "compare each file by itself",
    "data.root": "compare each folder by itself",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One axis: a key of the experiment, and its values.

    Attributes:
        table: The table of the file.
        name: The key in it.
        values: In the order of the file.
    """

    table: str
    name: str
    values: tuple[Any, ...]

    @property
    def key(self) -> str:
        """The key in full."""
        return f"{self.table}.{self.name}"

    def applies(self, info: StrategyInfo) -> bool:
        """Whether the key changes anything for a strategy."""
        match self.table:
            case "strategy":
                return self.name in info.options.model_fields
            case "privacy" | "persons":
                return info.private
        return True


def axes(experiment: Experiment, infos: Iterable[StrategyInfo]) -> tuple[Axis, ...]:
    """The axes that an experiment names for strategies that tell of themselves by ``infos``."""
    section = experiment.compare
    if section is None or not section.over:
        return ()
    options = {name for info in infos for name in info.options.model_fields}
    swept = tuple(
        Axis(table=table, name=name, values=_values(key, values))
        for key, values in section.over.items()
        for table, name in [_place(key, options)]
    )
    keys = [axis.key for axis in swept]
    if len(swept) > _MOST or len(set(keys)) < len(keys):
        raise ValueError(
            f"compare.over must name one key, or two different ones, got {', '.join(keys)}: "
            "compare the others one after another."
        )
    if "data.parties" in keys and section.parties:
        raise ValueError("compare.over and compare.parties must not both name numbers of parties.")
    return swept


def swept_keys(experiment: Experiment) -> tuple[str, ...]:
    """The keys in full, of an experiment whose axes were found to be right."""
    section = experiment.compare
    if section is None or not section.over:
        return ()
    named = [entry.name for entry in section.strategies] or [experiment.strategy.name]
    infos = [strategy_info(name, experiment.guests) for name in named]
    return tuple(axis.key for axis in axes(experiment, infos))


def points(swept: Sequence[Axis], info: StrategyInfo) -> list[dict[str, Any]]:
    """Every combination of the values that matter to a strategy: by key, the value."""
    chosen = [axis for axis in swept if axis.applies(info)]
    combined = product(*(axis.values for axis in chosen))
    return [dict(zip((axis.key for axis in chosen), values, strict=True)) for values in combined]


def by_table(point: Point) -> dict[str, dict[str, Any]]:
    """The keys of a point, by table."""
    tables: dict[str, dict[str, Any]] = {}
    for key, value in point.items():
        table, _, name = key.partition(".")
        tables.setdefault(table, {})[name] = value
    return tables


def text_of(value: Any) -> str:
    """A value as tables, plots and sentences print it."""
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return f"{value:g}"
    return json.dumps(value, ensure_ascii=False)


def in_words(point: Point) -> str:
    """A point as sentences name it: empty without axes."""
    return ", ".join(f"{key} = {text_of(value)}" for key, value in point.items())


def parse_axes(texts: Iterable[str]) -> dict[str, list[Any]]:
    """Axes as written after `--over`, ``rounds=10,30,100``; text needs no quotes."""
    parsed: dict[str, list[Any]] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        if not equals or not key.strip() or not values.strip():
            raise ValueError(
                f"--over must be written key=value,value,…, as in rounds=10,30,100; got {text!r}."
            )
        parsed[key.strip()] = _list(values)
    return parsed


def _list(text: str) -> list[Any]:
    try:
        values: list[Any] = tomllib.loads(f"values = [{text}]")["values"]
    except tomllib.TOMLDecodeError:  # words without quotes
        return [_word(part.strip()) for part in text.split(",")]
    return values


def _word(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _values(key: str, values: tuple[Any, ...]) -> tuple[Any, ...]:
    distinct = {json.dumps(value, sort_keys=True): value for value in values}
    if not distinct:
        raise ValueError(f"compare.over: {key!r} must have at least one value, got none.")
    return tuple(distinct.values())


def _place(key: str, options: set[str]) -> tuple[str, str]:
    """Table and name of a key; an error with the reason if it cannot be an axis."""
    keys = {_STRATEGY: options, **{table: _keys(of) for table, of in _TABLES.items()}}
    table, dot, name = key.partition(".")
    if not dot:
        name = key
        holders = [each for each in keys if each != "persons" and key in keys[each]]
        table = holders[0] if holders else ""
    if name not in keys.get(table, set()) and f"{table}.{name}" not in _ELSEWHERE:
        known = [f"{each}.{option}" if dot else option for each in keys for option in keys[each]]
        raise ValueError(unknown_key(f"compare.over: {key!r}", key, set(known)))
    if f"{table}.{name}" in _ELSEWHERE:
        raise ValueError(f"compare.over: {key!r} is no axis here: {_ELSEWHERE[f'{table}.{name}']}.")
    return table, name


def _keys(section: type[Section]) -> set[str]:
    return {field.alias or name for name, field in section.model_fields.items()}
