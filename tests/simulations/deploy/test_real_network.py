"""A run over real addresses: the server, three parties and a proxy, each in a network of its own.

By the commands of docs/deployment.md, with TLS and node keys; parties call out and listen to nobody
but themselves. It takes a few minutes, and the right to make network namespaces.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from fedpriv._toml import to_toml
from fedpriv.simulations.deploy.federation import parse_federation
from fedpriv.simulations.deploy.folders import read_node
from fedpriv.simulations.deploy.founding import found, rebundle
from fedpriv.simulations.deploy.members.changes import add
from fedpriv.simulations.safe_path import installed_program
from tests.simulations.deploy.conftest import NAMES, SCHEMA, SIZES, federation_values, write_records
from tests.simulations.deploy.networks import ADDRESSES, GATE_INSIDE, networks, why_not
from tests.simulations.deploy.standing import BOUND, EXPERIMENT, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.simulations.deploy.networks import Networks

STRESS = os.environ.get("FEDPRIV_STRESS") == "1"
FEDPRIV = installed_program("fedpriv")
PORT, PROXY_PORT = 9443, 3128
SERVER = f"{ADDRESSES['server']}:{PORT}"
PROXY = f"http://{GATE_INSIDE}:{PROXY_PORT}"
ASK = "import httpx, sys; print(httpx.post(sys.argv[1], content=b'', verify=False).status_code)"


def listening(net: Networks, machine: str) -> set[str]:
    """The addresses on which a machine takes connections."""
    said = net.execute(machine, "ss", "--listening", "--tcp", "--numeric", "--no-header").stdout
    return {line.split()[3] for line in said.splitlines()}


@pytest.mark.skipif(not STRESS, reason="minutes; FEDPRIV_STRESS=1, or make stress")
def test_a_run_between_machines_whose_parties_only_call_out(tmp_path: Path) -> None:
    if reason := why_not():
        pytest.skip(reason)
    (tmp_path / "clinics.toml").write_text(SCHEMA)
    values = federation_values(
        schema=str(tmp_path / "clinics.toml"),
        server={"address": ADDRESSES["server"], "port": PORT},
        budget={"epsilon": 1e6, "composition": "rdp"},
        policy={"min_noise": 0.0},
    )
    founded = found(parse_federation(values), tmp_path / "deployment")
    homes = dict(zip(NAMES, founded.parties, strict=True))
    for number, folder in enumerate(founded.parties):
        write_records(folder.root / "records.csv", SIZES[number], seed=number)
        rebundle(folder)
        add([folder.bundle], founded.server.root)
    experiment = tmp_path / "experiment.toml"
    experiment.write_text(to_toml({"data": {"schema": "clinics.toml"}, **EXPERIMENT}))
    with networks() as net, ExitStack() as stack:

        def fedpriv(machine: str, *words: str, proxy: str = "") -> str:
            done = net.execute(
                machine, "env", f"HTTPS_PROXY={proxy}", f"HTTP_PROXY={proxy}", FEDPRIV, *words,
                seconds=BOUND,
            )  # fmt: skip
            assert done.returncode == 0, (words, done.stdout, done.stderr)
            return done.stdout

        gate = subprocess.Popen(
            net.command("gate", sys.executable, "-m", "tests.simulations.deploy.connect_proxy",
                        "0.0.0.0", str(PROXY_PORT), str(tmp_path / "proxy.log"))  # noqa: S104
        )  # fmt: skip
        stack.callback(gate.wait, 30)
        stack.callback(gate.terminate)
        for machine, member in (("server", founded.server), *homes.items()):
            stack.callback(fedpriv, machine, "deploy", "stop", str(member.root))
        fedpriv("server", "deploy", "server", str(founded.server.root))
        assert f"*:{PORT}" in listening(net, "server") or f"0.0.0.0:{PORT}" in listening(
            net, "server"
        )
        for name, folder in homes.items():
            proxy = PROXY if name == "west" else ""
            fedpriv(name, "doctor", str(folder.root), proxy=proxy)
            fedpriv(name, "deploy", "party", str(folder.root), proxy=proxy)
        said = fedpriv("server", "deploy", "run", str(experiment), "--server",
                       str(founded.server.root))  # fmt: skip
        assert "3 parties, 1 rounds" in said

        for name, folder in homes.items():
            node = f"127.0.0.1:{read_node(folder).port}"
            wait_until(lambda name=name, node=node: node in listening(net, name), what=node)  # type: ignore[misc]
            assert {each for each in listening(net, name) if not each.startswith("127.")} == set()
        control = f"https://{SERVER}/v1/control/list-runs"
        refused = net.execute("north", sys.executable, "-c", ASK, control)
        assert refused.stdout.strip() == "403", refused
        asked = set((tmp_path / "proxy.log").read_text().splitlines())
        assert {re.sub(r" HTTP/1\.[01]$", "", line) for line in asked} == {f"CONNECT {SERVER}"}
        around = net.execute("west", sys.executable, "-c", ASK, control)
        assert "Network is unreachable" in around.stderr
