"""Session: a run in its directory, started, interrupted, resumed, finished."""

from __future__ import annotations

import secrets
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from fedpriv._durable import replace_file
from fedpriv._toml import read_toml, to_toml
from fedpriv.data import read_schema
from fedpriv.federation.strategy.base import Run
from fedpriv.privacy.ledger import Ledger
from fedpriv.simulations.describe.files import write_statistics
from fedpriv.simulations.experiment.catalogue import checked
from fedpriv.simulations.experiment.file import parse_experiment
from fedpriv.simulations.experiment.named_files.guest_code import blamed_while_it_runs
from fedpriv.simulations.run.ending import CHECKPOINT, finish, note, tidy
from fedpriv.simulations.run.files import (
    PRIVATE,
    private,
    read_checkpoint,
    read_json,
    write_arrays,
    write_checkpoint,
    write_costs,
    write_json,
    write_metrics,
)
from fedpriv.simulations.run.history import Record
from fedpriv.simulations.run.identity import (
    Identity,
    experiment_digest,
    records_digest,
    require_own_checkpoint,
    require_read_by_the_rules,
    require_same_experiment,
    require_same_schema,
    schema_digest,
)
from fedpriv.simulations.run.kept_secret import drawn_once, keep_secret, secret_streams
from fedpriv.simulations.run.ledgers import (
    mark_of,
    raw_identity,
    require_apart,
    require_known,
    require_room,
)
from fedpriv.simulations.run.model_file import model_arrays
from fedpriv.simulations.run.prepare import (
    Prepared,
    build_federation,
    check,
    prepare,
    serving,
    train,
)
from fedpriv.simulations.run.progress import ProgressFile
from fedpriv.simulations.run.release_outcome import ROUND, sift
from fedpriv.simulations.run.release_rules import require_releasable
from fedpriv.simulations.run.statement.statements import write_statement
from fedpriv.simulations.run.streams import streams
from fedpriv.simulations.run.summary import chosen_of, costs, summary, summary_alone
from fedpriv.strategies.description import Description

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedpriv.federation.federation import Federation, Sum
    from fedpriv.federation.queries.kinds import Query
    from fedpriv.federation.strategy.base import SumStrategy
    from fedpriv.privacy.planning.plan import Plan
    from fedpriv.simulations.experiment.file import Experiment
    from fedpriv.simulations.run.history import Round


_IDENTITY = "run.json"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Session:
    """A prepared run and its directory.

    Attributes:
        directory: of the run.
        prepared: its experiment, with records.
        identity: what makes it this run.
        strategy: as it was built and checked; None if it is still to be built.
        source: the `raw_identity` of a release's records, computed before they were read.
    """

    directory: Path
    prepared: Prepared
    identity: Identity
    strategy: SumStrategy | None = None
    source: bytes | None = None

    @property
    def finished(self) -> bool:
        """Whether the result is there."""
        return (self.directory / "result.json").exists()


def start(
    prepared: Prepared,
    directory: Path,
    *,
    strategy: SumStrategy | None = None,
    source: bytes | None = None,
    release: bool = False,
    ledger: Path | None = None,
) -> Session:
    """Write down what a new run is; its ``strategy``, if `check` has built it."""
    if release:
        require_releasable(prepared.experiment)
        require_read_by_the_rules(prepared)
        if prepared.experiment.data.public_test and not prepared.own_test:
            raise ValueError(
                "--release with data.public_test needs test records that their source set apart: a "
                "test_column in the schema, or a built-in data set's own split. Records that a "
                "hash draws from the table are protected like all others."
            )
    rows, head = (None, None) if ledger is None else _mark(ledger)
    # Two real runs of one experiment are two runs, with two charges; two simulations are the same.
    suffix = f"-{secrets.token_hex(4)}" if release else ""
    identity = Identity(
        run=prepared.run + suffix,
        config_hash=prepared.experiment.config_hash,
        release=release,
        ledger=None if ledger is None else str(ledger.resolve()),
        ledger_rows=rows,
        ledger_head=head,
        data=None if release else records_digest(prepared),
        schema=schema_digest(prepared.data.dataset.schema),
        experiment=experiment_digest(prepared.experiment),
    )
    directory.mkdir(parents=True, exist_ok=True)
    replace_file(directory / "config.toml", to_toml(prepared.experiment.to_dict()))
    if release and drawn_once(prepared):
        keep_secret(directory)
    write_json(private(directory) / _IDENTITY, asdict(identity))
    return Session(
        directory=directory,
        prepared=prepared,
        identity=identity,
        strategy=strategy,
        source=source,
    )


def started(directory: Path) -> bool:
    """Whether a run was started in ``directory``."""
    return (directory / PRIVATE / _IDENTITY).exists()


def reopen(
    directory: Path,
    *,
    expected: Experiment | None = None,
    release: bool = False,
    ledger: Path | None = None,
    preparing: Callable[[Experiment], Prepared] = prepare,
) -> Session:
    """Reopen a run that was started in ``directory``, of the ``expected`` experiment if given."""
    if not started(directory):
        raise ValueError(f"--resume {str(directory)!r}: no run was started there.")
    identity = Identity(**read_json(private(directory) / _IDENTITY))
    experiment = parse_experiment(read_toml(directory / "config.toml", "experiment"))
    require_same_experiment(checked(experiment), identity, directory)
    path = experiment.data.schema_path
    if experiment.data.store is None:  # else it lies in the store
        require_same_schema(None if path is None else read_schema(path), identity, directory)
    here = identity.release and experiment.run.engine != "deployment"
    source = raw_identity(experiment.data) if here else None
    prepared = preparing(experiment)
    # Of what was read: a file may have changed since the line above.
    require_same_schema(prepared.data.dataset.schema, identity, directory)
    if expected is not None and checked(expected).config_hash != identity.config_hash:
        raise ValueError(f"--resume {str(directory)!r}: this is a run of another experiment.")
    if identity.data is not None and records_digest(prepared) != identity.data:
        raise ValueError(
            f"the records of {prepared.experiment.data.title!r} were changed since the run in "
            f"{str(directory)!r} started: start a new one."
        )
    if release and not identity.release:
        raise ValueError(
            f"--resume {str(directory)!r}: this run is a simulation, and cannot become a release."
        )
    if ledger is not None and identity.ledger != str(ledger.resolve()):
        require_apart(ledger, directory)
        identity = _moved(identity, ledger)
        write_json(private(directory) / _IDENTITY, asdict(identity))
    return Session(directory=directory, prepared=prepared, identity=identity, source=source)


def _mark(ledger: Path) -> tuple[int, str]:
    with Ledger.open(ledger, read_only=True) as book:
        return mark_of(book)


def _moved(identity: Identity, ledger: Path) -> Identity:
    """The same run with a moved ledger; with two copies, neither would record all that is spent."""
    if identity.ledger is None or identity.ledger_head is None or Path(identity.ledger).exists():
        raise ValueError(f"--ledger must be {identity.ledger!r}, with which the run started.")
    with Ledger.open(ledger, read_only=True) as book:
        require_known(book, rows=identity.ledger_rows, head=identity.ledger_head)
    return replace(identity, ledger=str(ledger.resolve()))


def carry_on(
    session: Session,
    *,
    ledger: Ledger | None = None,
    federation: Callable[[int, int], Federation] | None = None,
    on_round: Callable[[Record, Round], None] = lambda _record, _round: None,
    stop: Callable[[], bool] = lambda: False,
) -> dict[str, Any] | None:
    """Run to the result, or until ``stop`` says so: then None, and `reopen` can resume the run.

    ``federation`` builds the parties for so many expected sums, of which some were formed before;
    if not given, the engine of the experiment does.
    """
    if session.finished:
        finished: dict[str, Any] = read_json(session.directory / "result.json")
        tidy(session)  # a run may have been killed in it
        return finished
    strategy = session.strategy or check(session.prepared, release=session.identity.release)
    if strategy is None:
        return _alone(session)
    directory, prepared, identity = session.directory, session.prepared, session.identity
    real = ledger if identity.release else None
    noise = (
        secret_streams(directory, "tuning" if prepared.experiment.paid_tuning else "fit")
        if identity.release and drawn_once(prepared)
        else streams(prepared, "noise", run=identity.run, release=identity.release)
    )
    strategy.attach(Run(name=identity.run, noise=noise, ledger=real, release=identity.release))
    if real is not None:  # another run may have spent since this one was started
        require_room(real, strategy.plan, run=identity.run)
    record = Record(prepared=prepared, strategy=strategy, release=identity.release)
    checkpoint = private(directory) / CHECKPOINT
    if checkpoint.exists():
        state = read_checkpoint(checkpoint)
        require_own_checkpoint(state, identity, directory)
        if real is not None:
            require_known(real, rows=state.get("ledger_rows"), head=state.get("ledger_head"))
        with blamed_while_it_runs(strategy):
            record.restore(state)
    rounds, done = strategy.rounds, record.exchanges
    planned = strategy.plan
    _write_plan(session, planned)
    # A real release saves every round: its ledger waits for the disk anyway.
    pause = 0.0 if identity.release else prepared.experiment.run.checkpoint_seconds
    saved, last = perf_counter(), strategy.round
    progress = ProgressFile(directory, unit="rounds", done=record.made, total=rounds)

    def watch(query: Query, answer: Sum) -> bool:
        nonlocal saved, last
        if (told := record.add(query, answer)) is not None:
            on_round(record, told)
        stopping = stop()
        if told is not None:
            facts = {"epsilon": told.epsilon, "accuracy": told.accuracy, "loss": told.loss}
            progress.note(told.round, total=strategy.rounds, now=stopping, **facts)
        # Only what has been released can be taken up again; a joint fit starts anew.
        if strategy.round > last and (stopping or perf_counter() - saved >= pause):
            rows, head = (None, None) if real is None else mark_of(real)
            known = {"run": identity.run, "ledger_rows": rows, "ledger_head": head}
            write_checkpoint(checkpoint, {**record.state(), **known})
            saved, last = perf_counter(), strategy.round
        return not stopping

    parties = (
        build_federation(
            prepared, run=identity.run, release=identity.release, rounds=rounds, done=done
        )
        if federation is None
        else federation(rounds, done)
    )
    with serving(parties):
        record.follow(parties)
        ended = train(strategy, parties, watch)
    if not ended:
        return None
    if strategy.plan is not planned:  # with the noise as chosen
        _write_plan(session, strategy.plan)
    result, rows = summary(record, run=identity.run), record.rows()
    if identity.release:
        rows = [sift(row, ROUND) for row in rows]
        write_costs(directory, costs(record))
        if (loading := prepared.data.dataset.loading) is not None:
            write_json(private(directory) / "loading.json", loading.to_dict())
    if isinstance(strategy, Description):
        names = prepared.data.dataset.party_names
        write_statistics(directory, strategy, prepared.experiment, parties=names)
    else:
        released = prepared.begun.whole(strategy.theta)
        arrays = model_arrays(released, prepared.experiment, prepared.data.dataset)
        write_arrays(directory / "model.npz", **arrays)
        write_metrics(directory, rows)
    write_statement(
        directory,
        prepared,
        strategy.plan,
        run=identity.run,
        ledger=real,
        server_also_sees=strategy.server_also_sees,
        made=strategy.round if strategy.cut_short else None,
        coefficients=result.get("coefficients"),
        chosen=chosen_of(strategy),
    )
    if ledger is not None and not identity.release:
        note(session, ledger, result)
    return finish(session, result)


def _write_plan(session: Session, plan: Plan | None) -> None:
    """Write plan.json, with the hashes of the code and the start of the run, if there is a plan."""
    if plan is not None:
        experiment = session.prepared.experiment
        named = {"guests": experiment.guest_code, "start": experiment.start_file}
        values = {**plan.to_dict(), **{key: value for key, value in named.items() if value}}
        write_json(session.directory / "plan.json", values)


def _alone(session: Session) -> dict[str, Any]:
    directory = session.directory
    result, models = summary_alone(session.prepared, run=session.identity.run)
    write_arrays(directory / "model.npz", theta=models)
    write_metrics(directory, [{"round": 0, "accuracy": result["accuracy"], "loss": result["loss"]}])
    write_statement(directory, session.prepared, None, run=session.identity.run, ledger=None)
    return finish(session, result)
