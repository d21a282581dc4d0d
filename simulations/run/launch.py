"""Launch a run: what `fedpriv run` and `fedpriv.run` share, from an experiment to its result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedpriv.simulations.experiment.budgets import NO_RELEASE
from fedpriv.simulations.experiment.catalogue import checked
from fedpriv.simulations.public.tuning import tuned
from fedpriv.simulations.run import ledgers, session
from fedpriv.simulations.run.ending import note
from fedpriv.simulations.run.files import new_directory
from fedpriv.simulations.run.prepare import check, prepare
from fedpriv.simulations.run.release_rules import require_releasable
from fedpriv.simulations.run.statement.audited import keep_audit, read_audit
from fedpriv.simulations.signals import interruptible, stopped_by_sigterm
from fedpriv.simulations.tracking.tracker import tracked

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from fedpriv.privacy.ledger import Ledger
    from fedpriv.simulations.experiment.file import Experiment
    from fedpriv.simulations.run.history import Record, Round
    from fedpriv.simulations.run.session import Session
    from fedpriv.simulations.tracking.tracker import Tracker


def require_learning(experiment: Experiment | None) -> None:
    """Refuse an experiment that has no model to train."""
    if experiment is not None and experiment.describing:
        raise ValueError(
            "strategy.name must be one that learns, got 'describe': describe the table with "
            "`fedpriv describe`, or name a strategy."
        )


def open_session(
    experiment: Experiment | None,
    *,
    out: Path | None = None,
    resume: Path | None = None,
    release: bool = False,
    ledger: Path | None = None,
    new_ledger: bool = False,
    audit: Path | None = None,
) -> Session:
    """A new run of ``experiment``, or the one in ``resume``; refused before a record is read.

    A release needs a ledger that exists, or ``new_ledger``, and one that can pay for it. What an
    ``audit`` of the same experiment found goes into its statement.
    """
    if resume is not None and out is not None:
        raise ValueError("--resume continues in its own directory: give no --out.")
    if new_ledger and (resume is not None or not release or ledger is None):
        raise ValueError(
            "--new-ledger is for the first --release on a data set, with --ledger PATH. A "
            "simulation spends nothing; a run that is resumed goes on with its own ledger."
        )
    if resume is not None and audit is not None:
        raise ValueError("--audit is for a new run: one that is resumed has what it began with.")
    if resume is not None and experiment is None:
        return session.reopen(resume, release=release, ledger=ledger)
    if experiment is None:
        raise ValueError("name an experiment, as in: fedpriv run quickstart.")
    if release and resume is None:  # tuning counts the parties, and so reads the records
        require_releasable(checked(experiment))
    wanted = tuned(experiment)
    if resume is not None:
        return session.reopen(resume, expected=wanted, release=release, ledger=ledger)
    if release and ledger is None:
        raise ValueError(
            "--release spends privacy, so it needs --ledger PATH, where the spend is recorded."
        )
    if ledger is not None:
        if wanted.privacy.noise_free:
            raise ValueError(NO_RELEASE)
        ledgers.require_ledger(ledger, new=new_ledger)
        if out is not None:
            ledgers.require_apart(ledger, out)
    if release:  # before a record is read
        require_releasable(checked(wanted))
    source = ledgers.raw_identity(wanted.data) if release else None
    prepared = prepare(wanted)
    strategy = check(prepared, release=release)
    plan = None if strategy is None else strategy.plan
    if release and ledger is not None and not new_ledger:
        ledgers.require_affordable(ledger, prepared.experiment, plan)
    audited = None if audit is None else read_audit(audit, prepared, plan)
    directory = new_directory(prepared.experiment.name, prepared.experiment.config_hash, out=out)
    if new_ledger and ledger is not None:
        ledgers.make_ledger(ledger, prepared.experiment, plan).close()
    if audited is not None:
        keep_audit(directory, audited, release=release)
    return session.start(
        prepared, directory, strategy=strategy, source=source, release=release, ledger=ledger
    )


def carry_through(
    opened: Session,
    *,
    on_round: Callable[[Record, Round], None] = lambda _record, _round: None,
    on_progress: Callable[[int, int, str], None] = lambda _done, _total, _facts: None,
    trackers: Sequence[Tracker] = (),
) -> dict[str, Any] | None:
    """The result of a run; None if Ctrl-C stopped it after a round, to be resumed.

    Args:
        opened: The run.
        on_round: Called after every exchange.
        on_progress: Called instead if the run is on Ray, in processes of its own.
        trackers: Follow it: see `Tracker`.
    """
    with ledgers.open_ledger(opened) as book, tracked(opened, trackers) as tell:
        if opened.prepared.experiment.run.engine == "ray" and not opened.finished:
            return _on_ray(opened, book, on_progress)

        def watch(record: Record, told: Round) -> None:
            on_round(record, told)
            tell(record, told)

        with interruptible() as stop:
            return session.carry_on(opened, ledger=book, on_round=watch, stop=stop)


def _on_ray(
    opened: Session, book: Ledger | None, on_progress: Callable[[int, int, str], None]
) -> dict[str, Any] | None:
    """Run in separate processes, which end when this one is told to stop."""
    from fedpriv.simulations.engines.ray import run_on_ray

    with stopped_by_sigterm():
        try:
            result = run_on_ray(opened, on_progress=on_progress)
        except KeyboardInterrupt:
            return None
    if book is not None:
        note(opened, book, result)
    return result
