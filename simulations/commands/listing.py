"""`fedpriv list`: the strategies, data sets and experiments that there are."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedpriv.simulations.commands.output import print_json
from fedpriv.simulations.commands.run import AsJson

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo


class Topic(StrEnum):
    """What can be listed."""

    STRATEGIES = "strategies"
    DATA = "data"
    EXPERIMENTS = "experiments"


def register(app: typer.Typer) -> None:
    """Add the command of this file to ``app``."""
    app.command("list")(list_)


def list_(
    topic: Annotated[Topic, typer.Argument(help="strategies, data or experiments.")],
    as_json: AsJson = False,
) -> None:
    """List what an experiment can name.

    [bold]Example[/]: the strategies with their options and defaults:

        fedpriv list strategies
    """
    entries = {
        Topic.STRATEGIES: _strategies,
        Topic.DATA: _data,
        Topic.EXPERIMENTS: _experiments,
    }[topic]()
    if as_json:
        print_json(entries)
        return
    for entry in entries:
        typer.secho(entry["name"], bold=True)
        typer.echo(f"    {entry['summary']}")
        for key in ("options", "variants", "needs", "path"):
            if entry.get(key):
                typer.echo(f"    {key}: {_shown(entry[key])}")


def _strategies() -> list[dict[str, Any]]:
    from fedpriv.simulations.experiment.catalogue import catalogue

    return [
        {
            "name": info.name,
            "summary": info.summary,
            "private": info.private,
            "convex_only": info.convex_only,
            "options": {name: _default(field) for name, field in info.options.model_fields.items()},
        }
        for info in catalogue().values()
    ]


def _data() -> list[dict[str, Any]]:
    from fedpriv.data import entries

    return [
        {"name": e.name, "summary": e.summary, "variants": e.variants, "needs": e.needs}
        for e in entries()
    ]


def _experiments() -> list[dict[str, Any]]:
    from fedpriv.simulations.experiment.file import built_in_experiments, read_experiment

    experiments = []
    for name, path in built_in_experiments().items():
        experiment = read_experiment(path)
        experiments.append({"name": name, "summary": experiment.summary, "path": str(path)})
    return experiments


def _default(field: FieldInfo) -> Any:
    default = field.get_default(call_default_factory=True)
    return list(default) if isinstance(default, tuple) else default


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} = {default}" for key, default in value.items())
    return str(value)
