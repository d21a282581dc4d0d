"""A run with a party in a container's walls and one behind a proxy: real processes, TLS, node keys.

There need be no container engine: see `tests.simulations.deploy.containers`.
"""

from __future__ import annotations

import json
import os
import re
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest

from fedpriv.simulations.deploy.federation import parse_federation, read_federation
from fedpriv.simulations.deploy.founding import found, rebundle
from fedpriv.simulations.deploy.health import reach
from fedpriv.simulations.deploy.members.changes import add
from fedpriv.simulations.deploy.members.membership import reconcile, wait_until_up
from fedpriv.simulations.deploy.processes import start, stop
from fedpriv.simulations.deploy.programs import party_programs
from fedpriv.simulations.server_app import FAILURE
from tests.simulations.deploy import containers, fates
from tests.simulations.deploy.conftest import (
    SCHEMA,
    SIZES,
    federation_values,
    write_records,
)
from tests.simulations.deploy.connect_proxy import ConnectProxy, serving
from tests.simulations.deploy.nursery import Nursery
from tests.simulations.deploy.standing import BOUND, Standing, superlink, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulations.deploy.containers import Container


@dataclass(frozen=True, kw_only=True)
class Delivered:
    """A federation of three: north in a container, south behind a proxy, west as usual."""

    live: Standing
    container: Container
    proxy: ConnectProxy


@pytest.fixture(scope="module")
def delivered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Delivered]:
    if os.environ.get("FEDPRIV_STRESS") != "1":
        pytest.skip("minutes; FEDPRIV_STRESS=1, or make stress")
    if reason := containers.why_not():
        pytest.skip(reason)
    root = tmp_path_factory.mktemp("delivery")
    (root / "clinics.toml").write_text(SCHEMA)
    values = federation_values(
        schema=str(root / "clinics.toml"),
        budget={"epsilon": 1e6, "composition": "rdp"},
        policy={"min_noise": 0.0},
    )
    founded = found(parse_federation(values), root / "deployment")
    for number, folder in enumerate(founded.parties):
        write_records(folder.root / "records.csv", SIZES[number], seed=number)
        rebundle(folder)
        add([folder.bundle], founded.server.root)
    north, south, west = founded.parties
    with ExitStack() as stack:
        nursery = Nursery()
        stack.callback(nursery.close)
        for member in (founded.server, south, west):
            stack.callback(stop, member)
        live = Standing(root=root, server=founded.server, parties=founded.parties, nursery=nursery)
        live.start(live.server)
        assert wait_until_up(live.server, superlink(live.server), seconds=BOUND)
        reconcile(live.server)
        fates.patience(live.server.root, attempts=3, seconds=60.0)
        proxy = stack.enter_context(serving(root / "proxy.log"))
        with patch.dict(os.environ, {"HTTPS_PROXY": proxy.address, "HTTP_PROXY": proxy.address}):
            for program in party_programs(south):
                start(program)
        live.start(west)
        container = stack.enter_context(containers.contained("party", north.root))
        yield Delivered(live=live, container=container, proxy=proxy)


def test_a_run_with_a_contained_party_and_one_behind_a_proxy(delivered: Delivered) -> None:
    """And nothing but the way to the server goes through the proxy: no word to a worker does."""
    live = delivered.live
    submitted = live.begin(live.written("clinics"))
    result = live.end(submitted.directory)
    assert result is not None, (submitted.directory / FAILURE).read_text()
    port = read_federation(live.server.federation).server.port
    assert set(delivered.proxy.asked) == {f"CONNECT 127.0.0.1:{port} HTTP/1.1"}
    assert [len(live.reserved(folder)) for folder in live.parties] == [1, 1, 1]


def test_the_health_of_a_container_is_the_status_of_its_member(delivered: Delivered) -> None:
    container, check = delivered.container, containers.health_check()
    wait_until(lambda: container.execute(*check).returncode == 0, what="a healthy container")
    assert check[-1] == containers.MEMBER
    assert container.execute(*check[:-1], "/etc").returncode != 0


def test_a_contained_party_can_write_to_its_directory_and_to_nothing_else(
    delivered: Delivered,
) -> None:
    """An engine gives a container a /dev/shm in memory, as bubblewrap does; nothing there lasts."""
    container, (north, *_) = delivered.container, delivered.live.parties
    for place in ("/", "/tmp", "/var/tmp", "/etc", "/opt", str(delivered.live.root)):  # noqa: S108
        tried = container.execute("touch", f"{place}/written")
        assert "Read-only file system" in tried.stderr, (place, tried)
    assert container.execute("touch", "/member/written").returncode == 0
    assert (north.root / "written").exists()
    said = container.execute("cat", "/member/processes/worker.pid", "/member/processes/worker.log")
    worker = json.loads(said.stdout.partition("}")[0] + "}")["pid"]
    status = container.execute("cat", f"/proc/{worker}/status").stdout
    facts = dict(re.findall(r"^(Uid|CapEff|CapBnd|NoNewPrivs):\s+(\w+)", status, re.MULTILINE))
    assert facts == {"Uid": "10001", "CapEff": "0" * 16, "CapBnd": "0" * 16, "NoNewPrivs": "1"}


def test_doctor_goes_the_way_that_the_node_goes(
    delivered: Delivered, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, south, west = delivered.live.parties
    monkeypatch.setenv("HTTPS_PROXY", delivered.proxy.address)
    before = len(delivered.proxy.asked)
    served = reach.served_certificate(south)
    assert abs(reach.clock_skew(south)) < reach.MOST_AHEAD
    assert len(delivered.proxy.asked) == before + 2
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    assert reach.served_certificate(west) == served
    assert len(delivered.proxy.asked) == before + 2


def test_a_container_ends_when_a_process_of_its_member_does(delivered: Delivered) -> None:
    """The engine starts it again. The last test: the party is gone then."""
    container = delivered.container
    said = container.execute("cat", "/member/processes/worker.pid")
    container.execute("kill", "-KILL", str(json.loads(said.stdout)["pid"]))
    assert container.process.wait(timeout=BOUND) != 0
