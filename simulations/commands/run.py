"""`fedpriv run`: run one experiment, simulated or for real."""

from __future__ import annotations

import signal
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedpriv.simulations.commands.output import print_json
from fedpriv.simulations.commands.progress import progress
from fedpriv.simulations.refusals import refusals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from fedpriv.privacy.ledger import Ledger
    from fedpriv.simulations.run.history import Record, Round
    from fedpriv.simulations.run.session import Session

Source = Annotated[
    str | None,
    typer.Argument(metavar="EXPERIMENT", help="A TOML file, or the name of a built-in one."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a key: privacy.epsilon=0.5"),
]
Out = Annotated[
    Path | None,
    typer.Option(help="Directory for the results; results/NAME/TIME-HASH if not given."),
]
EngineName = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="ENGINE",
        help="vectorized, local or ray; that of the experiment if not given.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]

INTERRUPTED = 130


def register(app: typer.Typer) -> None:
    """Add the command of this file to ``app``."""
    app.command()(run)


def run(
    experiment: Source = None,
    settings: Settings = None,
    engine: EngineName = None,
    out: Out = None,
    resume: Annotated[
        Path | None, typer.Option(help="Continue an interrupted run from its directory.")
    ] = None,
    release: Annotated[
        bool,
        typer.Option(
            "--release",
            help="For real: noise from the operating system, every round paid for in the ledger.",
        ),
    ] = False,
    ledger: Annotated[
        Path | None,
        typer.Option(
            help="The ledger of the data set: it pays for a --release; a simulation leaves one "
            "uncharged row in it. It must exist. A resumed run needs the one it began with, and "
            "its new place only if it was moved."
        ),
    ] = None,
    new_ledger: Annotated[
        bool,
        typer.Option(
            "--new-ledger",
            help="Make the file of --ledger first, with the budget of the experiment and the rule "
            "that fits the run: a full budget, for people of whom nothing was ever released.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Train one model as an experiment says; a simulation unless --release is given.

    EXPERIMENT is a TOML file, or the name of one that `fedpriv list experiments` shows.

    [bold]Example[/]: a first run, then the same with half the budget:

        fedpriv run quickstart

        fedpriv run quickstart --set privacy.epsilon=0.5
    """
    from fedpriv.simulations.run.ledgers import open_ledger

    with refusals():
        chosen = [] if engine is None else [f'run.engine="{engine}"']
        session = _session(
            experiment,
            [*(settings or []), *chosen],
            out=out,
            resume=resume,
            release=release,
            ledger=ledger,
            new_ledger=new_ledger,
        )
        with open_ledger(session) as book:
            result = _carry_on(session, book, quiet=as_json)
    if result is None:
        typer.echo(f"Stopped. Continue with: fedpriv run --resume {session.directory}", err=True)
        raise typer.Exit(INTERRUPTED)
    if as_json:
        print_json({**result, "directory": str(session.directory)})
    else:
        _print(result, session)


def _session(
    experiment: str | None,
    settings: list[str],
    *,
    out: Path | None,
    resume: Path | None,
    release: bool,
    ledger: Path | None,
    new_ledger: bool,
) -> Session:
    from fedpriv.simulations.experiment.catalogue import checked
    from fedpriv.simulations.experiment.file import read_experiment
    from fedpriv.simulations.public.tuning import tuned
    from fedpriv.simulations.run import ledgers, session
    from fedpriv.simulations.run.files import new_directory
    from fedpriv.simulations.run.prepare import check, prepare
    from fedpriv.simulations.run.release_rules import require_releasable

    if resume is not None and out is not None:
        raise ValueError("--resume continues in its own directory: give no --out.")
    if new_ledger and (resume is not None or not release or ledger is None):
        raise ValueError(
            "--new-ledger is for the first --release on a data set, with --ledger PATH. A "
            "simulation spends nothing; a run that is resumed goes on with its own ledger."
        )
    if resume is not None and experiment is None:
        return session.reopen(resume, release=release, ledger=ledger)
    if experiment is None:
        raise ValueError("name an experiment, as in: fedpriv run quickstart.")
    wanted = tuned(read_experiment(experiment, settings))
    if resume is not None:
        return session.reopen(resume, expected=wanted, release=release, ledger=ledger)
    if release and ledger is None:
        raise ValueError(
            "--release spends privacy, so it needs --ledger PATH, where the spend is recorded."
        )
    if ledger is not None:
        ledgers.require_ledger(ledger, new=new_ledger)
    if release:  # before a record is read
        require_releasable(checked(wanted))
    prepared = prepare(wanted)
    plan = check(prepared)
    if release and ledger is not None and not new_ledger:
        ledgers.require_price(ledger, prepared.experiment, plan)
    directory = new_directory(prepared.experiment.name, prepared.experiment.config_hash, out=out)
    if new_ledger and ledger is not None:
        ledgers.make_ledger(ledger, prepared.experiment, plan)
    return session.start(prepared, directory, release=release, ledger=ledger)


def _carry_on(session: Session, book: Ledger | None, *, quiet: bool) -> dict[str, Any] | None:
    from fedpriv.simulations.run.session import carry_on, interruptible

    if session.prepared.experiment.run.engine == "ray" and not session.finished:
        return _on_ray(session, book, quiet=quiet)
    shown: AbstractContextManager[Callable[[Record, Round], None]]
    shown = nullcontext(lambda _record, _round: None) if quiet else _progress()
    with interruptible() as stop, shown as on_round:
        return carry_on(session, ledger=book, on_round=on_round, stop=stop)


def _on_ray(session: Session, book: Ledger | None, *, quiet: bool) -> dict[str, Any] | None:
    """Run a session on Ray, in processes of its own that end when this one is told to stop."""
    from fedpriv.simulations.engines.ray import run_on_ray
    from fedpriv.simulations.run.session import note

    def show(done: int, total: int, facts: str) -> None:
        if not quiet:
            typer.echo(f"round {done} of {total}  {facts}", err=True)

    with _stopped_by_sigterm():
        try:
            result = run_on_ray(session, on_progress=show)
        except KeyboardInterrupt:
            return None
    if book is not None:
        note(session, book, result)
    return result


@contextmanager
def _stopped_by_sigterm() -> Iterator[None]:
    """SIGTERM ends the block as Ctrl-C does."""
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


@contextmanager
def _progress() -> Iterator[Callable[[Record, Round], None]]:
    with progress("rounds") as show:
        yield lambda record, entry: show(
            entry.round, _facts(entry), total=max(entry.round, record.strategy.rounds)
        )


def _facts(entry: Round) -> str:
    facts = []
    if entry.loss is not None:
        facts.append(f"loss {entry.loss:.4f}")
    if entry.accuracy is not None:
        facts.append(f"accuracy {100 * entry.accuracy:.2f} %")
    if entry.epsilon is not None:
        facts.append(f"ε {entry.epsilon:.3g}")
    return "  ".join(facts)


def _print(result: dict[str, Any], session: Session) -> None:
    from fedpriv.privacy.rounding import rounded_up

    took = f"{result['seconds']:.2f} s (simulated)" if result["simulated"] else "released"
    typer.echo(
        f"{result['label']} on {result['data']}: {result['parties']} parties, "
        f"{result['records']} records, {result['rounds']} "
        f"round{'' if result['rounds'] == 1 else 's'}, {took}"
    )
    if result["epsilon"] is None:
        typer.echo("no privacy is promised: the strategy adds no noise")
    else:
        typer.echo(
            f"epsilon <= {rounded_up(result['epsilon'])} at delta = "
            f"{rounded_up(result['delta'])}   (one record, {result['adjacency']})"
        )
    if result["loss"] is None:
        typer.echo("metrics: none; there are no test records that are declared public")
        if not session.prepared.own_test:
            typer.echo(
                "the records that a hash drew for testing were not used: data.test_fraction = 0 "
                "trains on all of them"
            )
    elif result["accuracy"] is None:
        typer.echo(f"loss {result['loss']:.4f} on {result['test_records']} test records")
    else:
        typer.echo(
            f"accuracy {100 * result['accuracy']:.2f} %, loss {result['loss']:.4f} on "
            f"{result['test_records']} test records"
        )
    if result["stopped"]:
        typer.echo(f"stopped early: {result['stopped']}")
    typer.echo(f"results: {session.directory}")
