"""Engine `sharded` for an experiment: its records in a store, and workers that prepare it again.

A worker is sent the experiment and nothing else. It reads it as this process did, own models and
pretrained weights included, with the hashes that the experiment states of them, and maps the
records from the store, which must lie at the same place on every machine.
"""

from __future__ import annotations

import socket
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from fedpriv.data.store.manifest import Manifest, is_store
from fedpriv.federation.engines.ray_session import RaySession
from fedpriv.federation.engines.sharded import ShardedFederation
from fedpriv.simulations.engines.parties import dropouts
from fedpriv.simulations.experiment.file import parse_experiment
from fedpriv.simulations.experiment.records.holding import Holding
from fedpriv.simulations.experiment.records.stores import write_holding
from fedpriv.simulations.run.streams import streams

if TYPE_CHECKING:
    from fedpriv.data import PartitionedDataset
    from fedpriv.federation.task import Task
    from fedpriv.simulations.run.prepare import Prepared


def sharded_federation(
    prepared: Prepared, *, run: str, workers: int | None = None, done: int = 0
) -> ShardedFederation:
    """The parties of a run in worker processes; ``done`` sums were formed before.

    Records that lie in no store are written to one in the temporary folder of this machine, for as
    long as the run lasts.
    """
    folder = prepared.experiment.data.store
    temporary = None
    if folder is None:
        temporary = TemporaryDirectory(prefix="fedpriv-store-", ignore_cleanup_errors=True)
        folder = str(Path(temporary.name) / "records")
        _write(prepared, Path(folder))
    try:
        values = prepared.experiment.to_dict()
        values["data"] = {**values["data"], "store": folder}
        digest = Manifest.read(Path(folder)).digest
        return ShardedFederation(
            prepared.data,
            task=prepared.task,
            opening=partial(open_parties, values, digest),
            sampling=streams(prepared, "sampling", run=run),
            workforce=RaySession(address=prepared.experiment.run.ray_address, workers=workers),
            dropouts=dropouts(prepared),
            first_round=done,
            ending=lambda: temporary.cleanup() if temporary else None,
        )
    except BaseException:
        if temporary is not None:
            temporary.cleanup()
        raise


def open_parties(values: dict[str, Any], digest: str) -> tuple[PartitionedDataset, Task]:
    """The records and the task of an experiment, in a worker; of this very store, or refused."""
    from fedpriv.simulations.run.prepare import prepare

    folder = Path(str(values["data"]["store"]))
    if not is_store(folder):
        raise ValueError(
            f"the store {str(folder)!r} is not on {socket.gethostname()!r}, where a worker was "
            "started: make it with `fedpriv data shard` on a disk that all machines share, or copy "
            "it to the same place on each."
        )
    if Manifest.read(folder).digest != digest:
        raise ValueError(
            f"the store {str(folder)!r} on {socket.gethostname()!r} is another one than that of "
            "the run: copy it anew."
        )
    prepared = prepare(parse_experiment(values))
    return prepared.data, prepared.task


def _write(prepared: Prepared, folder: Path) -> None:
    task = prepared.task
    holding = Holding(
        data=prepared.data,
        sizes=task.sizes,
        headroom=task.headroom,
        in_place=task.in_place,
        own_test=prepared.own_test,
    )
    write_holding(folder, prepared.experiment, holding, task.persons)
