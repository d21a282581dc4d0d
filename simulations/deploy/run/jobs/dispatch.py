"""Jobs of the ServerApp beside training: attest, hand over, cancel; the run config says which.

A job is a run of Flower's on the directory of a run that was made before. It asks every party that
is there, once, and leaves what came of it in private/JOB-report.json.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpriv._validate import require_choice
from fedpriv.federation.engines.courier import Patience
from fedpriv.simulations.deploy.members.roster import read_roster
from fedpriv.simulations.deploy.run.jobs import cancelling
from fedpriv.simulations.deploy.run.jobs.attestation import collect, signed_by_server
from fedpriv.simulations.deploy.run.jobs.errands import PATIENCE
from fedpriv.simulations.deploy.run.jobs.handover import hand_over
from fedpriv.simulations.deploy.run.jobs.statement_file import read_statement
from fedpriv.simulations.run.files import PRIVATE, private, write_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flwr.serverapp import Grid

    from fedpriv.federation.engines.seals import ServerSeal
    from fedpriv.privacy.statement.signed import SignedStatement

_BRIEF = Patience(arrival=1.0, reply=30.0, poll=0.2)  # a run waits for it

JOBS = ("attest", "handover", "cancel")
Words = dict[str, str]
"""For every party, what came of it."""


def carry_out(
    run_config: Mapping[str, Any], grid: Grid, *, seal: ServerSeal, patience: Patience = PATIENCE
) -> Words:
    """Do the job that a run config names; what came of it, for each party.

    Args:
        run_config: As of a run, with ``job``.
        grid: Flower's.
        seal: Signs requests, checks replies and knows which party a node is.
        patience: How long to wait.

    Raises:
        ValueError: There is no such job, or the run is not in a state for it.
    """
    job, directory = str(run_config["job"]), Path(str(run_config["output"]))
    require_choice(JOBS, job=job)
    place = Path(str(run_config["roster"]))
    names = read_roster(place).names
    if job == "cancel":
        words = cancelling.tell(directory, grid, names=names, seal=seal, patience=patience)
    else:
        began = read_roster(directory / PRIVATE / place.name)
        signed = signed_by_server(directory, began, seal.key)
        # Who came later had no part in it: it is not asked, and not waited for.
        later = [number for number, name in enumerate(names) if name not in began.names]
        task = partial(collect if job == "attest" else _signed_and_handed, signed, directory, grid)
        words = task(names=names, seal=seal, patience=patience, spared=later)
        words = {name: said for name, said in words.items() if name in began.names}
    write_json(report_of(directory, job), words)
    return words


def _signed_and_handed(signed: SignedStatement, directory: Path, grid: Grid, **how: Any) -> Words:
    """Who was away when the run ended signs before it gets the model."""
    collect(signed, directory, grid, **how)
    return hand_over(read_statement(directory), directory, grid, **how)


def tell_cancelled(
    runs: Path,
    grid: Grid,
    *,
    names: tuple[str, ...],
    seal: ServerSeal,
    patience: Patience = _BRIEF,
) -> None:
    """Before a run begins: tell who has come back since of the runs that were cancelled."""
    for directory in cancelling.untold(runs, names):
        cancelling.tell(directory, grid, names=names, seal=seal, patience=patience)


def report_of(directory: Path, job: str) -> Path:
    """Where a job leaves what came of it."""
    return private(directory) / f"{job}-report.json"
