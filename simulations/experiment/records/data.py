"""From the data section of an experiment to records held by parties.

Every step looks at one record at a time or at public facts: the scale of a feature comes from the
schema, the side of the test split from the record's own mark or a public column, the party from the
record. So neighbouring tables become neighbouring training sets, as a release requires. Where
persons are named, split and party depend on the record's person, so the same holds for persons.
Partitions that deal records out by position are for simulations.
"""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv._validate import require_choice
from fedpriv.data import (
    Bounds,
    Dataset,
    Records,
    bound,
    hold_out,
    load,
    partition,
    pooled,
    read_schema,
    read_table,
)
from fedpriv.data.builtin.registry import names
from fedpriv.data.partition import BY_RECORD
from fedpriv.data.persons import at_few_parties, require_persons
from fedpriv.data.tables.columns import read_columns
from fedpriv.data.tables.magnitudes import read_magnitudes
from fedpriv.simulations.experiment.named_files.guests import pin_of
from fedpriv.simulations.experiment.records.holding import Holding
from fedpriv.simulations.experiment.records.own_data import own_data
from fedpriv.simulations.experiment.records.splits import DEFAULT_FRACTION, Split, holders, split_of
from fedpriv.simulations.experiment.records.stores import stored

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from fedpriv.federation.task import PersonBounds
    from fedpriv.simulations.experiment.file import Experiment
    from fedpriv.simulations.experiment.records.stand_in import StandIn
    from fedpriv.simulations.experiment.sections import DataSection


def party_records(
    experiment: Experiment,
    *,
    keep: bool = False,
    persons: PersonBounds | None = None,
    stand_in: StandIn | None = None,
) -> Holding:
    """Load, split, bound and partition; a function of the data section and of ``run.seed``.

    Args:
        experiment: What to load.
        keep: Cache the data set before its partition, for a process with many runs on it: twice the
            memory, but only one load.
        persons: For the person unit of privacy: the bound on parties per person is enforced here,
            where all records are in one place; the bound on records, by each party.
        stand_in: Records to use instead of those that the data section names.
    """
    section = experiment.data
    if section.store is not None and stand_in is None:
        return stored(experiment, persons)
    if stand_in is not None:
        section = section.model_copy(update=_as_named(section.partition))
    pin = pin_of("data", section.name, experiment.guests)
    if experiment.describing:
        split = _columns(section, tuple(experiment.strategy.options.get("magnitudes", ())))
    elif stand_in is not None:
        split = _stood_in(stand_in, section, experiment.seed_of("test split"))
    else:
        split = (_kept if keep else _bounded)(section, experiment.seed_of("test split"), keep, pin)
    if stand_in is None:
        return held(experiment, split, persons)
    named = experiment.model_copy(update={"data": section})
    return held(named, split, persons, sizes=stand_in.sizes)


def held(
    experiment: Experiment,
    split: Split,
    persons: PersonBounds | None,
    *,
    marked: Callable[[Dataset], Records] | None = None,
    sizes: Sequence[int] | None = None,
) -> Holding:
    """Partition the training records of a split.

    Args:
        experiment: How.
        split: The records, or placeholders for them.
        persons: See `party_records`.
        marked: The actual training records, if the data set holds placeholders.
        sizes: Public sizes of the parties, where they are not those of the records.
    """
    section = experiment.data
    if persons is not None:
        split = _at_few_parties(split, persons)
    by_person = persons is not None
    rng = np.random.default_rng(experiment.seed_of("partition"))
    if section.partition == "natural":
        chosen = _chosen(split.dataset, section, rng)
        dataset = split.dataset if chosen is None else _only(split.dataset, chosen)
        data = partition(dataset, kind="natural", min_records=section.min_records)
        totals = split.totals(persons=by_person)[slice(None) if chosen is None else chosen]
    else:
        data = partition(
            split.dataset,
            kind=section.partition,
            parties=section.parties,
            rng=rng,
            exponent=_or(section.exponent, 1.0) if section.partition == "sized" else None,
            alpha=_or(section.alpha, 0.5) if section.partition == "dirichlet" else None,
            min_records=section.min_records,
            marked=_marked(split.dataset, section, marked),
        )
        totals = np.full(data.parties, split.total(persons=by_person) / data.parties)
    totals = _declared(section, data.parties, totals)
    dealt = data.kind not in BY_RECORD and section.records is None  # in a simulation
    counted = data.sizes if data.persons is None or not by_person else data.persons
    declared = counted if dealt else np.maximum(1, np.rint(totals * split.share))
    if sizes is not None:
        declared = np.array(sizes)
    in_place = dealt or not (split.by_hash or (data.kind == "hashed" and data.parties > 1))
    in_place = in_place and not by_person  # another person may have more records, or fewer
    most = totals.sum() if data.kind == "hashed" else totals
    return Holding(
        data=data,
        sizes=tuple(map(int, declared)),
        headroom=1.0 if in_place else max(1.0, float((most / declared).max())),
        in_place=in_place,
        own_test=not split.by_hash,
    )


def every_record(experiment: Experiment) -> Dataset:
    """All records of an experiment, before any split, bound or partition, for a study of them."""
    pin = pin_of("data", experiment.data.name, experiment.guests)
    return pooled(_loaded(experiment.data, pin))


def _marked(
    dataset: Dataset, section: DataSection, marked: Callable[[Dataset], Records] | None
) -> Records | None:
    """The records that a partition by hash looks at, where those of the data set are stand-ins."""
    by_record = section.partition == "hashed" and dataset.train.person is None
    return None if marked is None or not by_record else marked(dataset)


def _at_few_parties(split: Split, persons: PersonBounds) -> Split:
    """The training records without those of a person at more parties than declared."""
    train = split.dataset.train
    require_persons(train)
    kept = at_few_parties(train, parties=persons.parties)
    dataset = replace(split.dataset, train=train.take(kept)) if not kept.all() else split.dataset
    return replace(split, dataset=dataset)


def _bounded(section: DataSection, seed: int, keep: bool, pin: str | None) -> Split:
    """The data set before its partition; ``pin`` is the hash of code of the user's own."""
    split = split_of((_kept_source if keep else _loaded)(section, pin), section, seed)
    return replace(split, dataset=bound(split.dataset, _bounds(section)))


def _as_named(kind: str) -> dict[str, Any]:
    """What a stand-in changes in a data section: its records are of all parties, by name."""
    if kind == "hashed":
        return {"min_records": None}
    return {"partition": "natural", "parties": None, "min_records": None}


def _stood_in(stand_in: StandIn, section: DataSection, seed: int) -> Split:
    fraction = section.test_fraction
    split = Split(dataset=stand_in.dataset)
    if stand_in.by_hash:
        fraction = DEFAULT_FRACTION if fraction is None else fraction
        held = hold_out(stand_in.dataset, fraction=fraction, seed=seed)
        split = Split(dataset=held, by_hash=True, share=1 - fraction)
    return replace(split, dataset=bound(split.dataset, _bounds(section)))


def _bounds(section: DataSection) -> Bounds:
    return Bounds(norm=section.feature_norm, intercept=section.intercept, scaling=section.scaling)


def _require_there(section: DataSection) -> None:
    """Refuse a table or a schema that is not there, by its key, with the file that may be meant."""
    for key, name, kinds in (
        ("path", section.path, (".csv", ".parquet")),
        ("schema", section.schema_path, (".toml",)),
    ):
        path = Path(str(name))
        if name is None or path.exists():
            continue
        folder = path.parent
        beside = [f.name for f in folder.iterdir() if f.suffix in kinds] if folder.is_dir() else []
        near = get_close_matches(path.name, beside, n=1)
        hint = f" Is {near[0]!r} meant?" if near else ""
        raise ValueError(
            f"data.{key}: {path} does not exist.{hint} A path is relative to the experiment file, "
            "and with --set to the working directory."
        )


def _loaded(section: DataSection, pin: str | None) -> Dataset:
    if section.name is not None and pin is not None:
        return own_data(section.name, pin)
    if section.name is not None:
        require_choice(names(), **{"data.name": section.name.partition(":")[0]})
        return load(section.name, root=section.root)
    _require_there(section)
    # Where a number of records is declared the true one is private: that it is 0, too.
    dataset, _ = read_table(
        str(section.path),
        read_schema(str(section.schema_path)),
        empty=section.records is not None,
    )
    return dataset


def _columns(section: DataSection, magnitudes: tuple[str, ...]) -> Split:
    """The columns of a table to describe: of all records, those for testing as well."""
    if section.path is None:
        raise ValueError(
            f"describe needs a table with a schema, which states public bounds: data.path and "
            f"data.schema; got data.name = {section.title!r}."
        )
    _require_there(section)
    schema, empty = read_schema(str(section.schema_path)), section.records is not None
    if magnitudes:
        return Split(dataset=read_magnitudes(section.path, schema, magnitudes, empty=empty))
    return Split(dataset=read_columns(section.path, schema, empty=empty))


_kept = lru_cache(maxsize=1)(_bounded)
_kept_source = lru_cache(maxsize=1)(_loaded)


def _declared(section: DataSection, parties: int, counted: NDArray[Any]) -> NDArray[Any]:
    """The number of records of each party: declared by the experiment, or else as counted."""
    match section.records:
        case None:
            return counted
        case int(total):
            return np.full(parties, total / parties)
        case counts if len(counts) == parties:
            return np.array(counts, np.float64)
    raise ValueError(
        f"data.records must be one number, or one for each of the {parties} parties; got "
        f"{len(section.records)}."
    )


def _chosen(
    dataset: Dataset, section: DataSection, rng: np.random.Generator
) -> NDArray[np.int64] | None:
    """``parties`` of the natural ones: the first of a random order, so that more include fewer."""
    natural, wanted = len(dataset.party_names), section.parties
    if wanted is None or dataset.train.party is None:
        return None  # `partition` says what is missing
    if wanted > natural:
        raise ValueError(
            f"data.parties must be at most {natural}, the natural parties of {dataset.name}, got "
            f"{wanted}. Choose another partition for more."
        )
    return np.sort(rng.permutation(natural)[:wanted])


def _only(dataset: Dataset, chosen: NDArray[np.int64]) -> Dataset:
    """The training records of some parties; everybody's test records, which are common."""
    train = dataset.train.take(np.isin(holders(dataset.train), chosen))
    party = np.searchsorted(chosen, holders(train))
    return replace(
        dataset,
        train=replace(train, party=party),
        test=replace(dataset.test, party=None),
        party_names=tuple(dataset.party_names[index] for index in chosen),
    )


def _or(value: float | None, default: float) -> float:
    return default if value is None else value
