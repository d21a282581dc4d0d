"""The server of a deployed run: started, killed, taken up again, finished.

What is needed to go on is on the disk before it is used: the ledger has every release before the
model moves, the run directory a checkpoint of every round. A release that the ledger holds is
replayed, and never drawn again; a round that was asked for and not released is asked for again, and
every party gives the same answer.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fedpriv._toml import parse_toml
from fedpriv.federation.engines.courier import Patience
from fedpriv.federation.engines.grid import GridFederation, RoundFailed
from fedpriv.federation.strategy.adaptive import AdaptiveStrategy
from fedpriv.privacy.ledger import create_if_first
from fedpriv.simulations.deploy.roster import read_roster, write_roster
from fedpriv.simulations.deploy.run.closed import require_open
from fedpriv.simulations.deploy.run.public_facts import prepare_deployed
from fedpriv.simulations.engines.parties import protection
from fedpriv.simulations.experiment.file import parse_experiment
from fedpriv.simulations.run import session as sessions
from fedpriv.simulations.run.files import PRIVATE, private, read_json
from fedpriv.simulations.run.ledgers import make_ledger, own_ledger
from fedpriv.simulations.run.prepare import check
from fedpriv.simulations.run.release_rules import require_releasable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from flwr.serverapp import Grid

    from fedpriv.federation.federation import Federation, Sum
    from fedpriv.federation.queries.kinds import Query
    from fedpriv.federation.strategy.base import SumStrategy
    from fedpriv.simulations.deploy.roster import Roster
    from fedpriv.simulations.run.history import Record, Round
    from fedpriv.simulations.run.prepare import Prepared
    from fedpriv.simulations.run.session import Session

PATIENCE = Patience(arrival=300.0, reply=120.0, poll=0.2)
_ATTEMPTS = 3


class DeployedFederation(GridFederation):
    """Parties that may be away for a while: a sum that fails is asked for again.

    That costs nothing: a party gives the same answer to the same query, from its own journal. First
    whoever was silent is waited for: a party that is restarted takes a moment to be there again.
    """

    def sum(self, query: Query) -> Sum:
        """The sum over the parties that answered, at one of a few attempts."""
        for _ in range(_ATTEMPTS - 1):
            try:
                return super().sum(query)
            except RoundFailed:
                self.recall()
        return super().sum(query)


def open_session(run_config: Mapping[str, Any]) -> tuple[Session, Roster]:
    """The run that a run config names: taken up where it was left, or a new one.

    ``config`` is the text of the experiment, ``roster`` the path of the roster, ``output`` the
    directory of the run. Its ledger lies beside the roster, under the name of the data; the first
    run on these parties makes it, with its own budget.
    """
    place = Path(str(run_config["roster"]))
    roster, output = read_roster(place), Path(str(run_config["output"]))
    experiment = parse_experiment(parse_toml(str(run_config["config"]), "experiment"))
    ledger = place.parent.resolve() / f"{experiment.data.title}.ledger"
    preparing = partial(prepare_deployed, sizes=roster.sizes)
    kept = output / PRIVATE / place.name
    if sessions.started(output):
        require_open(output)
        _require_same(kept, roster)
        session = sessions.reopen(
            output, expected=experiment, release=True, ledger=ledger, preparing=preparing
        )
        return session, roster
    prepared = preparing(experiment)
    strategy = _deployable(prepared)
    create_if_first(
        ledger,
        used_by=_earlier_run(output.parent, ledger),
        create=partial(make_ledger, ledger, prepared.experiment, strategy.plan),
    )
    private(output)  # made with the first thing that is in it
    write_roster(kept, roster)
    session = sessions.start(prepared, output, strategy=strategy, release=True, ledger=ledger)
    return session, roster


def serve(
    session: Session,
    roster: Roster,
    grid: Grid,
    *,
    patience: Patience = PATIENCE,
    on_round: Callable[[Record, Round], None] = lambda _record, _round: None,
) -> dict[str, Any] | None:
    """Carry on the run over the nodes of a grid until its result is there."""

    def federation(rounds: int, _done: int) -> Federation:
        return DeployedFederation(
            grid,
            task=session.prepared.task,
            protection=protection(session.prepared.experiment),
            roster=roster.identities,
            patience=patience,
            pipelined=rounds > 1,
        )

    with own_ledger(session) as ledger:
        return sessions.carry_on(session, ledger=ledger, federation=federation, on_round=on_round)


def _require_same(path: Path, roster: Roster) -> None:
    """Refuse to go on with other parties, or other numbers of records, than a run began with."""
    if read_roster(path) != roster:
        raise ValueError(
            f"the roster was changed since the run in {str(path.parents[1])!r} started, and its "
            "noise was planned for the old one. Put that back, or start a new run."
        )


def _earlier_run(runs: Path, ledger: Path) -> str | None:
    """A run that was paid from a ledger, in words; None if there was none."""
    for file in sorted(runs.glob(f"*/{PRIVATE}/run.json")):
        if read_json(file).get("ledger") == str(ledger):
            return f"the run in {str(file.parents[1])!r}"
    return None


def _deployable(prepared: Prepared) -> SumStrategy:
    """The strategy of a deployed run, unless parties would not pay for it rightly."""
    require_releasable(prepared.experiment)
    strategy = check(prepared, release=True)
    if strategy is None or isinstance(strategy, AdaptiveStrategy):
        raise ValueError(
            f"strategy.name must not be {prepared.info.name!r} in a deployment: it makes several "
            "releases of one round, and a party pays for one. Use gradient-perturbation."
        )
    return strategy
