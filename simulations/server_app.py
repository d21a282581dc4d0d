"""The ServerApp of fedpriv: one run of one experiment, on the nodes of a Flower grid."""

from __future__ import annotations

from functools import partial
from logging import ERROR, INFO
from pathlib import Path
from typing import TYPE_CHECKING

from flwr.serverapp import Grid, ServerApp
from flwr.supercore import log

from fedpriv._durable import replace_file
from fedpriv.federation.engines.courier import Patience
from fedpriv.federation.engines.grid import RoundFailed
from fedpriv.simulations.deploy.folders import ServerFolder
from fedpriv.simulations.deploy.members.roster import read_roster
from fedpriv.simulations.deploy.run import server as deployed_server
from fedpriv.simulations.deploy.run.jobs import dispatch as jobs
from fedpriv.simulations.deploy.run.jobs import evaluation
from fedpriv.simulations.deploy.run.lock import served
from fedpriv.simulations.deploy.run.presence import WatchedGrid, node_names
from fedpriv.simulations.engines.parties import grid_experiment, grid_federation
from fedpriv.simulations.refusals import refusals
from fedpriv.simulations.run import session as sessions
from fedpriv.simulations.run.files import PRIVATE, new_directory
from fedpriv.simulations.run.prepare import check, prepare

if TYPE_CHECKING:
    from collections.abc import Callable

    from flwr.app import Context
    from flwr.app.user_config import UserConfig

    from fedpriv.federation.federation import Federation
    from fedpriv.simulations.deploy.members.roster import Roster
    from fedpriv.simulations.run.history import Record, Round
    from fedpriv.simulations.run.session import Session

    OnRound = Callable[[Record, Round], None]

PROGRESS = "fedpriv-progress"
"""How a line of the log that tells about progress begins."""
FAILURE = f"{PRIVATE}/failure.txt"
"""Where the reason is found if there is no result."""

_PATIENCE = Patience(arrival=30.0, reply=600.0, poll=0.02)

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the experiment that the run config names, and leave its results in a directory."""
    config = context.run_config
    if config.get("roster"):  # parties on machines of their own
        with served(Path(str(config["output"]))):  # before anything of the run is read
            if config.get("job"):
                _do_job(grid, context)
                return
            session, roster = _opened(config)
            folder = ServerFolder(Path(str(config["roster"])).parent)
            grid = WatchedGrid(grid, directory=session.directory, names=node_names(folder))
            tell = partial(_tell, missing=grid.missing)
            _to_its_end(session, partial(_serve, session, roster, grid, context, tell))
    else:
        session = _session(str(config.get("output", "")), str(config.get("experiment", "")))
        build = _builder(grid, session)
        _to_its_end(session, partial(sessions.carry_on, session, federation=build, on_round=_tell))


def _to_its_end(session: Session, carry_on: Callable[[], object]) -> None:
    """Carry on with a run; if it fails, leave the reason in its directory."""
    log(INFO, "fedpriv: results in %s", session.directory.resolve())
    (session.directory / FAILURE).unlink(missing_ok=True)
    try:
        with refusals():
            carry_on()
    except Exception as error:
        _leave_reason(session.directory, error)
        raise


def _serve(
    session: Session,
    roster: Roster,
    grid: Grid,
    context: Context,
    tell: Callable[[Record, Round], None],
) -> None:
    """Train, and have the statement signed by whoever is there at the end."""
    seal = deployed_server.seal_of(context.run_config, roster, flower=context.run_id)
    jobs.tell_cancelled(session.directory.parent, grid, names=roster.names, seal=seal)
    if deployed_server.serve(session, roster, grid, seal=seal, on_round=tell) is not None:
        try:
            jobs.carry_out({**context.run_config, "job": "attest"}, grid, seal=seal)
        except (ValueError, RuntimeError, OSError) as error:  # the result is there all the same
            log(ERROR, "fedpriv: not signed: %s Do it with `fedpriv deploy attest`.", error)


def _do_job(grid: Grid, context: Context) -> None:
    """Carry out what is no training."""
    config = context.run_config
    roster = read_roster(Path(str(config["roster"])))
    seal = deployed_server.seal_of(config, roster, flower=context.run_id)
    try:
        with refusals():
            job = evaluation if config["job"] == evaluation.JOB else jobs
            job.carry_out(config, grid, seal=seal)
    except (ValueError, RuntimeError) as error:
        log(ERROR, "fedpriv: %s", error)
        raise


def _opened(config: UserConfig) -> tuple[Session, Roster]:
    """The deployed run of a run config; if it cannot be opened, the reason is in its directory."""
    try:
        return deployed_server.open_session(config)
    except Exception as error:
        _leave_reason(Path(str(config["output"])), error)
        raise


def _leave_reason(directory: Path, error: Exception) -> None:
    """Say why there is no result, for whoever did not wait for it."""
    reason = str(error) or type(error).__name__
    log(ERROR, "fedpriv: %s", reason)
    replace_file(directory / FAILURE, f"{reason}\n")


def _session(output: str, experiment: str) -> Session:
    """The run that `fedpriv run` started, or a new one."""
    if output:
        return sessions.reopen(Path(output))
    prepared = prepare(grid_experiment(experiment))
    strategy = check(prepared)
    directory = new_directory(prepared.experiment.name, prepared.experiment.config_hash)
    return sessions.start(prepared, directory, strategy=strategy)


def _builder(grid: Grid, session: Session) -> Callable[[int, int], Federation]:
    def build(rounds: int, done: int) -> Federation:
        nodes, parties = len(list(grid.get_node_ids())), session.prepared.task.parties
        if nodes != parties:
            raise RoundFailed(
                f"the experiment has {parties} parties and Flower started {nodes} nodes: run it "
                f'with --federation-config "num-supernodes={parties}".'
            )
        return grid_federation(grid, session.prepared, rounds=rounds, done=done, patience=_PATIENCE)

    return build


def _tell(
    record: Record, entry: Round, *, missing: Callable[[], tuple[str, ...]] = lambda: ()
) -> None:
    """One line a round, for whoever follows the log; it names who was not heard in it."""
    total = max(entry.round, record.strategy.rounds)
    loss = "" if entry.loss is None else f" loss {entry.loss:.4f}"
    absent = ", ".join(missing())
    without = f" without {absent}" if absent else ""
    log(INFO, "%s %d/%d%s%s", PROGRESS, entry.round, total, loss, without)
