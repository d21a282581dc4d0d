"""A program that trains on real workers of Ray, and compares with one process, to the bit.

    python -m tests.simulations.engines.on_workers [--kill] [--two-nodes] [--large] WORKERS,… CASE …

Prints one JSON object: of every case and number of workers whether the models are equal, how many
machines the workers were on, and how many of them were lost. With ``--large``, queries are sent
like those that are too large to go with a call. In a process of its own: Ray leaves threads and
warnings behind.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv._environment import environment
from fedpriv.federation.engines import ray_session
from fedpriv.federation.engines.ray_session import _HERE_ALONE, RaySession
from fedpriv.federation.engines.sharded import ShardedFederation
from tests.simulations.engines.shards import study, trained

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fedpriv.federation.federation import Federation, Sum


@contextmanager
def machines(count: int) -> Iterator[str | None]:
    """The address of a cluster of so many nodes of Ray on this machine; None for no cluster."""
    if count == 1:
        yield None
        return
    with environment(_HERE_ALONE):
        from ray.cluster_utils import Cluster

        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
        for _ in range(count - 1):
            cluster.add_node(num_cpus=2)
        try:
            yield cluster.address
        finally:
            cluster.shutdown()  # type: ignore[no-untyped-call]


def compared(case: str, workers: int, *, kill: bool) -> dict[str, Any]:
    """The model of a case by so many workers, beside that of one process."""
    lost: list[int] = []
    nodes: set[str] = set()

    def watch(federation: Federation, _sum: Sum) -> None:
        assert isinstance(federation, ShardedFederation)
        import ray

        ids = [ray.get(shard.ready.remote())[1] for shard in federation._shards]
        nodes.update(
            info["Address"]["NodeID"]
            for info in ray._private.state.actors().values()
            if info["State"] == "ALIVE"
        )
        if kill and not lost:
            os.kill(ids[-1], signal.SIGKILL)
            lost.append(ids[-1])

    expected = trained(study(case, engine="vectorized"))
    found = trained(study(case, engine="sharded", workers=workers), watch)
    return {"equal": bool(np.array_equal(found, expected)), "nodes": len(nodes), "lost": len(lost)}


def main(arguments: list[str]) -> None:
    """Run the cases, and print what came of them."""
    kill = "--kill" in arguments
    if "--large" in arguments:
        ray_session._INLINED_BYTES = 0
    numbers, *cases = [each for each in arguments if not each.startswith("--")]
    count = 2 if "--two-nodes" in arguments else 1
    workers = [int(number) for number in numbers.split(",")]
    with machines(count) as address:
        session = RaySession(address=address, workers=max(workers))
        try:
            results = {
                f"{case} {number}": compared(case, number, kill=kill)
                for case in cases
                for number in workers
            }
        finally:
            session.close()
    print(json.dumps(results))


if __name__ == "__main__":
    main(sys.argv[1:])
