"""Jobs handed to Flower: submitted, followed to their end, and what came of them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from fedpriv.simulations.deploy.flower import control
from fedpriv.simulations.deploy.members.membership import is_up
from fedpriv.simulations.deploy.run.jobs.dispatch import report_of
from fedpriv.simulations.deploy.run.lock import server_of
from fedpriv.simulations.deploy.run.submission import (
    Submitted,
    call,
    follow,
    known_run,
    submission,
    write_app,
)
from fedpriv.simulations.run.files import read_json

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fedpriv.simulations.deploy.folders import ServerFolder

_END_SECONDS, _LOOK_SECONDS = 60.0, 0.2


def done(
    job: str, directory: Path, folder: ServerFolder, *, on_line: Callable[[str], None]
) -> dict[str, str]:
    """Have a job done, and wait for its end; what came of it, for each party.

    Raises:
        ValueError: The run is being served, Flower refuses the job, or it failed.
    """
    if (process := server_of(directory)) is not None:
        raise ValueError(f"the run in {str(directory)!r} goes on, as process {process}.")
    report = report_of(directory, job)
    report.unlink(missing_ok=True)
    write_app(directory, folder, job=job)
    answer = call(submission(directory, folder, job=job))
    follow(Submitted(run=str(answer["run-id"]), directory=directory), folder, on_line=on_line)
    if not report.exists():
        raise ValueError(f"{job} failed: the log above says why. Do it again.")
    words: dict[str, str] = read_json(report)
    return words


def end_run(directory: Path, folder: ServerFolder) -> None:
    """End what Flower has of a run, and wait until nobody serves it.

    Raises:
        ValueError: The server is not up, or the run does not end.
    """
    if not is_up(folder):
        raise ValueError(
            f"the run in {str(directory)!r} is cancelled, and the server is not up: start it, and "
            "cancel again to tell the parties. Otherwise the next run tells them."
        )
    run = known_run(directory)
    if run is not None and control.is_open(folder, run.run):
        control.end_run(folder, run.run)
    deadline = time.monotonic() + _END_SECONDS
    while (process := server_of(directory)) is not None:
        if time.monotonic() > deadline:
            raise ValueError(
                f"the run is cancelled, and process {process} still serves it: end that with "
                f"`fedpriv deploy stop {folder.root}`, start the server again, and cancel again."
            )
        time.sleep(_LOOK_SECONDS)
