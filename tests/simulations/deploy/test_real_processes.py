"""Real SuperLinks and SuperNodes on the loopback, over TLS, with node keys: nothing is simulated.

The server and two of the three parties are started once for all tests of this file; they go on
without the third because experiment and policies say that nobody colludes. Every wait is bounded,
and every process is ended by its id.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from shutil import copytree
from typing import TYPE_CHECKING

import httpx
import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.interceptors import SuperExecAuthHttpInterceptor

from fedpriv._toml import to_toml
from fedpriv.simulations.deploy import certificates, keys
from fedpriv.simulations.deploy.federation import parse_federation, read_federation
from fedpriv.simulations.deploy.flower.tasks import Runtime
from fedpriv.simulations.deploy.flower.worker import ACQUIRE
from fedpriv.simulations.deploy.folders import PartyFolder, read_node
from fedpriv.simulations.deploy.founding import found, rebundle
from fedpriv.simulations.deploy.health.doctor import examine
from fedpriv.simulations.deploy.health.reach import free_port
from fedpriv.simulations.deploy.members.changes import add
from fedpriv.simulations.deploy.members.epochs import pin
from fedpriv.simulations.deploy.members.membership import (
    Reconciled,
    nodes,
    reconcile,
    wait_until_up,
)
from fedpriv.simulations.deploy.members.roster import Member, read_roster, write_roster
from fedpriv.simulations.deploy.processes import processes, start, stop, tail
from fedpriv.simulations.deploy.programs import CONNECTION, flwr, party_programs, server_programs
from tests.simulations.deploy.at_work import (
    BOUND,
    at_work,
    by_name,
    ended,
    expired_server,
    failed,
    run,
    vectorized,
    written,
)
from tests.simulations.deploy.conftest import (
    NAMES,
    SCHEMA,
    SIZES,
    Deployment,
    federation_values,
    until,
    write_records,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A federation of three: its server is up, its node keys are registered, two are at work."""
    root = tmp_path_factory.mktemp("federation")
    (root / "clinics.toml").write_text(SCHEMA)
    values = federation_values(
        schema=str(root / "clinics.toml"),
        budget={"epsilon": 1e6},
        policy={"min_noise": 0.0, "secure_aggregation": "semi-honest", "colluding": 0.0},
    )
    founded = found(parse_federation(values), root / "deployment")
    for number, folder in enumerate(founded.parties):
        write_records(folder.root / "records.csv", SIZES[number], seed=number)
        rebundle(folder)
        add([folder.bundle], founded.server.root)
    deployment = Deployment(root=root, server=founded.server, parties=founded.parties)
    try:
        members = [start(program) for program in server_programs(founded.server)]
        assert wait_until_up(founded.server, members[0], seconds=BOUND), tail(
            founded.server, "superlink"
        )
        assert reconcile(founded.server) == Reconciled(registered=NAMES, unregistered=())
        assert reconcile(founded.server) == Reconciled(registered=(), unregistered=())
        with at_work(*founded.parties[:2]):
            yield deployment
    finally:
        stop(founded.server)


def test_a_run_over_tls_with_secure_aggregation_agrees_with_the_vectorized_one(
    served: Deployment,
) -> None:
    """Two models with independent noise of a known scale.

    Each coordinate of the difference is Gaussian with a standard deviation below 3.2 times that of
    one step's noise: 20 of these are exceeded with probability below 1e-9.
    """
    experiment = written(served, name="clinics", rounds=2, level="active")
    with at_work(served.parties[2]):
        result = run(served, experiment)
        for folder in served.parties:
            for process, program in zip(
                processes(folder), sorted(party_programs(folder), key=by_name), strict=True
            ):
                words = Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")[:-1]
                assert [word.decode() for word in words[-len(program.command) + 1 :]] == list(
                    program.command[1:]
                )
    tolerance = 20 * result["noise_stddev"]
    everybody = vectorized(served, experiment, (0, 1, 2))
    np.testing.assert_allclose(result["theta"], everybody, rtol=0, atol=tolerance)
    fewer = vectorized(served, experiment, (0, 1))
    assert np.abs(fewer - everybody).max() > 2 * tolerance  # a party left out would be noticed
    assert result["exchanges"]["rejected"] == {}
    assert result["secure_aggregation"] == "active"
    assert not result["simulated"]
    for folder, name in zip(served.parties, NAMES, strict=True):
        assert (folder.root / f"{name}.ledger").exists()


def test_an_impostor_behind_a_registered_node_is_left_out_of_the_sum(
    served: Deployment, tmp_path: Path
) -> None:
    """Its node key and its certificates are right; its identity is not that of the roster."""
    victim = served.parties[2]
    impostor = PartyFolder(tmp_path / "west")
    copytree(victim.root, impostor.root, ignore=lambda *_: ["processes", "state", "flower"])
    (impostor.root / "west.ledger").unlink(missing_ok=True)
    identity = Ed25519PrivateKey.generate()
    keys.write_private(impostor.identity, keys.identity_private(identity), force=True)
    roster = read_roster(impostor.roster)
    assert "identity" in {check.name for check in examine(impostor, network=False)
                          if not check.passed}  # fmt: skip
    forged = Member(
        name="west",
        identity=keys.identity_public(identity),
        node=roster.members[2].node,
        records=roster.members[2].records,
    )
    write_roster(impostor.roster, roster.successor(forged))
    pin(keys.private_folder(impostor.root / "state"), read_roster(impostor.roster))
    experiment = written(served, name="pilot", rounds=1, level="semi-honest")
    with at_work(impostor):
        result = run(served, experiment)
    assert result["exchanges"]["rejected"]
    tolerance = 20 * result["noise_stddev"]
    two = vectorized(served, experiment, (0, 1))
    np.testing.assert_allclose(result["theta"], two, rtol=0, atol=1.5 * tolerance)


def test_code_that_is_shipped_to_the_server_is_not_run(served: Deployment, tmp_path: Path) -> None:
    """Anyone on the server's machine may start a run; its code goes nowhere."""
    app, trace = tmp_path / "app", tmp_path / "trace"
    (app / "fedpriv" / "simulations").mkdir(parents=True)
    hostile = (
        f"import pathlib, sys\nwith pathlib.Path({str(trace)!r}).open('a') as trace:\n"
        "    trace.write(f'{sys.argv[0]}\\n')\napp = None\n"
    )
    (app / "fedpriv" / "__init__.py").write_text(hostile)
    for name in ("__init__", "server_app", "client_app"):
        (app / "fedpriv" / "simulations" / f"{name}.py").write_text(hostile)
    project = {
        "project": {"name": "hostile", "version": "1.0.0", "license": "Apache-2.0"},
        "tool": {"flwr": {"app": {
            "publisher": "nobody",
            "fab-include": ["fedpriv/**/*.py"],
            "components": {"serverapp": "fedpriv.simulations.server_app:app",
                           "clientapp": "fedpriv.simulations.client_app:app"},
            "config": {"output": str(tmp_path)},
        }}},
    }  # fmt: skip
    (app / "pyproject.toml").write_text(to_toml(project))
    program = flwr(served.server, "run", str(app), CONNECTION, "--stream")
    done = subprocess.run(
        program.command,
        env=program.full_environment,
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=False,
    )
    assert "was not prepared on this server" in done.stdout, done.stdout + done.stderr
    # Flower's own command line, which is on the hostile side, imports it before it sends it.
    assert {Path(line).name for line in trace.read_text().splitlines()} == {"flwr"}


def test_nobody_gets_a_task_of_the_server_without_its_secret(served: Deployment) -> None:
    section = read_federation(served.server.federation).server
    for secret in (b"", b"guess" * 8):
        proof = SuperExecAuthHttpInterceptor(
            master_secret=secret or b"x", protected_methods=frozenset({ACQUIRE} if secret else ())
        )
        runtime = Runtime(
            address=section.url, secret=secret, certificates=served.server.ca.read_bytes()
        )
        wanted = AcquireTaskRequest(supported_task_types=["flwr-serverapp"])
        with (
            runtime.client(proof) as client,
            pytest.raises(httpx.HTTPStatusError, match="401"),
        ):
            client.AcquireTask(wanted)


@pytest.fixture
def copy(served: Deployment, tmp_path: Path) -> PartyFolder:
    """A party's directory, to spoil."""
    folder = PartyFolder(tmp_path / "north")
    copytree(served.parties[0].root, folder.root, ignore=lambda *_: ["processes", "flower"])
    folder.node.write_text(f'server = "{read_node(folder).server}"\nport = {free_port()}\n')
    return folder


def test_a_node_whose_key_is_not_registered_is_not_admitted(copy: PartyFolder) -> None:
    key = keys.new_node_key()
    keys.write_private(copy.node_key, keys.node_private(key), force=True)
    assert failed(copy) == {"node key"}
    assert "Failed to activate SuperNode: its key is not registered" in ended(copy)


def test_a_node_does_not_talk_to_a_server_of_another_authority(copy: PartyFolder) -> None:
    copy.ca.write_bytes(certificates.new_authority("clinics").certificate)
    assert failed(copy) == {"CA certificate", "server", "clock"}
    assert "CERTIFICATE_VERIFY_FAILED" in ended(copy)


def test_a_node_does_not_talk_to_a_server_whose_certificate_has_expired(
    copy: PartyFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with expired_server(copy, monkeypatch):
        checks = {check.name: check for check in examine(copy) if not check.passed}
        assert "expired" in checks["server"].found
        assert "renews" in checks["server"].remedy
        assert "certificate has expired" in ended(copy)


def test_doctor_finds_nothing_wrong_with_a_party_whose_server_is_up(
    served: Deployment,
) -> None:
    names = {check.name for check in examine(served.parties[1])}
    assert {"server", "clock", "records", "ledger"} <= names
    assert failed(served.parties[1]) == failed(served.server) == set()


def test_status_shows_processes_parties_and_runs(served: Deployment) -> None:
    assert until(lambda: [each.status for each in nodes(served.server)].count("online") == 2)
    program = flwr(served.server)
    command = [program.command[0].removesuffix("flwr") + "fedpriv", "deploy", "status"]
    done = subprocess.run(
        [*command, str(served.server.root), "--json"],
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=False,
    )
    assert done.returncode == 1, done.stderr  # a party is down
    printed = json.loads(done.stdout)
    assert printed["state"] == "idle"
    assert {each["name"] for each in printed["processes"]} == {"superlink", "worker"}
    states = {each["name"]: each["state"] for each in printed["parties"]}
    assert states == dict(zip(NAMES, ("idle", "idle", "down"), strict=True))
