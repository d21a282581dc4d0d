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
from fedpriv.simulations.deploy.run import server as deployed_server
from fedpriv.simulations.engines.parties import grid_experiment, grid_federation
from fedpriv.simulations.refusals import refusals
from fedpriv.simulations.run import session as sessions
from fedpriv.simulations.run.files import PRIVATE, new_directory
from fedpriv.simulations.run.prepare import check, prepare

if TYPE_CHECKING:
    from collections.abc import Callable

    from flwr.app import Context

    from fedpriv.federation.federation import Federation
    from fedpriv.simulations.deploy.roster import Roster
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
    carry_on: Callable[[], object]
    if config.get("roster"):  # parties on machines of their own
        session, roster = deployed_server.open_session(config)
        carry_on = partial(_serve, session, roster, grid, context, on_round=_tell)
    else:
        session = _session(str(config["output"]), str(config["experiment"]))
        carry_on = partial(
            sessions.carry_on, session, federation=_builder(grid, session), on_round=_tell
        )
    log(INFO, "fedpriv: results in %s", session.directory.resolve())
    (session.directory / FAILURE).unlink(missing_ok=True)
    try:
        with refusals():
            carry_on()
    except (ValueError, RuntimeError) as error:
        log(ERROR, "fedpriv: %s", error)
        replace_file(session.directory / FAILURE, f"{error}\n")
        raise


def _serve(
    session: Session, roster: Roster, grid: Grid, context: Context, *, on_round: OnRound
) -> None:
    """Serve a deployed run; a server that cannot sign for it fails like one that cannot finish."""
    seal = deployed_server.seal_of(context.run_config, roster, flower=context.run_id)
    deployed_server.serve(session, roster, grid, seal=seal, on_round=on_round)


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


def _tell(record: Record, entry: Round) -> None:
    """One line a round, for whoever follows the log."""
    total = max(entry.round, record.strategy.rounds)
    loss = "" if entry.loss is None else f" loss {entry.loss:.4f}"
    log(INFO, "%s %d/%d%s", PROGRESS, entry.round, total, loss)
