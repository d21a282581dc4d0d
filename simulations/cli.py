"""The `fedpriv` command: each subcommand parses, calls one function, and prints what it found.

Exit status: 0 if all is well, 1 if a check failed, 2 if the input was wrong, or the disk full.
Nothing heavy is imported until a command runs, so that `fedpriv --help` answers at once.
"""

from __future__ import annotations

import errno
import gc
import sys
import warnings
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.markup import escape

from fedpriv.simulations.commands import (
    accounting,
    attack,
    audit,
    check,
    compare,
    dashboard,
    data,
    describe,
    doctor,
    dossier,
    fit,
    ledger,
    listing,
    plan_cost,
    predict,
    protector,
    report,
    run,
    schedule,
    verify,
)
from fedpriv.simulations.commands.deploy import founding as deploy

if TYPE_CHECKING:
    from types import ModuleType

    from typer.models import CommandInfo, TyperInfo

# Of new objects. With Python's own 700, half a second of start-up goes into looking for garbage
# among modules that were just imported.
_COLLECT_AFTER = 100_000

# What a disk, or the rights to it, may refuse.
_STORAGE = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS),
    *(errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EMFILE),
}

_PYTHONS = warnings.showwarning

app = typer.Typer(
    name="fedpriv",
    help="Private multi-party learning on Flower: plan, simulate, deploy, and sign what a run "
    "guarantees.",
    no_args_is_help=True,
    suggest_commands=False,  # click does
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
_HEADINGS: tuple[tuple[str, tuple[ModuleType, ...]], ...] = (
    ("Train and explore", (run, compare, fit, describe, predict, listing)),
    ("Plan", (accounting, schedule, plan_cost, data, protector)),
    ("Report and sign", (report, dashboard, dossier, verify)),
    ("Audit", (audit, attack, check)),
    ("Ledger and deployment", (ledger, deploy, doctor)),
)


def _register_all() -> None:
    """Register every command under a heading of the help, in the order a newcomer needs them."""
    for heading, modules in _HEADINGS:
        for module in modules:
            module.register(app)
        entries: list[CommandInfo | TyperInfo] = [*app.registered_commands, *app.registered_groups]
        for entry in entries:
            if not isinstance(entry.rich_help_panel, str):
                entry.rich_help_panel = heading


_register_all()


@app.callback(invoke_without_command=True)
def _root(
    version: bool = typer.Option(False, "--version", help="Print the version and exit."),
) -> None:
    if version:
        from fedpriv import __version__

        typer.echo(f"fedpriv {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line; errors about input are one message and exit status 2, never a trace.

    So are a full disk and files that may not be written: whoever reads it can mend it.
    """
    try:
        app()
    except ValueError as error:
        _fail(str(error))
    except OSError as error:
        if error.errno not in _STORAGE:
            raise
        name = "" if error.filename is None else f"{str(error.filename)!r}: "
        _fail(f"{name}{error.strerror}. Nothing that was written before is lost.")


def _fail(message: str) -> None:
    Console(stderr=True).print(f"[bold red]Error:[/] {escape(message)}", highlight=False)
    sys.exit(2)


def warn(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    """A warning to the user as a sentence; any other as Python prints it, with its place."""
    if category is UserWarning:
        Console(stderr=True).print(
            f"[bold yellow]Warning:[/] {escape(str(message))}", highlight=False
        )
    else:
        _PYTHONS(message, category, *where, **more)


def program() -> None:
    """The installed program `fedpriv`: the command line, in a process that does nothing else."""
    gc.set_threshold(_COLLECT_AFTER)
    warnings.showwarning = warn
    try:
        main()
    finally:
        gc.freeze()  # or its end looks for garbage among all modules, for most of a second
