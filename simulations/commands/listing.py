"""`fedpriv list`: the strategies, data sets and experiments that there are."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedpriv.simulations.commands.output import print_json
from fedpriv.simulations.commands.run import AsJson

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from fedpriv.strategies import StrategyInfo


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
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE.py]", help="The strategies of a file of your own."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List what an experiment can name.

    [bold]Example[/]: the strategies with their options and defaults:

        fedpriv list strategies
    """
    if file is not None:
        if topic is not Topic.STRATEGIES:
            raise ValueError(f"a file is for `fedpriv list strategies`, got {topic.value!r}.")
        if file.suffix != ".py":
            raise ValueError(
                f"FILE.py must be a Python file of your own, got {str(file)!r}. Leave it out for "
                "the strategies that come with fedpriv."
            )
        _show(_own_strategies(file), as_json=as_json)
        return
    entries = {
        Topic.STRATEGIES: _strategies,
        Topic.DATA: _data,
        Topic.EXPERIMENTS: _experiments,
    }[topic]()
    _show(entries, as_json=as_json)


def _show(entries: list[dict[str, Any]], *, as_json: bool) -> None:
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
    from fedpriv.simulations.experiment import guests
    from fedpriv.simulations.experiment.catalogue import catalogue, strategy_info

    own = [_strategy(info) for info in catalogue().values()]
    others = (
        {**_strategy(strategy_info(name, {})), "name": name}
        for name in guests.installed("strategy")
    )
    return [*own, *others]


def _own_strategies(file: Path) -> list[dict[str, Any]]:
    """The strategies of a file, each under the name by which an experiment beside it names it."""
    from fedpriv.simulations.experiment import guests
    from fedpriv.simulations.experiment.catalogue import strategy_info
    from fedpriv.strategies import NoisyGradients

    place = guests.anchored(f"{file}:x", Path.cwd()).removesuffix(":x")
    names = [
        name
        for name, value in vars(guests.module_of(Path(place))).items()
        if isinstance(value, type) and issubclass(value, NoisyGradients)
        if value is not NoisyGradients
    ]
    if not names:
        raise ValueError(f"{str(file)!r} has no class that derives from NoisyGradients.")
    return [
        {**_strategy(strategy_info(f"{place}:{name}", {})), "name": f"{file}:{name}"}
        for name in names
    ]


def _strategy(info: StrategyInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "summary": info.summary,
        "private": info.private,
        "convex_only": info.convex_only,
        "options": {name: _default(field) for name, field in info.options.model_fields.items()},
    }


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
