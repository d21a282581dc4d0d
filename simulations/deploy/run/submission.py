"""A run: prepared in a directory of the server, handed to Flower, followed to its end."""

from __future__ import annotations

import json
import secrets
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fedpriv._toml import to_toml
from fedpriv.simulations.deploy.programs import CONNECTION, flwr
from fedpriv.simulations.deploy.run.closed import require_open
from fedpriv.simulations.deploy.run.lock import server_of
from fedpriv.simulations.engines.flower_app import PROJECT
from fedpriv.simulations.run.files import private, read_json, write_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from fedpriv.simulations.deploy.folders import ServerFolder
    from fedpriv.simulations.deploy.programs import Program
    from fedpriv.simulations.experiment.file import Experiment

_TOKEN_BYTES = 8
_ID = "flower-run.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """A run that Flower has taken.

    Attributes:
        run: Flower's number for it.
        directory: Where its results are, or will be.
    """

    run: str
    directory: Path


def new_run(experiment: Experiment, folder: ServerFolder) -> Path:
    """Check an experiment against the roster, and make the directory of its run.

    The name has a random part: who cannot read this directory cannot guess it, and a run without
    such a name is refused by the server's worker.
    """
    from fedpriv.simulations.deploy.run.server import open_session

    time = datetime.now(tz=UTC).strftime("%Y%m%d-%H%M%S")
    token = secrets.token_hex(_TOKEN_BYTES)
    directory = folder.runs / f"{time}-{experiment.config_hash[:8]}-{token}"
    open_session(_run_config(experiment, folder, directory))
    return directory


def submit(directory: Path, folder: ServerFolder) -> Submitted:
    """Hand the run of a directory to Flower: a new one, or one that was interrupted.

    Raises:
        ValueError: The run is being served, or was closed, or Flower refuses it.
    """
    require_open(directory)
    end_earlier(directory, folder)
    write_app(directory, folder)
    answer = call(submission(directory, folder))
    run = str(answer["run-id"])
    write_json(private(directory) / _ID, {"run": run})
    return Submitted(run=run, directory=directory)


def end_earlier(directory: Path, folder: ServerFolder) -> None:
    """End what Flower has of a run that is submitted again, so that it is never served twice.

    Raises:
        ValueError: Its ServerApp lives.
    """
    if (process := server_of(directory)) is not None:
        raise ValueError(
            f"the run in {str(directory)!r} goes on, as process {process}: follow it with "
            f"--attach {directory}, or end it with `fedpriv deploy stop {folder.root}`."
        )
    earlier = known_run(directory)
    if earlier is not None:
        from fedpriv.simulations.deploy.flower import control

        if control.is_open(folder, earlier.run):
            control.end_run(folder, earlier.run)


def write_app(directory: Path, folder: ServerFolder, *, job: str = "") -> None:
    """Write the Flower App of a run, or of a ``job`` on it, and its run config."""
    app = private(directory) / _app(job)
    app.mkdir(exist_ok=True)
    (app / "pyproject.toml").write_text(to_toml(PROJECT))
    values = {
        "config": (directory / "config.toml").read_text(encoding="utf-8"),
        "output": str(directory),
        "roster": str(folder.roster),
        **({"job": job} if job else {}),
    }
    (app / "run.toml").write_text(to_toml(values))


def submission(directory: Path, folder: ServerFolder, *, job: str = "") -> Program:
    """The command that gives Flower a run, or a ``job`` on it."""
    app = private(directory) / _app(job)
    return flwr(
        folder, "run", str(app), CONNECTION, "--run-config", str(app / "run.toml"),
        "--format", "json",
    )  # fmt: skip


def _app(job: str) -> str:
    return f"flower-{job}" if job else "flower"


def followed(submitted: Submitted, folder: ServerFolder) -> Program:
    """The command that shows what a run says."""
    return flwr(folder, "log", submitted.run, CONNECTION, "--stream")


def follow(
    submitted: Submitted,
    folder: ServerFolder,
    *,
    on_line: Callable[[str], None],
) -> dict[str, Any] | None:
    """Tell what the run says until it ends; its result, or None if it has none.

    Ctrl-C ends the telling, and not the run.
    """
    program = followed(submitted, folder)
    with subprocess.Popen(  # noqa: S603 - a program of this environment, no shell
        program.command,
        env=program.full_environment,
        cwd=folder.root,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            for line in process.stdout or ():
                on_line(line.rstrip())
        except KeyboardInterrupt:
            process.terminate()
            raise
    return result_of(submitted.directory)


def result_of(directory: Path) -> dict[str, Any] | None:
    """The result of a run, if it is there."""
    path = directory / "result.json"
    if not path.exists():
        return None
    result: dict[str, Any] = read_json(path)
    return result


def known_run(directory: Path) -> Submitted | None:
    """A run as it was submitted last."""
    path = private(directory) / _ID
    return Submitted(run=read_json(path)["run"], directory=directory) if path.exists() else None


def call(program: Program) -> Mapping[str, Any]:
    """Run a command of `flwr` that answers in JSON.

    Raises:
        ValueError: It failed; the message is Flower's.
    """
    done = subprocess.run(  # noqa: S603 - a program of this environment, no shell
        program.command,
        env=program.full_environment,
        cwd=program.folder.root,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    start = done.stdout.find("{")
    try:
        answer: dict[str, Any] = json.loads(done.stdout[start:])
    except ValueError:
        said = (done.stderr or done.stdout).strip()
        raise ValueError(f"`{program.command[1]}` of Flower failed: {said}") from None
    if not answer.get("success"):
        raise ValueError(f"Flower: {answer.get('error-message', answer)}")
    return answer


def _run_config(experiment: Experiment, folder: ServerFolder, directory: Path) -> dict[str, str]:
    return {
        "config": to_toml(experiment.to_dict()),
        "output": str(directory),
        "roster": str(folder.roster),
    }
