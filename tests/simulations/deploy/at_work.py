"""Real processes at work: a federation that runs an experiment, and how a process ended."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from shutil import rmtree
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.data import Dataset, Records, bound, partition, read_schema, read_table
from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.simulations.deploy import certificates
from fedpriv.simulations.deploy.health.doctor import examine
from fedpriv.simulations.deploy.health.reach import free_port
from fedpriv.simulations.deploy.processes import start, stop, tail
from fedpriv.simulations.deploy.programs import CONNECTION, flwr, party_programs
from fedpriv.simulations.deploy.run.public_facts import bounds_of, prepare_deployed
from fedpriv.simulations.deploy.run.submission import follow, new_run, submit
from fedpriv.simulations.experiment.file import Experiment, read_experiment
from fedpriv.simulations.run.files import read_costs
from fedpriv.simulations.run.prepare import build_strategy, train
from fedpriv.simulations.run.streams import streams
from tests.simulations.deploy.conftest import NAMES, SCHEMA, SIZES, Deployment

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

    from fedpriv.simulations.deploy.folders import PartyFolder, ServerFolder
    from fedpriv.simulations.deploy.programs import Program

BOUND = 150.0  # seconds; on a machine that is not busy a run takes twenty
EXPERIMENT = """
[data]
schema = "{name}.toml"
[model]
l2 = 0.01
[strategy]
name = "gradient-perturbation"
rounds = {rounds}
learning_rate = 1.0
[privacy]
epsilon = 10000.0
colluding = 0.0
[run]
engine = "deployment"
secure_aggregation = "{level}"
"""


@contextmanager
def at_work(*folders: PartyFolder) -> Iterator[None]:
    with ExitStack() as stack:
        for folder in folders:
            stack.callback(stop, folder)
            for program in party_programs(folder):
                start(program)
        yield


def run(served: Deployment, experiment: Experiment) -> dict[str, Any]:
    """A run from its submission to its result."""
    submitted = submit(new_run(experiment, served.server), served.server)
    said: list[str] = []
    watchdog = threading.Timer(BOUND, lambda: stopped(served, submitted.run))
    watchdog.start()
    try:
        result = follow(submitted, served.server, on_line=said.append)
    finally:
        watchdog.cancel()
    assert result is not None, "\n".join(said)
    with np.load(submitted.directory / "model.npz") as model:
        summary = {**result, **read_costs(submitted.directory)}
        return {**summary, "theta": model["theta"], "directory": submitted.directory}


def stopped(served: Deployment, number: str) -> None:
    program = flwr(served.server, "stop", number, CONNECTION)
    subprocess.run(program.command, env=program.full_environment, check=False, timeout=60)


def written(served: Deployment, *, name: str, rounds: int, level: str) -> Experiment:
    """An experiment; its name is that of the data, too."""
    (served.root / f"{name}.toml").write_text(SCHEMA)
    path = served.root / "experiment.toml"
    path.write_text(EXPERIMENT.format(name=name, rounds=rounds, level=level))
    return read_experiment(path)


def vectorized(served: Deployment, experiment: Experiment, numbers: tuple[int, ...]) -> Any:
    """The same run in one computation over the records of some of the parties."""
    schema = read_schema(served.server.schema)
    tables = [read_table(served.parties[j].root / "records.csv", schema)[0] for j in numbers]
    party = np.repeat(np.arange(len(tables)), [len(table.train) for table in tables])
    pooled = Records(
        X=np.concatenate([table.train.X for table in tables]),
        y=np.concatenate([table.train.y for table in tables]),
        party=party,
    )
    facts = tables[0]
    dataset = Dataset(
        name=facts.name,
        task=facts.task,
        train=pooled,
        test=facts.test,
        feature_names=facts.feature_names,
        max_norm=facts.max_norm,
        party_names=tuple(NAMES[j] for j in numbers),
        classes=facts.classes,
    )
    sizes = tuple(SIZES[j] for j in numbers)
    prepared = prepare_deployed(experiment, sizes=sizes)
    strategy = build_strategy(prepared, run="vectorized")
    federation = VectorizedFederation(
        partition(bound(dataset, bounds_of(experiment)), kind="natural"),
        task=prepared.task,
        sampling=streams(prepared, "sampling", run="vectorized"),
    )
    assert train(strategy, federation, lambda _query, _sum: True)
    return strategy.theta


def by_name(program: Program) -> str:
    return program.name


def ended(folder: PartyFolder) -> str:
    """What a SuperNode says before it gives up."""
    try:
        process = start(party_programs(folder)[0])
        deadline = time.monotonic() + BOUND
        while process.alive and time.monotonic() < deadline:
            time.sleep(0.2)
        assert not process.alive, "the SuperNode did not give up"
        return tail(folder, "supernode")
    finally:
        stop(folder)
        rmtree(folder.processes)


def failed(folder: PartyFolder | ServerFolder) -> set[str]:
    """What the doctor finds, except for the versions: see `test_patches`."""
    return {check.name for check in examine(folder) if not check.passed} - {"versions"}


@contextmanager
def expired_server(folder: PartyFolder, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A TLS server whose certificate was good until yesterday, under an authority that is."""
    past = datetime.now(tz=UTC) - timedelta(days=3)
    clock = SimpleNamespace(now=past.astimezone)
    authority = certificates.new_authority("clinics")
    with monkeypatch.context() as patch:
        patch.setattr(certificates, "datetime", clock)
        issued = certificates.new_server(authority, ["127.0.0.1"], days=2)
    folder.ca.write_bytes(authority.certificate)
    server, port = folder.root / "expired.pem", free_port()
    server.write_bytes(issued.certificate + issued.key)
    folder.node.write_text(f'server = "127.0.0.1:{port}"\nport = {free_port()}\n')
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server)
    listener = socket.create_server(("127.0.0.1", port))

    def serve() -> None:
        with suppress(OSError):
            while True:
                line, _ = listener.accept()
                with suppress(OSError), context.wrap_socket(line, server_side=True):
                    pass

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(timeout=10)
