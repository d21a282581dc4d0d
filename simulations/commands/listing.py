"""`fedpriv list`: the strategies, data sets and experiments that there are, and one strategy."""

from __future__ import annotations

from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedpriv.simulations.commands.output import print_json
from fedpriv.simulations.commands.run import AsJson

if TYPE_CHECKING:
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
    which: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME|FILE.py]",
            help="One strategy, to show its algorithm and explain its options; or a file of "
            "your own, to list its strategies.",
        ),
    ] = None,
    as_json: AsJson = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print all strategies as a page of Markdown.")
    ] = False,
) -> None:
    """List strategies, data sets or experiments.

    [bold]Example[/]: the strategies with their options and defaults, and what one of them does:

        fedpriv list strategies

        fedpriv list strategies agd
    """
    if topic is not Topic.STRATEGIES and (which is not None or markdown):
        raise ValueError(
            f"a name, a file and --markdown are for `fedpriv list strategies`, got {topic.value!r}."
        )
    if markdown:
        from fedpriv.simulations.experiment.strategy_pages import strategy_page

        typer.echo(strategy_page(), nl=False)
        return
    if which is not None and which.endswith(".py"):
        _show(_own_strategies(Path(which)), as_json=as_json)
        return
    if which is not None:
        _show_one(which, as_json=as_json)
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


def _show_one(name: str, *, as_json: bool) -> None:
    from fedpriv.simulations.experiment.catalogue import catalogue
    from fedpriv.simulations.experiment.strategy_pages import explained

    info = catalogue().get(name)
    if info is None:
        near = get_close_matches(name, catalogue(), n=1) or [n for n in catalogue() if name in n]
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(
            f"strategy must be one of {', '.join(catalogue())}, or a file of your own that ends in "
            f".py; got {name!r}.{hint}"
        )
    entry = {**_strategy(info), **explained(info)}
    if as_json:
        print_json(entry)
        return
    typer.secho(name, bold=True)
    typer.echo(f"    {info.summary}\n\n{entry['algorithm']}")
    for option, meaning in entry["meanings"].items():
        typer.secho(f"{option} = {entry['options'][option]}", bold=True)
        typer.echo(f"    {meaning}")


def _strategies() -> list[dict[str, Any]]:
    from fedpriv.simulations.experiment.catalogue import catalogue, strategy_info
    from fedpriv.simulations.experiment.named_files import guests

    own = [_strategy(info) for info in catalogue().values()]
    others = (
        {**_strategy(strategy_info(name, {})), "name": name}
        for name in guests.installed("strategy")
    )
    return [*own, *others]


def _own_strategies(file: Path) -> list[dict[str, Any]]:
    """The strategies of a file, each under the name by which an experiment beside it names it."""
    from fedpriv.simulations.experiment.catalogue import strategy_info
    from fedpriv.simulations.experiment.named_files import guests
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
    from fedpriv.simulations.experiment.strategy_pages import defaults

    return {
        "name": info.name,
        "summary": info.summary,
        "private": info.private,
        "convex_only": info.convex_only,
        "options": defaults(info),
    }


def _data() -> list[dict[str, Any]]:
    from fedpriv.data import entries

    return [
        {"name": e.name, "summary": e.summary, "variants": e.variants, "needs": e.needs}
        for e in entries()
    ]


def _experiments() -> list[dict[str, Any]]:
    from fedpriv.simulations.experiment.file import read_experiment
    from fedpriv.simulations.experiment.sources import built_in_experiments

    experiments = []
    for name, path in built_in_experiments().items():
        experiment = read_experiment(path)
        experiments.append({"name": name, "summary": experiment.summary, "path": str(path)})
    return experiments


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} = {default}" for key, default in value.items())
    return str(value)
