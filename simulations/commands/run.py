"""`fedpriv run`: run one experiment, simulated or for real."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedpriv.privacy.rounding import rounded_up
from fedpriv.simulations.commands.output import print_json, warn_of_persons
from fedpriv.simulations.commands.progress import progress
from fedpriv.simulations.commands.settings import WithSettings
from fedpriv.simulations.refusals import refusals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fedpriv.simulations.run.history import Record, Round

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
    typer.Option(help="Directory for the results; results/NAME/TIME-HASH by default."),
]
EngineName = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="ENGINE",
        help="vectorized, local, sharded or ray; by default, that of the experiment.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]

INTERRUPTED = 130
CUT_SHORT = 1
"""The budget did not pay for all releases, because another run spent some of it meanwhile."""


def register(app: typer.Typer) -> None:
    """Add the command of this file to ``app``."""
    app.command(cls=WithSettings)(run)


def changes_to(experiment: str | None, settings: list[str] | None, engine: str | None) -> list[str]:
    """What --set and --engine change in an experiment; refused where none is named."""
    changes = [*(settings or []), *([] if engine is None else [f'run.engine="{engine}"'])]
    if experiment is None and changes:
        raise ValueError(
            f"--set and --engine change an experiment, and none is named, got {changes[0]}: a "
            f"resumed run continues with the experiment that it began with."
        )
    return changes


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
            help="Make a real release: noise from the operating system, every round paid for "
            "in the ledger. With data.test_fraction = 0 the model is trained on all "
            "records, otherwise on four fifths.",
        ),
    ] = False,
    ledger: Annotated[
        Path | None,
        typer.Option(
            help="The ledger of the data set: it pays for a --release; a simulation leaves one "
            "uncharged row in it. It must exist. A resumed run needs the ledger it began "
            "with; give its new place only if it was moved."
        ),
    ] = None,
    new_ledger: Annotated[
        bool,
        typer.Option(
            "--new-ledger",
            help="Create the file of --ledger first, with the budget of the experiment and the "
            "composition rule that fits the run: a full budget, for people about whom "
            "nothing was ever released.",
        ),
    ] = False,
    audit: Annotated[
        Path | None,
        typer.Option(
            help="The output of `fedpriv audit` for this experiment, to include in the "
            "statement and the page: a lower bound on epsilon beside the proved upper "
            "bound."
        ),
    ] = None,
    track: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND[:WHERE]",
            help="Also log the run to another tool: tensorboard:FOLDER or mlflow:ADDRESS. A "
            "release logs only its outcome, at its end.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Train one model as an experiment says; a simulation unless --release is given.

    EXPERIMENT is a TOML file, or the name of one that `fedpriv list experiments` shows.

    [bold]Example[/]: a first run, then the same with half the budget:

        fedpriv run quickstart

        fedpriv run quickstart --set privacy.epsilon=0.5
    """
    from fedpriv.simulations.experiment.file import read_experiment
    from fedpriv.simulations.run.launch import carry_through, open_session, require_learning
    from fedpriv.simulations.tracking.named import named

    with refusals():
        trackers = named(track or ())
        changes = changes_to(experiment, settings, engine)
        wanted = None if experiment is None else read_experiment(experiment, changes)
        require_learning(wanted)
        session = open_session(
            wanted,
            out=out,
            resume=resume,
            release=release,
            ledger=ledger,
            new_ledger=new_ledger,
            audit=audit,
        )
        require_learning(session.prepared.experiment)
        on_ray = session.prepared.experiment.run.engine == "ray"
        with _progress(quiet=as_json or on_ray) as on_round:
            result = carry_through(
                session,
                on_round=on_round,
                on_progress=_silent if as_json else _tell,
                trackers=trackers,
            )
    if result is None:
        typer.echo(f"Stopped. Continue with: fedpriv run --resume {session.directory}", err=True)
        raise typer.Exit(INTERRUPTED)
    if as_json:
        print_json({**result, "directory": str(session.directory)})
    else:
        from fedpriv.simulations.report.files import PAGE
        from fedpriv.simulations.run.summary import in_words

        for line in in_words(result, drawn_test=not session.prepared.own_test):
            typer.echo(line)
        read = session.prepared.data.dataset
        if read.loading and read.schema and result["simulated"]:  # counts, which no release tells
            for line in read.loading.in_words(read.schema):
                typer.echo(line)
        warn_of_persons(session.prepared)
        if (page := session.directory / PAGE).exists():
            typer.echo(f"page: {page}")
        typer.echo(f"results: {session.directory}")
    if result.get("cut_short"):
        raise typer.Exit(CUT_SHORT)


def _silent(_done: int, _total: int, _facts: str) -> None:
    """What a program reads has no progress in it."""


def _tell(done: int, total: int, facts: str) -> None:
    typer.echo(f"round {done} of {total}  {facts}", err=True)


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Callable[[Record, Round], None]]:
    with progress("rounds", quiet=quiet) as show:
        yield lambda record, entry: show(
            entry.round, _facts(entry), total=max(entry.round, record.strategy.rounds)
        )


def _facts(entry: Round) -> str:
    facts = []
    if entry.loss is not None:
        facts.append(f"loss {entry.loss:.4f}")
    if entry.accuracy is not None:
        facts.append(f"accuracy {100 * entry.accuracy:.2f} %")
    if entry.excess_risk is not None:
        facts.append(f"excess risk {entry.excess_risk:.3g}")
    if entry.epsilon is not None:
        facts.append(f"ε {rounded_up(entry.epsilon, 3)}")
    return "  ".join(facts)
