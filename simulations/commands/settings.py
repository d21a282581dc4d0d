"""Commands with --set: for a key of an experiment given as an option, the error explains --set."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from typer.core import TyperCommand

if TYPE_CHECKING:
    from click import Context


class WithSettings(TyperCommand):
    """A command with --set, which says so where somebody writes --epsilon 0.5."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Parse, and explain an option that is a key of an experiment."""
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            told = _as_setting(error.option_name, given)
            if told is None:
                raise
            raise click.UsageError(f"No such option: {error.option_name}. {told}", ctx) from None


def _as_setting(option: str, args: list[str]) -> str | None:
    """How --set writes an option; None if no table of an experiment has such a key."""
    from fedpriv.simulations.experiment.complaints import elsewhere, tables_with
    from fedpriv.simulations.experiment.file import Experiment

    key = option.lstrip("-").replace("-", "_")
    tables = tables_with(Experiment, key)
    if not tables:
        return None
    place = next((i for i, arg in enumerate(args) if arg.partition("=")[0] == option), len(args))
    value = (args[place : place + 1] or [""])[0].partition("=")[2] or "".join(args[place + 1 :][:1])
    return elsewhere(key, tables, value or "…")
