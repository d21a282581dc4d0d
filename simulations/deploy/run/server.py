"""The server of a deployed run: started, killed, resumed, finished.

What is needed to go on is on the disk before it is used: the ledger has every release before the
model moves, the run directory a checkpoint of every round. A release that the ledger holds is
replayed, and never drawn again; a round that was asked for and not released is asked for again, and
every party gives the same answer.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from fedpriv._toml import parse_toml
from fedpriv.federation.deployed.stated_plan import StatedPlan
from fedpriv.federation.engines.courier import Patience
from fedpriv.federation.engines.grid import GridFederation, RoundFailed
from fedpriv.federation.engines.seals import ServerSeal
from fedpriv.federation.protocol.wire import MOST_PLAN
from fedpriv.privacy.planning.fixed_plan import FixedPlan
from fedpriv.simulations.deploy.federation_budget import federation_ledger, ledger_path
from fedpriv.simulations.deploy.folders import ServerFolder
from fedpriv.simulations.deploy.keys import identity_public, read_identity, too_open
from fedpriv.simulations.deploy.members.roster import read_roster, write_roster
from fedpriv.simulations.deploy.members.roster_lock import roster_held
from fedpriv.simulations.deploy.run.closed import require_open
from fedpriv.simulations.deploy.run.jobs.cancelling import note_seat
from fedpriv.simulations.deploy.run.openings import KeptOpenings
from fedpriv.simulations.deploy.run.public_facts import prepare_deployed
from fedpriv.simulations.deploy.run.seats import seats_of
from fedpriv.simulations.engines.parties import protection
from fedpriv.simulations.experiment.file import parse_experiment
from fedpriv.simulations.run import session as sessions
from fedpriv.simulations.run.attendance import least_parties
from fedpriv.simulations.run.files import PRIVATE, private
from fedpriv.simulations.run.ledgers import own_ledger, require_affordable
from fedpriv.simulations.run.prepare import check
from fedpriv.simulations.run.release_rules import require_releasable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from flwr.serverapp import Grid

    from fedpriv.federation.engines.seals import Seal
    from fedpriv.federation.federation import Federation, Sum
    from fedpriv.federation.protocol.openings import Openings
    from fedpriv.federation.queries.kinds import Query
    from fedpriv.federation.strategy.base import SumStrategy
    from fedpriv.simulations.deploy.members.roster import Roster
    from fedpriv.simulations.run.history import Record, Round
    from fedpriv.simulations.run.prepare import Prepared
    from fedpriv.simulations.run.session import Session

PATIENCE = Patience(arrival=300.0, reply=120.0, poll=0.05, leave=600.0)
_ATTEMPTS = 3
_Made = TypeVar("_Made")


class DeployedFederation(GridFederation):
    """Parties that may be away for a while: a sum that fails is asked for again.

    That costs nothing: a party gives the same answer to the same query, from its own journal. First
    whoever was silent is waited for: a party that is restarted takes a moment to be there again.
    """

    def gather(self, *, least: int = 0) -> None:
        """Have at ``least`` so many parties join, at one of a few attempts."""
        self._attempted(partial(super().gather, least=least))

    def sum(self, query: Query) -> Sum:
        """The sum over the parties that answered, at one of a few attempts."""
        return self._attempted(partial(super().sum, query))

    def _attempted(self, act: Callable[[], _Made]) -> _Made:
        for _ in range(_ATTEMPTS - 1):
            try:
                return act()
            except RoundFailed:
                self.recall()
        return act()


def open_session(run_config: Mapping[str, Any]) -> tuple[Session, Roster]:
    """The run that a run config names: taken up where it was left, or a new one.

    ``config`` is the text of the experiment, ``roster`` the path of the roster, ``output`` the
    directory of the run. It is paid from the ledger of the federation, beside the roster, and is
    refused before anything is written if that has no room for all its releases.
    """
    place = Path(str(run_config["roster"]))
    with roster_held(ServerFolder(place.parent)):  # no other epoch begins between
        return _opened(run_config, place)


def _opened(run_config: Mapping[str, Any], place: Path) -> tuple[Session, Roster]:
    roster, output = read_roster(place), Path(str(run_config["output"]))
    experiment = parse_experiment(parse_toml(str(run_config["config"]), "experiment"))
    folder = ServerFolder(place.parent)
    preparing = partial(prepare_deployed, sizes=roster.sizes, names=roster.names)
    kept = output / PRIVATE / place.name
    require_open(output)
    if sessions.started(output):
        _require_same(kept, roster)
        book = ledger_path(folder)  # the whole directory may have been moved
        session = sessions.reopen(
            output,
            expected=experiment,
            release=True,
            ledger=book if book.exists() else None,
            preparing=preparing,
        )
        return session, roster
    prepared = preparing(experiment)
    strategy = _deployable(prepared)
    ledger = federation_ledger(folder, output.parent)
    require_affordable(ledger, prepared.experiment, strategy.plan)
    private(output)  # made with the first thing that is in it
    write_roster(kept, roster)
    session = sessions.start(prepared, output, strategy=strategy, release=True, ledger=ledger)
    return session, roster


def seal_of(run_config: Mapping[str, Any], roster: Roster, *, flower: int) -> ServerSeal:
    """What the server signs its instructions with, in the run with Flower's number ``flower``.

    Its identity and the notes of the registered nodes lie beside the roster.

    Raises:
        ValueError: The identity is not that of the roster's server, or others can read it.
    """
    folder = ServerFolder(Path(str(run_config["roster"])).parent.resolve())
    return ServerSeal(
        key=_identity(folder, roster),
        roster=roster.digest,
        identities=roster.identities,
        flower=flower,
        config=str(run_config["config"]),
        find_seats=partial(seats_of, folder.nodes, roster),
    )


def serve(
    session: Session,
    roster: Roster,
    grid: Grid,
    *,
    seal: Seal,
    patience: Patience = PATIENCE,
    on_round: Callable[[Record, Round], None] = lambda _record, _round: None,
) -> dict[str, Any] | None:
    """Carry on the run over the nodes of a grid until its result is there.

    Its parties join, and see the plan, before the ledger of the federation pays for anything: as
    many as a release needs.
    """
    if session.strategy is None and not session.finished:
        session = replace(session, strategy=check(session.prepared, release=True))

    def federation(rounds: int, _done: int) -> Federation:
        parties = deployed_federation(
            session.prepared,
            roster,
            grid,
            seal=seal,
            patience=patience,
            pipelined=rounds > 1,
            plan=stated_plan(session.strategy, run=session.identity.run),
            openings=KeptOpenings(session.directory),
        )
        note_seat(session.directory, parties.run)  # before anybody is asked to join
        parties.gather(least=least)
        return parties

    with own_ledger(session) as ledger:
        # What was paid for may be there already, whoever is away by now.
        begun = ledger.began(session.identity.run) is not None
        least = 0 if begun else least_parties(session.strategy)
        return sessions.carry_on(session, ledger=ledger, federation=federation, on_round=on_round)


def deployed_federation(
    prepared: Prepared,
    roster: Roster,
    grid: Grid,
    *,
    seal: Seal,
    patience: Patience = PATIENCE,
    pipelined: bool = False,
    plan: bytes = b"",
    openings: Openings | None = None,
) -> DeployedFederation:
    """The parties of a roster, on the nodes of a grid; ``plan`` is what they are asked to join."""
    return DeployedFederation(
        grid,
        task=prepared.task,
        protection=protection(prepared.experiment),
        roster=roster.identities,
        patience=patience,
        pipelined=pipelined,
        seal=seal,
        plan=plan,
        openings=openings,
    )


def stated_plan(strategy: SumStrategy | None, *, run: str) -> bytes:
    """All releases of a run, for the parties to see before they join; empty if not fixed.

    Raises:
        ValueError: Its rounds are on samples, and too different from each other to be stated.
    """
    if strategy is None or not isinstance(strategy.plan, FixedPlan):
        return b""
    plan = StatedPlan.of(strategy.plan, run=run, clip=strategy.fixed_clip)
    data = plan.to_bytes()
    if len(data) <= MOST_PLAN:
        return data
    if plan.sampled:
        raise ValueError(
            f"strategy.rounds: {plan.rounds} rounds on samples, each with noise or a rate of its "
            f"own, are too many to state to the parties: {len(data)} bytes of {MOST_PLAN}. Let "
            "more rounds have the same."
        )
    return b""


def _identity(folder: ServerFolder, roster: Roster) -> Ed25519PrivateKey:
    if problem := too_open(folder.identity):
        raise ValueError(f"the server's identity must be readable by its owner alone: {problem}")
    key = read_identity(folder.identity)
    if identity_public(key) != roster.server:
        raise ValueError(
            f"{str(folder.identity)!r} must be the private key of the server in the roster, and is "
            "not: no party would take an instruction that it signs."
        )
    return key


def _require_same(path: Path, roster: Roster) -> None:
    """Refuse to go on with other parties, or other numbers of records, than a run began with."""
    if read_roster(path) != roster:
        raise ValueError(
            f"the roster was changed since the run in {str(path.parents[1])!r} started, and its "
            "noise was planned for the old one. Put that back, or start a new run."
        )


def _deployable(prepared: Prepared) -> SumStrategy:
    """The strategy of a deployed run, unless it promises nothing: parties pay for every answer."""
    require_releasable(prepared.experiment)
    strategy = check(prepared, release=True)
    if strategy is None:
        raise ValueError(
            f"strategy.name must not be {prepared.info.name!r} in a deployment: it asks nobody. "
            "Use gradient-perturbation."
        )
    return strategy
