"""`fedpriv report`: results as one page for a browser, a printer or a talk."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedpriv.simulations.commands.output import print_json
from fedpriv.simulations.commands.run import AsJson
from fedpriv.simulations.refusals import refusals


def register(app: typer.Typer) -> None:
    """Add the command of this file to ``app``."""
    app.command()(report)


def report(
    results: Annotated[
        list[Path],
        typer.Argument(
            metavar="RESULTS...",
            help="The directory of a finished comparison, or those of one or more finished runs.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="Directory for the report; by default, that of the results. Required for "
            "several runs."
        ),
    ] = None,
    figures: Annotated[
        bool, typer.Option("--figures", help="Also write every figure as SVG and PDF, for a paper.")
    ] = False,
    tables: Annotated[
        bool, typer.Option("--tables", help="Also write every table as LaTeX and CSV.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write results as one self-contained HTML page, report.html, with its numbers in report.json.

    `run` and `compare` write it, too. The page needs no network and no JavaScript. For a release it
    contains only what is in the outcome.

    [bold]Example[/]: two runs on one page, with figures and tables for a paper:

        fedpriv report results/a results/b --out page --figures --tables
    """
    from fedpriv.data.errors import import_optional
    from fedpriv.simulations.report.exports import write_figures, write_tables
    from fedpriv.simulations.report.files import read_document, write_report

    with refusals():
        import_optional("jinja2", extra="report")
        document = read_document(results)
        folder = _folder(results, out, beside=not (figures or tables) or document.simulated)
        paths = write_report(document, folder)
        values = document.to_dict()
        if figures:
            paths += write_figures(values, folder / "figures")
        if tables:
            paths += write_tables(values, folder / "tables")
    if as_json:
        print_json({"files": [str(path) for path in paths]})
    else:
        for path in paths:
            typer.echo(path)


def _folder(results: list[Path], out: Path | None, *, beside: bool) -> Path:
    """Where to write; of a release only the page itself may lie among its files."""
    if out is None:
        if len(results) > 1:
            raise ValueError(
                f"--out must be given for a page about {len(results)} runs: it belongs to "
                f"neither of their directories."
            )
        if not beside:
            raise ValueError(
                "--out must be given with --figures and --tables of a release: these files are "
                "not part of its outcome, and must not be among its files."
            )
        return results[0]
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"--out {str(out)!r} cannot be made: {error.strerror}.") from None
    return out
