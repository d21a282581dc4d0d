"""Records of an experiment in a store: written once, opened by every process that computes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import fedpriv
from fedpriv.data.store.reader import open_store
from fedpriv.data.store.writer import write_store
from fedpriv.simulations.experiment.records.holding import Holding
from fedpriv.simulations.experiment.records.store_keys import FREE

if TYPE_CHECKING:
    from pathlib import Path

    from fedpriv.data.store.manifest import Manifest
    from fedpriv.federation.task import PersonBounds
    from fedpriv.simulations.experiment.file import Experiment
    from fedpriv.simulations.experiment.sections import DataSection


def write_holding(
    folder: Path, experiment: Experiment, holding: Holding, persons: PersonBounds | None
) -> Manifest:
    """Write the records that an experiment prepared to a new folder."""
    facts = holding_facts(experiment, holding, persons)
    return write_store(folder, holding.data, sizes=holding.sizes, facts=facts)


def holding_facts(
    experiment: Experiment, holding: Holding, persons: PersonBounds | None
) -> dict[str, Any]:
    """All that the records of a store depend on, and what is known of them beside the data set."""
    section = experiment.data
    drawn = section.partition != "natural" or section.parties is not None or not holding.own_test
    return {
        "fedpriv": fedpriv.__version__,
        "data": _prepared_by(section),
        "seed": experiment.run.seed if drawn else None,
        "person_parties": None if persons is None else persons.parties,
        "describe": _described(experiment),
        "headroom": holding.headroom,
        "in_place": holding.in_place,
        "own_test": holding.own_test,
    }


def stored(experiment: Experiment, persons: PersonBounds | None) -> Holding:
    """The records of an experiment from its store, mapped; refused if they are not its own."""
    folder = str(experiment.data.store)
    store = open_store(folder)
    facts, section = store.manifest.facts, experiment.data
    wanted, there = _prepared_by(section), dict(facts["data"])
    for key in sorted((wanted.keys() | there.keys()) - set(FREE)):
        _require(folder, f"data.{key}", there.get(key), wanted.get(key))
    if facts["seed"] is not None:
        _require(folder, "run.seed", facts["seed"], experiment.run.seed)
    unit = "record or party" if facts["person_parties"] is None else "person"
    if (persons is None) != (facts["person_parties"] is None):
        _require(folder, "privacy.unit", unit, experiment.privacy.unit)
    if persons is not None:
        _require(folder, "persons.parties", facts["person_parties"], persons.parties)
    if facts["describe"] != _described(experiment):
        raise ValueError(
            f"{folder!r} holds records to learn from, and to describe a table takes its columns: "
            "name the table itself as data.path."
            if experiment.describing
            else f"{folder!r} holds columns to describe, and no records to learn from."
        )
    return Holding(
        data=store.data,
        sizes=store.sizes,
        headroom=facts["headroom"],
        in_place=facts["in_place"],
        own_test=facts["own_test"],
    )


def _prepared_by(section: DataSection) -> dict[str, Any]:
    return section.model_dump(
        mode="json", by_alias=True, exclude_none=True, exclude={"store", *FREE}
    )


def _described(experiment: Experiment) -> list[str] | None:
    if not experiment.describing:
        return None
    return list(experiment.strategy.options.get("magnitudes", ()))


def _require(folder: str, key: str, there: Any, wanted: Any) -> None:
    if there != wanted:
        raise ValueError(
            f"{key} must be {there!r}, as the records of the store {folder!r} were prepared, got "
            f"{wanted!r}: make another store with `fedpriv data shard`."
        )
