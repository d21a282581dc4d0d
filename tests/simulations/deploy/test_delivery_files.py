"""Dockerfile, compose file, units and log rotation: what they promise is in them.

That a member lives with it is shown with real processes, in `test_real_delivery`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from configparser import ConfigParser
from fnmatch import fnmatch
from grp import getgrgid
from pathlib import Path
from pwd import getpwuid
from typing import TYPE_CHECKING

import pytest

from fedpriv.simulations.deploy.folders import Folder, PartyFolder, ServerFolder
from fedpriv.simulations.deploy.health import reach
from fedpriv.simulations.deploy.health.checks import Fault
from fedpriv.simulations.deploy.logs import MOST_BYTES, rotate, rotated
from fedpriv.simulations.deploy.programs import flwr, party_programs, server_programs
from fedpriv.simulations.deploy.templates import unit
from tests.simulations.deploy.connect_proxy import serving
from tests.simulations.deploy.containers import (
    MEMBER,
    ROOT,
    environment,
    final_stage,
    health_check,
    instructions,
    service,
)
from tests.simulations.deploy.standing import wait_until

if TYPE_CHECKING:
    from tests.simulations.deploy.conftest import Founder

SECRETS = ("node.key", "identity.key", "server.key", "worker.secret", "north.ledger", "a.backup")


# The image.


def test_the_image_runs_as_nobody_in_particular_and_writes_to_one_place() -> None:
    stage = dict(final_stage())
    assert int(stage["USER"].partition(":")[0]) >= 1000
    assert list(stage)[-4:] == ["USER", "HEALTHCHECK", "ENTRYPOINT", "CMD"]
    assert "VOLUME" not in stage
    places = [value for value in environment().values() if value.startswith("/")]
    assert len(places) == 3
    assert all(place.startswith(MEMBER) for place in places)
    assert health_check() == ["fedpriv", "deploy", "status", MEMBER]


def test_the_image_has_the_tested_versions_and_nothing_that_is_not_named() -> None:
    found = instructions()
    (constrained,) = {re.search(r"PIP_CONSTRAINT=(\S+)", rest) for word, rest in found
                      if word == "ENV" and "PIP_CONSTRAINT" in rest}  # fmt: skip
    assert constrained is not None
    assert constrained[1] == "/src/constraints.txt"
    copied = {
        name
        for word, rest in found
        if word == "COPY" and not rest.startswith("--from=build")
        for name in rest.split()[:-1]
    }
    allowed = ignored_but()
    assert copied == set(allowed)
    assert all((ROOT / name).exists() for name in copied)
    assert not any(word in ("ADD", "VOLUME") for word, _ in found)


def ignored_but() -> list[str]:
    """What the build sees, if the first line of .dockerignore hides everything."""
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] != "#"]
    assert lines[0] == "*"
    return [line[1:] for line in lines if line.startswith("!")]


@pytest.mark.parametrize("name", SECRETS)
def test_no_secret_that_lies_in_the_sources_enters_a_layer(name: str) -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    hidden = [line.removeprefix("**/") for line in lines if line.startswith("**/")]
    assert any(fnmatch(name, pattern) for pattern in hidden)


# The services.


@pytest.mark.parametrize("name", ["party", "server"])
def test_a_service_has_no_rights_and_one_directory(name: str) -> None:
    found = service(name)
    assert found["read_only"] is True
    assert found["cap_drop"] == ["ALL"]
    assert "cap_add" not in found
    assert found["security_opt"] == ["no-new-privileges:true"]
    assert not found["user"].startswith(("0", "root"))
    (volume,) = found["volumes"]
    assert (volume["type"], volume["target"]) == ("bind", MEMBER)
    assert volume["bind"]["create_host_path"] is False
    assert found["command"] == ["deploy", name, MEMBER, "--foreground"]
    assert set(found["logging"]["options"]) == {"max-size", "max-file"}
    assert found["profiles"] == [name]
    assert not {"privileged", "pid", "ipc", "devices", "network_mode", "env_file"} & found.keys()
    assert set(found.get("environment", {})) <= {"HTTPS_PROXY", "NO_PROXY"}


def test_only_the_server_publishes_a_port() -> None:
    assert not {"ports", "expose"} & service("party").keys()
    assert len(service("server")["ports"]) == 1


# The units.

MEMBERS: dict[str, PartyFolder | ServerFolder] = {
    "party": PartyFolder(Path("/srv/north")),
    "server": ServerFolder(Path("/srv/clinics/server")),
}


@pytest.mark.parametrize("role", ["party", "server"])
def test_the_commands_in_a_unit_name_the_unit(role: str) -> None:
    text, folder = unit(role, MEMBERS[role]), MEMBERS[role]
    assert f"cp {folder.unit.name} /etc/systemd/system/" in text
    assert f"systemctl enable --now {folder.unit.stem}\n" in text
    parsed = ConfigParser(interpolation=None, strict=False, delimiters=("=",))
    parsed.read_string(text)
    service = parsed["Service"]
    assert service["ReadWritePaths"] == str(folder.root)
    assert service["ProtectSystem"] == "strict"
    assert service["NoNewPrivileges"] == "yes"
    assert service["CapabilityBoundingSet"] == ""
    assert service["ExecStart"].endswith(f"deploy {role} {folder.root} --foreground")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("role", ["party", "server"])
def test_systemd_understands_a_unit_and_finds_little_exposed(role: str, tmp_path: Path) -> None:
    path = tmp_path / MEMBERS[role].unit.name
    path.write_text(unit(role, MEMBERS[role]))
    for words in (("verify", "--man=no"), ("security", "--offline=true", "--threshold=20")):
        done = subprocess.run(
            ["systemd-analyze", *words, str(path)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert words[0] != "verify" or not done.stderr


# Logs.


def test_a_log_is_cut_before_it_fills_the_disk_and_goes_on(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.processes.mkdir()
    path = folder.processes / "worker.log"
    with path.open("ab", buffering=0) as log:  # as a process has it, all the time
        for letter in b"abcdef":
            log.write(bytes([letter]) * 11)
            rotate(folder, most=10, kept=2)
        log.write(b"now")
        rotate(folder, most=10, kept=2)
    kept = {each.name: each.read_bytes() for each in folder.processes.iterdir()}
    assert kept == {"worker.log": b"now", "worker.log.1": b"f" * 11, "worker.log.2": b"e" * 11}


def test_who_stays_in_the_foreground_looks_at_its_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Folder(tmp_path)
    folder.processes.mkdir()
    log = folder.processes / "worker.log"
    log.write_bytes(b"x" * (MOST_BYTES + 1))
    monkeypatch.setattr("fedpriv.simulations.deploy.logs._SECONDS", 0.01)
    with rotated(folder):
        wait_until(lambda: log.stat().st_size == 0, what="rotation")
    assert (folder.processes / "worker.log.1").stat().st_size == MOST_BYTES + 1


@pytest.mark.skipif(shutil.which("logrotate") is None, reason="logrotate is not installed")
def test_logrotate_cuts_a_log_that_is_being_written(tmp_path: Path) -> None:
    """The file as it is, but for whose logs it is about, and where they are."""
    text = (ROOT / "deployment" / "logrotate.conf").read_text()
    user, group = getpwuid(os.getuid()).pw_name, getgrgid(os.getgid()).gr_name
    own = text.replace("su fedpriv fedpriv", f"su {user} {group}").replace("/srv", str(tmp_path))
    (tmp_path / "conf").write_text(own.replace("size 10M", "size 10"))
    (tmp_path / "conf").chmod(0o644)
    processes = Folder(tmp_path / "north").processes
    processes.mkdir(parents=True)
    with (processes / "worker.log").open("ab", buffering=0) as log:
        log.write(b"x" * 11)
        subprocess.run(
            ["logrotate", "--state", str(tmp_path / "state"), str(tmp_path / "conf")], check=True
        )
        log.write(b"now")
    assert (processes / "worker.log").read_bytes() == b"now"
    assert (processes / "worker.log.1").read_bytes() == b"x" * 11


# The proxy.


def test_only_a_node_may_be_led_through_a_proxy(deployment: Founder) -> None:
    """What a worker says to its node is for nobody else, whatever the environment says."""
    members = deployment()
    node, worker = party_programs(members.parties[0])
    assert not {"NO_PROXY", "no_proxy"} & node.environment.keys()
    for program in (worker, *server_programs(members.server), flwr(members.server, "ls")):
        assert (program.environment["NO_PROXY"], program.environment["no_proxy"]) == ("*", "*")


def test_a_proxy_that_refuses_or_cannot_be_asked_is_named(
    deployment: Founder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    party = deployment().parties[0]
    with serving(tmp_path / "proxy.log") as proxy:
        user = proxy.address.replace("//", "//user:pass%20word@")
        monkeypatch.setenv("HTTPS_PROXY", user)
        with pytest.raises(Fault, match=r"cannot be reached: Tunnel connection failed: 502"):
            reach.served_certificate(party)
    monkeypatch.setenv("HTTPS_PROXY", "socks5://localhost:1080")
    with pytest.raises(Fault, match="is a socks5 one"):
        reach.clock_skew(party)
