"""A deployed run on one machine: seconds an exchange, and whose they are.

Run with ``python -m benchmarks.deployment [--quick] [--json]``. Five parties with files of their
own, a SuperLink and five SuperNodes as real processes, TLS, node keys, secure aggregation against a
lying server, ten rounds of gradients with 1000 coordinates; before that, ten seconds of nothing.
Then the same run once more with all members in this process and nothing of Flower between them but
its message type: processor time of all of them together. A part of it is the reading of files: a
party opens its policy, roster, keys and certificate for every message; its schema of 999 columns
and its records are in its worker's memory. The rest of it is cryptography, computing and ledgers.
What is not ours is Flower's polling, its transport, and processes that wait for a processor.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
from flwr.app import Context, RecordDict

from fedpriv._toml import to_toml
from fedpriv.data import keep
from fedpriv.data.tables import files
from fedpriv.federation.engines.courier import Patience
from fedpriv.federation.engines.local import FIRST_NODE, LocalGrid
from fedpriv.federation.engines.warm_up import load_kernels
from fedpriv.federation.party.client_app import client_app
from fedpriv.simulations.client_app import open_party
from fedpriv.simulations.deploy.federation import parse_federation
from fedpriv.simulations.deploy.flower.supernode import POLL_SECONDS
from fedpriv.simulations.deploy.founding import found, rebundle
from fedpriv.simulations.deploy.health.reach import free_port
from fedpriv.simulations.deploy.members.changes import add
from fedpriv.simulations.deploy.members.membership import nodes, reconcile, wait_until_up
from fedpriv.simulations.deploy.processes import start, stop, tail
from fedpriv.simulations.deploy.programs import party_programs, server_programs
from fedpriv.simulations.deploy.run.server import open_session, seal_of, serve
from fedpriv.simulations.deploy.run.submission import follow, new_run, submit
from fedpriv.simulations.experiment.file import read_experiment
from fedpriv.simulations.run.files import read_costs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from fedpriv.federation.party.client_app import Host
    from fedpriv.simulations.deploy.founding import Founded
    from fedpriv.simulations.deploy.processes import Process
    from fedpriv.simulations.experiment.file import Experiment

PARTIES, RECORDS, WIDTH, ROUNDS = 5, 200, 1000, 10
GOAL = 0.05
_START_SECONDS = 300.0
_IDLE_SECONDS = 10.0
_TICKS = os.sysconf("SC_CLK_TCK")


def main(arguments: list[str]) -> int:
    rounds = 2 if "--quick" in arguments else ROUNDS
    with TemporaryDirectory(prefix="fedpriv-benchmark-") as folder:
        root = Path(folder)
        founded = federation(root)
        deployed, measured = over_flower(founded, experiment(root, "deployed", rounds))
        ours, reading = in_process(founded, experiment(root, "local", rounds))
    traffic = deployed["exchanges"]["traffic"].values()
    exchanges = sum(step["exchanges"] for step in traffic)
    waited = sum(step["seconds"] for step in traffic)
    found = {
        "parties": PARTIES,
        "rounds": rounds,
        "coordinates": deployed["dimension"],
        "exchanges": exchanges,
        **measured,
        "run_seconds": deployed["seconds"],
        "seconds_an_exchange": waited / exchanges,
        "poll_seconds": POLL_SECONDS,
        "reading_seconds": reading,
        "computing_seconds": ours - reading,
        "reading_share": reading / deployed["seconds"],
        "computing_share": (ours - reading) / deployed["seconds"],
        "goal": GOAL,
    }
    if "--json" in arguments:
        print(json.dumps(found, indent=2))
    else:
        report(found)
    return int(found["computing_share"] > GOAL)


def report(found: dict[str, Any]) -> None:
    print(
        f"{found['parties']} parties, {found['rounds']} rounds, {found['coordinates']} "
        f"coordinates, active secure aggregation, TLS, one machine"
    )
    print(f"start of all processes    {found['start_seconds']:8.1f} s")
    print(f"the run                   {found['run_seconds']:8.1f} s")
    print(f"an exchange               {found['seconds_an_exchange']:8.3f} s")
    print(f"  a node looks every      {found['poll_seconds']:8.3f} s")
    for what, share in (("cryptography, computing", "computing"), ("reading of files", "reading")):
        seconds = found[f"{share}_seconds"] / found["exchanges"]
        print(f"  {what:<23} {seconds:8.3f} s of a processor, all members together")
    for what, seconds in found["processor_seconds"].items():
        print(f"  {what:<23} {seconds / found['exchanges']:8.3f} s of a processor")
    print(f"idle, all processes       {100 * found['idle_share']:8.1f} % of a processor")
    print(f"share of reading          {100 * found['reading_share']:8.1f} %")
    print(
        f"share of the rest of ours {100 * found['computing_share']:8.1f} %   goal {100 * GOAL:g} %"
    )


def federation(root: Path) -> Founded:
    """Five parties with records of their own."""
    names = [f"x{i}" for i in range(WIDTH - 1)]
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (PARTIES, RECORDS, WIDTH - 1))
    return founded_with(root, names, [(own, own[:, 0] > 0) for own in X])


def founded_with(
    root: Path, names: Sequence[str], tables: Sequence[tuple[Any, Any]], **changes: dict[str, Any]
) -> Founded:
    """A federation of parties with such records: numbers in [−1, 1], and whether they are "yes"."""
    columns = {name: {"kind": "number", "min": -1, "max": 1} for name in names}
    described = {**columns, "y": {"kind": "category", "values": ["no", "yes"]}}
    (root / "schema.toml").write_text(
        to_toml({"label": "y", "positive": "yes", "columns": described})
    )
    values = {
        "name": "benchmark",
        "schema": str(root / "schema.toml"),
        "server": {"address": "127.0.0.1", "port": free_port()},
        "party": [{"name": f"party{j}", "port": free_port()} for j in range(len(tables))],
        "budget": {"epsilon": 100.0, **changes.get("budget", {})},
        "policy": {"min_noise": 0.0, **changes.get("policy", {})},
    }
    founded = found(parse_federation(values), root / "deployment")
    for folder, (X, y) in zip(founded.parties, tables, strict=True):
        rows = [
            ",".join([*(f"{x:.4f}" for x in row), "yes" if positive else "no"])
            for row, positive in zip(X.tolist(), y, strict=True)
        ]
        header = ",".join([*columns, "y"])
        (folder.root / "records.csv").write_text("\n".join([header, *rows, ""]))
        rebundle(folder)
        add([folder.bundle], founded.server.root)
    return founded


def experiment(root: Path, name: str, rounds: int) -> Experiment:
    """Named after its data, so that each run has a ledger of its own at the server."""
    (root / f"{name}.toml").write_text((root / "schema.toml").read_text())
    path = root / f"{name}-experiment.toml"
    values = {
        "data": {"schema": f"{name}.toml"},
        "strategy": {"name": "gradient-perturbation", "rounds": rounds},
        "privacy": {"epsilon": 8.0},
        "run": {"engine": "deployment", "secure_aggregation": "active"},
    }
    path.write_text(to_toml(values))
    return read_experiment(path)


def over_flower(founded: Founded, wanted: Experiment) -> tuple[dict[str, Any], dict[str, Any]]:
    """The run on real processes: its result, and what it took beside."""
    began = time.perf_counter()
    with processes(founded) as kinds:
        started = time.perf_counter() - began
        idle = _processor_seconds(kinds)
        time.sleep(_IDLE_SECONDS)
        before = _processor_seconds(kinds)
        result = finished(founded, wanted)
        after = _processor_seconds(kinds)
    return result, {
        "start_seconds": started,
        "idle_share": sum(before[kind] - idle[kind] for kind in kinds) / _IDLE_SECONDS,
        "processor_seconds": {kind: after[kind] - before[kind] for kind in kinds},
    }


@contextmanager
def processes(founded: Founded) -> Iterator[dict[str, list[Process]]]:
    """All processes of a federation, by kind, once every node is admitted and has its records."""
    began = time.perf_counter()
    with ExitStack() as stack:
        stack.callback(stop, founded.server)
        superlink, worker = [start(program) for program in server_programs(founded.server)]
        if not wait_until_up(founded.server, superlink, seconds=_START_SECONDS):
            raise RuntimeError(tail(founded.server, "superlink"))
        reconcile(founded.server)
        supernodes, workers = [], []
        for folder in founded.parties:
            stack.callback(stop, folder)
            supernode, own = [start(program) for program in party_programs(folder)]
            supernodes.append(supernode)
            workers.append(own)
        while not _all_ready(founded):
            if time.perf_counter() - began > _START_SECONDS:
                raise RuntimeError(tail(founded.parties[0], "supernode"))
        yield {
            "SuperLink": [superlink],
            "ServerApp": [worker],
            "SuperNodes": supernodes,
            "parties": workers,
        }


def finished(founded: Founded, wanted: Experiment) -> dict[str, Any]:
    """The result of a run that is submitted now, with what it cost."""
    submitted = submit(new_run(wanted, founded.server), founded.server)
    said: list[str] = []
    result = follow(submitted, founded.server, on_line=said.append)
    if result is None:
        raise RuntimeError("\n".join(said))
    return {**result, **read_costs(submitted.directory)}


def _all_ready(founded: Founded) -> bool:
    """Whether every node is admitted, and every worker has its records."""
    online = sum(state.status == "online" for state in nodes(founded.server))
    return online == PARTIES and all("for 127" in tail(each, "worker") for each in founded.parties)


def _processor_seconds(kinds: dict[str, list[Process]]) -> dict[str, float]:
    """What the processes have used so far, with their children that have ended."""
    return {kind: sum(_used(process.pid) for process in found) for kind, found in kinds.items()}


def _used(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / _TICKS


def in_process(founded: Founded, wanted: Experiment) -> tuple[float, float]:
    """Processor seconds of the same run with every member in this process; of these, reading."""
    text = to_toml(wanted.to_dict())
    reading = 0.0

    def timed(call: Callable[..., Any]) -> Callable[..., Any]:
        def read(*arguments: Any, **options: Any) -> Any:
            nonlocal reading
            began = time.process_time()
            try:
                return call(*arguments, **options)
            finally:
                reading += time.process_time() - began

        return read

    kept = [keep(each.root / "records.csv", schema=each.schema) for each in founded.parties]
    load_kernels()

    def party(context: Context) -> Host:
        number = int(context.node_config["partition-id"])
        folder = founded.parties[number]
        deployed = Context(
            run_id=1,
            node_id=context.node_id,
            node_config={"party": str(folder.policy)},
            state=context.state,
            run_config={"config": text},
        )
        host: Host = timed(open_party)(deployed, files=kept[number])
        return host

    output = founded.server.runs / "in-process"
    place = {"config": text, "roster": str(founded.server.roster), "output": str(output)}
    session, roster = open_session(place)
    seal = replace(
        seal_of(place, roster, flower=1),
        find_seats=lambda: {FIRST_NODE + number: number for number in range(PARTIES)},
    )
    grid = LocalGrid(client_app(party), PARTIES)
    patience = Patience(arrival=1.0, reply=60.0, poll=0.001)
    party(_context())  # what a worker has imported before its first message
    reading, began = 0.0, time.process_time()
    with ExitStack() as stack:
        for name in ("read_table", "read_schema"):
            stack.enter_context(patch.object(files, name, timed(getattr(files, name))))
        result = serve(session, roster, grid, seal=seal, patience=patience)
    ours = time.process_time() - began
    if result is None:
        raise RuntimeError("the run in this process ended without a result.")
    return ours, reading


def _context() -> Context:
    return Context(
        run_id=1,
        node_id=1,
        node_config={"partition-id": 0},
        state=RecordDict(),
        run_config={},
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
