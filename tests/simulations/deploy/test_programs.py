"""What is started, by which command, and who may reach it."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
import sys
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from flwr.app import Context, RecordDict

from fedpriv._validate import require_choice
from fedpriv.simulations.deploy import processes
from fedpriv.simulations.deploy.flower.superlink import FleetOnly
from fedpriv.simulations.deploy.flower.tasks import note_failure, require_run_directory
from fedpriv.simulations.deploy.folders import Folder, party_folder, read_node, server_folder
from fedpriv.simulations.deploy.members import membership
from fedpriv.simulations.deploy.processes import Process, start, stop
from fedpriv.simulations.deploy.programs import Program, flwr, party_programs, server_programs
from fedpriv.simulations.run.files import write_json
from tests.simulations.deploy.conftest import until

if TYPE_CHECKING:
    from tests.simulations.conftest import Command
    from tests.simulations.deploy.conftest import Founder, Starter


class Recorder:
    """Stands for Popen, and remembers what it was asked to run."""

    def __init__(self) -> None:
        self.started: list[tuple[list[str], dict[str, str], Path]] = []
        self._real = subprocess.Popen

    def __call__(self, command: tuple[str, ...], **options: Any) -> Any:
        self.started.append((list(command), options["env"], options["cwd"]))
        return self._real([sys.executable, "-c", ""], stdin=subprocess.DEVNULL)


def printed(out: str) -> list[tuple[list[str], dict[str, str], Path]]:
    """The commands that --dry-run prints, as a shell would run them."""
    lines = out.splitlines()
    commands = []
    for folder, command in zip(lines[::2], lines[1::2], strict=True):
        words = shlex.split(command)
        assert words[0] == "env"
        settings = list(takewhile(lambda word: "=" in word, words[1:]))
        commands.append(
            (
                words[1 + len(settings) :],
                dict(word.split("=", 1) for word in settings),
                Path(shlex.split(folder)[1]),
            )
        )
    return commands


@pytest.mark.parametrize("role", ["server", "party"])
def test_a_dry_run_prints_exactly_what_is_executed(
    role: str, fedpriv: Command, deployment: Founder, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = deployment()
    folder = made.server if role == "server" else made.parties[1]
    shown = fedpriv("deploy", role, folder.root, "--dry-run")
    assert shown.code == 0, shown.err
    assert not folder.processes.exists()
    recorder = Recorder()
    monkeypatch.setattr(subprocess, "Popen", recorder)
    monkeypatch.setattr(membership, "wait_until_up", lambda *_args, **_options: True)
    nothing = membership.Reconciled(registered=(), unregistered=())
    monkeypatch.setattr(membership, "reconcile", lambda _folder: nothing)
    done = fedpriv("deploy", role, folder.root)
    assert done.code == 0, done.err
    promised = printed(shown.out)
    assert len(promised) == len(recorder.started) == 2
    for (words, settings, place), (command, environment, cwd) in zip(
        promised, recorder.started, strict=True
    ):
        assert words == command
        assert place == cwd == folder.root
        assert settings.items() <= environment.items()
        added = {key for key in environment if environment[key] != os.environ.get(key)}
        assert added <= settings.keys()


def test_no_command_has_a_secret_among_its_words(deployment: Founder) -> None:
    made = deployment()
    secrets = [
        path.read_bytes().hex() for path in made.root.rglob("*") if path.suffix == ".secret"
    ] + [path.read_text() for path in made.root.rglob("*.key")]
    programs = [*server_programs(made.server), *party_programs(made.parties[0])]
    for program in programs:
        for word in (*program.command, *program.environment.values()):
            assert word not in secrets


def test_nodes_never_run_code_that_was_shipped_and_nothing_is_downloaded(
    deployment: Founder,
) -> None:
    made = deployment()
    superlink, worker = server_programs(made.server)
    for command in (superlink.command, party_programs(made.parties[0])[0].command):
        assert command[command.index("--isolation") + 1] == "process"
        assert "--superexec-auth-secret-file" in command
        assert "--insecure" not in command
    assert "--disable-runtime-dependency-installation" in superlink.command
    assert "--enable-supernode-auth" in superlink.command
    assert worker.environment["FLWR_TELEMETRY_ENABLED"] == "0"
    assert Path(worker.environment["FLWR_HOME"]).is_relative_to(made.server.root)


def test_flower_reads_its_connection_from_the_members_own_home(deployment: Founder) -> None:
    made = deployment()
    program = flwr(made.server, "list")
    home = Path(program.environment["FLWR_HOME"])
    text = (home / "config.toml").read_text()
    assert str(made.server.ca) in text
    assert "insecure" not in text
    assert home.is_relative_to(made.server.root)


def request(path: str, client: tuple[str, int] | None, **headers: str) -> int:
    """The status of a request to the guarded app."""
    statuses: list[int] = []

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    async def receive() -> Any:
        return {"type": "http.request"}

    scope: dict[str, Any] = {
        "type": "http",
        "path": path,
        "client": client,
        "headers": [
            (name.replace("_", "-").encode(), text.encode()) for name, text in headers.items()
        ],
        "method": "POST",
    }
    asyncio.run(FleetOnly(app)(scope, receive, send))
    return statuses[0]


@pytest.mark.parametrize(
    "path", ["/v1/control/start-run", "/v1/control/register-node", "/v1/runtime/acquire-task"]
)
def test_other_machines_reach_nothing_but_the_part_for_nodes(path: str) -> None:
    outside = [("10.0.0.7", 5), ("::ffff:10.0.0.7", 5), ("fe80::1", 5), ("somewhere", 5), None]
    assert {request(path, client) for client in outside} == {403}
    assert request(path, ("127.0.0.1", 5)) == request(path, ("::1", 5)) == 200
    assert request("/v1/fleet/pull-messages", ("10.0.0.7", 5)) == 200
    assert request("/v1/fleetcontrol", ("10.0.0.7", 5)) == 403
    assert request("/docs", ("10.0.0.7", 5)) == 403


def test_who_asks_whether_it_is_up_sends_no_body() -> None:
    """Nobody has signed it, and what bodies take of the memory is what nodes do not get."""
    outside = ("10.0.0.7", 5)
    assert request("/health", outside) == request("/health", outside, content_length="0") == 200
    for client in (outside, ("127.0.0.1", 5)):
        assert request("/health", client, content_length="1") == 403
        assert request("/health", client, transfer_encoding="chunked") == 403


def context_with(output: str) -> Context:
    return Context(
        run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config={"output": output}
    )


def test_the_server_carries_out_only_runs_that_were_prepared_beside_it(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    (runs / "good").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (runs / "link").symlink_to(tmp_path / "elsewhere")
    require_run_directory(context_with(str(runs / "good")), runs)
    for bad in ("", ".", str(runs), str(runs / "absent"), str(tmp_path / "elsewhere"),
                str(runs / "link"), str(runs / "good" / ".." / ".." / "elsewhere")):  # fmt: skip
        with pytest.raises(ValueError, match="was not prepared on this server"):
            require_run_directory(context_with(bad), runs)
    with pytest.raises(ValueError, match="was not prepared"):
        require_run_directory(context_with(str(runs / "good")), None)


def sleeper(folder: Folder, code: str = "import time; time.sleep(60)") -> Program:
    return Program(name="sleeper", command=(sys.executable, "-c", code), folder=folder)


def alive(process: Process) -> bool:
    return process.alive


def test_a_process_is_started_once_and_ended_by_its_id(tmp_path: Path, running: Starter) -> None:
    folder = Folder(tmp_path)
    running((sleeper(folder),))
    (process,) = processes.processes(folder)
    assert alive(process)
    with pytest.raises(ValueError, match="runs already"):
        start(sleeper(folder))
    assert stop(folder) == (process,)
    assert not alive(process)
    assert processes.processes(folder) == ()
    assert stop(folder) == ()


def test_a_later_process_with_the_same_id_is_not_taken_for_ours(tmp_path: Path) -> None:
    mine = Process(name="x", pid=os.getpid(), started="another time")
    assert not mine.alive
    folder = Folder(tmp_path)
    folder.processes.mkdir()
    write_json(folder.processes / "x.pid", {"pid": os.getpid(), "started": "0"})
    assert stop(folder) == ()  # and this test is still there to say so


def test_a_process_that_ignores_the_request_to_end_is_killed(
    tmp_path: Path, running: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_GRACE_SECONDS", 1.0)
    folder, ready = Folder(tmp_path), tmp_path / "ready"
    deaf = (
        "import signal, time, pathlib; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        f"pathlib.Path({str(ready)!r}).touch(); time.sleep(60)"
    )
    running((sleeper(folder, deaf),))
    assert until(ready.exists)
    (process,) = stop(folder)
    assert not process.alive


def test_the_log_keeps_what_a_process_said_before_it_ended(
    tmp_path: Path, running: Starter
) -> None:
    folder = Folder(tmp_path)
    running((sleeper(folder, "print('port in use')"),))
    (process,) = processes.processes(folder)
    assert until(lambda: not process.alive)
    assert "port in use" in processes.tail(folder, "sleeper")


def test_staying_in_the_foreground_ends_with_the_first_process_and_ends_the_others(
    fedpriv: Command, deployment: Founder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = deployment().parties[0]
    short = Program(name="short", command=(sys.executable, "-c", "print('no key')"), folder=folder)
    programs = (sleeper(folder), short)
    monkeypatch.setattr(
        "fedpriv.simulations.deploy.programs.party_programs", lambda _folder: programs
    )
    before = signal.getsignal(signal.SIGTERM)
    try:
        done = fedpriv("deploy", "party", folder.root, "--foreground")
    finally:
        signal.signal(signal.SIGTERM, before)
    assert done.code == 2
    assert "short ended: no key" in done.message
    assert processes.processes(folder) == ()


def test_a_directory_of_the_wrong_kind_is_named(deployment: Founder, tmp_path: Path) -> None:
    made = deployment()
    with pytest.raises(ValueError, match="is no server's directory"):
        server_folder(made.parties[0].root)
    with pytest.raises(ValueError, match="is no party's directory"):
        party_folder(made.server.root)
    assert server_folder(made.root) == made.server
    assert party_folder(made.parties[0].policy) == made.parties[0]
    made.parties[0].node.write_text('server = "nowhere"\nport = 1\n')
    with pytest.raises(ValueError, match="server must be 'host:port'"):
        read_node(made.parties[0])


def test_status_of_a_member_that_is_down_is_a_failure(
    fedpriv: Command, deployment: Founder
) -> None:
    made = deployment()
    for folder in (made.server, made.parties[0]):
        done = fedpriv("deploy", "status", folder.root)
        assert done.code == 1
        assert "none was started" in done.out


def test_a_run_needs_an_experiment_that_fits_the_federation(
    fedpriv: Command, deployment: Founder, tmp_path: Path
) -> None:
    made = deployment()
    (tmp_path / "bad.toml").write_text(
        '[data]\nname = "digits"\n[strategy]\nname = "gradient-perturbation"\n'
    )
    done = fedpriv("deploy", "run", tmp_path / "bad.toml", "--server", made.server.root)
    assert done.code == 2
    assert "engine" in done.message
    assert list(made.server.runs.iterdir()) == []
    done = fedpriv("deploy", "run", "--server", made.server.root)
    assert done.code == 2


def test_a_server_does_not_fill_a_partys_log(capsys: pytest.CaptureFixture[str]) -> None:
    """An error may quote what it was sent: an experiment of a hundred megabytes, for example."""
    try:
        require_choice(["known"], name="x" * 10**6)
    except ValueError:
        note_failure()
    said = capsys.readouterr().err
    assert said.rstrip().endswith("xxx'.")
    assert len(said) < 11_000
