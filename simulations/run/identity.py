"""The identity of a run: what is fixed when it starts, and compared when it is resumed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpriv.data.store.manifest import Manifest
from fedpriv.data.tables.release_rules import require_releasable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fedpriv.data.tables.schema import Schema
    from fedpriv.simulations.experiment.file import Experiment
    from fedpriv.simulations.run.prepare import Prepared

_PLACES = ("path", "schema", "root")  # keys of the data section that say where files lie


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What makes a run this run, fixed when it starts.

    Attributes:
        run: its name, in the ledger and in the statement.
        config_hash: of the experiment.
        release: whether it is real.
        ledger: path of the ledger, if there is one.
        ledger_rows: how many rows it had when the run started.
        ledger_head: the hash of the last of them, by which it is recognised.
        data: SHA-256 of the records of a simulation, so that a resumed run meets the same ones; a
            real release is checked by its ledger, under a secret salt.
        schema: SHA-256 of what the schema says, by which the records are read.
        experiment: SHA-256 of the whole experiment except file locations. `config_hash` omits keys
            that change no number of a simulation, among them what a release may publish.
    """

    run: str
    config_hash: str
    release: bool
    ledger: str | None
    data: str | None
    ledger_rows: int | None = None
    ledger_head: str | None = None
    schema: str | None = None
    experiment: str = ""


def require_read_by_the_rules(prepared: Prepared) -> None:
    """Refuse records that were read by a schema which no release may have.

    The release rules are checked on the schema file before a record is read. This checks the schema
    by which the records were actually read, a moment later.
    """
    schema = prepared.data.dataset.schema
    if schema is not None:
        require_releasable(schema, deployed=prepared.experiment.run.engine == "deployment")


def require_same_experiment(experiment: Experiment, identity: Identity, directory: Path) -> None:
    """Refuse an edited experiment; for a simulation, only if its numbers would change."""
    same = experiment.config_hash == identity.config_hash
    if identity.release:
        same = same and experiment_digest(experiment) == identity.experiment
    if not same:
        raise ValueError(
            f"{str(directory / 'config.toml')!r} was changed since the run started: put it back, "
            "or start a new run."
        )


def require_same_schema(schema: Schema | None, identity: Identity, directory: Path) -> None:
    """Refuse another schema than the run began with, however it is written."""
    if schema_digest(schema) != identity.schema:
        raise ValueError(
            f"the schema was changed since the run in {str(directory)!r} started: put it back, or "
            "start a new run."
        )


def require_own_checkpoint(state: Mapping[str, Any], identity: Identity, directory: Path) -> None:
    """Refuse the checkpoint of another run: the ledger of this one has not paid for its rounds.

    A checkpoint names its run. That of a release has the mark of its ledger, too, which a
    simulation's never has.
    """
    unpaid = identity.release and state.get("ledger_head") is None
    if state.get("run") != identity.run or unpaid:
        raise ValueError(
            f"the checkpoint in {str(directory / 'private')!r} is that of another run, whose "
            "rounds this one has not paid for. Nothing was spent. Put this run's own checkpoint "
            "back, or remove this one: the run then starts from what its ledger holds."
        )


def experiment_digest(experiment: Experiment) -> str:
    """SHA-256 of all that an experiment says, but for where its table, schema and start lie."""
    values = experiment.to_dict()
    values["model"].pop("start", None)
    values["data"] = {k: v for k, v in values["data"].items() if k not in _PLACES}
    return sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def schema_digest(schema: Schema | None) -> str | None:
    """SHA-256 of what a schema says, not of how it is written; None for built-in data."""
    return None if schema is None else sha256(schema.model_dump_json().encode()).hexdigest()


def records_digest(prepared: Prepared) -> str:
    """SHA-256 of the records of a simulation."""
    store = prepared.experiment.data.store
    if store is not None:  # which has hashes of all of them
        return Manifest.read(Path(store)).digest
    digest, dataset = sha256(), prepared.data.dataset
    for array in (dataset.train.X, dataset.train.y, dataset.test.X, dataset.test.y):
        digest.update(array.data)
    return digest.hexdigest()
