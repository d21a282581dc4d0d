"""`fedpriv ledger`: create a budget ledger, bind it, look at it, check it, export it."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedpriv.privacy.adjacency import DEFAULT_ADJACENCY, Adjacency
from fedpriv.privacy.rounding import rounded_up
from fedpriv.privacy.unit import DEFAULT_UNIT, Unit
from fedpriv.simulations.commands.output import print_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fedpriv.privacy.ledger import Ledger, RunSummary, Spend

BAR_WIDTH = 40

File = Annotated[Path, typer.Argument(help="The ledger's file.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def register(app: typer.Typer) -> None:
    """Add the group of commands of this file to ``app``."""
    group = typer.Typer(
        name="ledger",
        help="Show what was spent of a data set's privacy budget, and prove that nothing "
        "is missing.",
        no_args_is_help=True,
    )
    group.command()(init)
    group.command()(bind)
    group.command()(show)
    group.command()(verify)
    group.command()(export)
    app.add_typer(group)


def init(
    path: File,
    data_name: Annotated[str, typer.Option(help="A name for the data set.")],
    epsilon: Annotated[float, typer.Option(help="Privacy budget epsilon, over all runs.")],
    delta: Annotated[
        float, typer.Option(help="Failure probability, well below 1 / number of records.")
    ],
    adjacency: Annotated[
        Adjacency,
        typer.Option(
            help="The neighbouring data sets: one unit replaced, or one added or removed."
        ),
    ] = DEFAULT_ADJACENCY,
    unit: Annotated[
        Unit, typer.Option(help="The unit that the budget protects: a record, a person or a party.")
    ] = DEFAULT_UNIT,
    composition: Annotated[
        str | None,
        typer.Option(
            show_default="gdp; basic if delta is 0",
            help="How costs add up; cannot be changed later. gdp: Gaussian noise, exactly, and "
            "pure noise; refuses sampled rounds, shares of noise and stated pairs of "
            "epsilon and delta. rdp, or rdp:ORDER: all but such pairs, for about 7 % more "
            "noise in Gaussian rounds. basic: pure noise, stated pairs, and whole runs "
            "whose noise is fixed beforehand. auto: the rule that fits the first charge.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create a ledger: the budget of one data set, for all releases that ever use it.

    Choose budget, adjacency, unit and composition now: they can never be changed. A release for
    which the composition rule has no price is refused, at no charge.

    [bold]Example[/]:

        fedpriv ledger init clinic.ledger --data-name clinic-2025 --epsilon 2
        --delta 1e-6
    """
    from fedpriv.privacy.budget import Budget
    from fedpriv.privacy.ledger import Ledger

    with (
        _faults_as_bad_input(),
        Ledger.create(
            path,
            data_name=data_name,
            budget=Budget(epsilon=epsilon, delta=delta),
            adjacency=adjacency,
            unit=unit,
            composition=composition,
        ) as ledger,
    ):
        if as_json:
            print_json({"path": str(path), **_values(ledger)})
        else:
            typer.echo(
                f"created {path} for {data_name!r}: {ledger.settings.budget}, "
                f"{ledger.settings.terms}, {ledger.settings.composition} composition"
            )
            typer.echo(f"head = {ledger.head}")


def bind(
    path: File,
    data: Annotated[Path, typer.Option(help="The records as they are now: a CSV or Parquet file.")],
    reason: Annotated[str, typer.Option(help="What was changed; kept in the ledger.")],
    as_json: AsJson = False,
) -> None:
    """Continue a ledger after its records were changed: corrected, added to, or saved anew.

    What was spent stays spent. A release from any of the ledger's files is charged to the people in
    all of them, which is sound for everybody who was in one of them. A file that the ledger knows
    is not bound twice.

    [bold]Example[/]:

        fedpriv ledger bind clinic.ledger --data records.csv --reason 'patients of June added'
    """
    from fedpriv.data import table_identity
    from fedpriv.privacy.ledger import Ledger

    with _faults_as_bad_input(), Ledger.open(path) as ledger:
        ledger.add_data(table_identity(data), reason=reason)
        if as_json:
            print_json({"path": str(path), **_values(ledger)})
        else:
            typer.echo(f"{path} covers {data} as it is now; no budget is given back")
            typer.echo(f"head = {ledger.head}")


def show(path: File, as_json: AsJson = False) -> None:
    """Show what was spent, run by run, and what is left. Exit status 1 if over budget."""
    with _faults_as_bad_input(), _opened(path) as ledger:
        spent, runs = ledger.spent(), ledger.runs()
        if as_json:
            print_json(
                {"path": str(path), **_values(ledger), "runs": [asdict(run) for run in runs]}
            )
        else:
            _print_table(ledger, spent, runs)
    if not spent.within_budget:
        raise typer.Exit(1)


def verify(
    path: File,
    head: Annotated[
        str | None,
        typer.Option(
            help="A head hash kept elsewhere, for example in a statement: the rows up to it "
            "must not have changed."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check every row, hash and cost. The exit status is 1 if anything was changed."""
    from fedpriv.privacy.ledger import LedgerCorrupt

    try:
        with _faults_as_bad_input(LedgerCorrupt), _opened(path) as ledger:
            checked, settings = ledger.verify(expected_head=head), ledger.settings
    except LedgerCorrupt as error:
        if as_json:
            print_json({"valid": False, "row": getattr(error, "row", None), "problem": str(error)})
        else:
            typer.echo(f"NOT VALID: {error}")
        raise typer.Exit(1) from None
    loss = checked.spent.guarantee
    if as_json:
        print_json(
            {
                "valid": True,
                "rows": checked.rows,
                "head": checked.head,
                "expected_row": checked.expected_row,
                "epsilon": loss.epsilon,
                "delta": loss.delta,
                "adjacency": settings.adjacency.value,
                "unit": settings.unit.value,
            }
        )
        return
    typer.echo(
        f"valid: {checked.rows} rows, epsilon <= {rounded_up(loss.epsilon)} at "
        f"delta = {loss.delta:g} ({settings.terms}), recomputed"
    )
    typer.echo(f"head = {checked.head}")
    if checked.expected_row is not None:
        typer.echo(f"the expected head is that of row {checked.expected_row}")


def export(path: File, as_json: AsJson = False) -> None:
    """Print the whole ledger: JSON, or one line per row. Never the salt, nor what was released."""
    with _faults_as_bad_input(), _opened(path) as ledger:
        values = ledger.export()
    if as_json:
        print_json(values)
        return
    for row in values["rows"]:
        place = " ".join(str(row[name]) for name in ("run", "round") if row[name] is not None)
        typer.echo(
            f"{row['seq']} {row['time']} {row['kind']} {place or '-'} "
            f"amount={row['amount']!r} delta={row['delta']!r} {row['hash']}"
        )


def _opened(path: Path) -> Ledger:
    from fedpriv.privacy.ledger import Ledger

    return Ledger.open(path, read_only=True)


@contextmanager
def _faults_as_bad_input(*passed_on: type[Exception]) -> Iterator[None]:
    """A missing, foreign or locked file ends in one message and exit status 2, like bad input."""
    from fedpriv.privacy.ledger import LedgerError

    try:
        yield
    except passed_on:
        raise
    except LedgerError as error:
        raise ValueError(str(error)) from error


def _values(ledger: Ledger) -> dict[str, Any]:
    settings = ledger.settings
    return {
        "data": {"name": settings.data_name, "fingerprint": ledger.fingerprint},
        "budget": {"epsilon": settings.budget.epsilon, "delta": settings.budget.delta},
        "adjacency": settings.adjacency.value,
        "unit": settings.unit.value,
        "head": ledger.head,
        **ledger.spent().to_dict(),
    }


def _print_table(ledger: Ledger, spent: Spend, runs: list[RunSummary]) -> None:
    from rich.columns import Columns
    from rich.console import Console
    from rich.markup import escape
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    settings, rule, left, loss = ledger.settings, spent.composition, spent.left, spent.guarantee
    table = Table(
        title=f"{escape(settings.data_name)}: {settings.budget}, {settings.terms}",
        title_justify="left",
    )
    for name in ("run", "charged", "releases stored", "spent", "last"):
        table.add_column(
            name,
            justify="right" if name in ("releases stored", "spent") else "left",
            overflow="fold",  # the beginning of a name is no name
        )
    limit = rule.limit() if rule else 0.0
    for run in runs:
        if run.simulated:
            table.add_row(
                escape(run.run), "never: simulated", "-", "-", _minute(run.last), style="dim"
            )
            continue
        table.add_row(
            escape(run.run),
            "as declared" if run.declared else "by round",
            f"{run.committed} of {run.reserved}",
            _percent(run.amount / limit if limit else 0.0),
            _minute(run.last),
        )
    console = Console()
    console.print(table)
    console.print(
        f"spent: epsilon <= {rounded_up(loss.epsilon)} at delta = {rounded_up(loss.delta)} "
        f"({f'{rule.name} composition' if rule else 'nothing charged yet'})",
        highlight=False,
    )
    bar = ProgressBar(total=1.0, completed=left.share, width=BAR_WIDTH)
    measure = f" of the {rule.measure} budget" if rule else ""
    console.print(Columns(["left: ", bar, f" {_percent(left.share)}{measure}"], padding=0))


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _minute(time: str) -> str:
    return time[:16].replace("T", " ")
