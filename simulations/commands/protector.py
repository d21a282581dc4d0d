"""`fedpriv protector`: train the networks of learned protection, and look at them."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedpriv.privacy.adjacency import DEFAULT_ADJACENCY
from fedpriv.simulations.commands.output import print_json
from fedpriv.simulations.commands.progress import progress
from fedpriv.simulations.commands.run import INTERRUPTED, AsJson
from fedpriv.simulations.refusals import refusals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fedpriv.learning.protector import Card, EpochReport

commands = typer.Typer(
    name="protector",
    help="Train and inspect networks that choose noise and steps, on public data.",
    no_args_is_help=True,
)


def register(app: typer.Typer) -> None:
    """Add the commands of this file to ``app``."""
    app.add_typer(commands)


@commands.command()
def train(
    on: Annotated[
        list[str],
        typer.Option(help="A built-in, public data set with two classes; may be repeated."),
    ],
    out: Annotated[Path, typer.Option(help="The file to write, NAME.json.")],
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="logistic, huber-svm, squared or mlp; may be repeated: a task for every data set."
        ),
    ] = None,
    epsilon: Annotated[
        list[float] | None,
        typer.Option(
            help="A budget epsilon to train for; may be repeated. 0.0125 … 0.8 by default."
        ),
    ] = None,
    delta: Annotated[float, typer.Option(help="δ of all budgets.")] = 1e-8,
    adjacency: Annotated[str, typer.Option(help="replace-one or add-remove.")] = (
        DEFAULT_ADJACENCY.value
    ),
    clip: Annotated[float | None, typer.Option(help="C, for features of norm at most 1.")] = None,
    hidden: Annotated[
        int,
        typer.Option(
            min=1,
            help="Hidden units of mlp: a few are enough, because the protector works for any "
            "width.",
        ),
    ] = 20,
    horizon: Annotated[
        list[int] | None,
        typer.Option(
            min=1,
            help="T, rounds that a budget may last; may be repeated. 30, 60, 100, 400 by default.",
        ),
    ] = None,
    minibatch: Annotated[
        int | None,
        typer.Option(min=1, help="Records of a step in training; by default, all of its unroll."),
    ] = None,
    gated: Annotated[
        bool, typer.Option("--gated", help="Let the projector start as plain gradient descent.")
    ] = False,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Number of epochs, of 50 batches of 20 steps each.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 0,
    root: Annotated[str | None, typer.Option(help="Folder of data archives.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from NAME.json.partial.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Train a protector on public records. It uses no private data, and spends no budget.

    [bold]Example[/]: the protector that comes with fedpriv:

        fedpriv protector train --on mnist:4v6 --out mnist-4v6.json
    """
    from fedpriv._validate import require_choice
    from fedpriv.privacy.adjacency import Adjacency
    from fedpriv.simulations.public.protector_training import Order, train_protector
    from fedpriv.simulations.signals import interruptible

    with refusals():
        require_choice(list(Adjacency), adjacency=adjacency)
        given = {
            "epsilons": None if epsilon is None else tuple(sorted(epsilon)),
            "models": None if model is None else tuple(model),
            "clip": clip,
            "horizons": None if horizon is None else tuple(sorted(horizon)),
            "epochs": epochs,
        }
        order = Order(
            on=tuple(on),
            hidden=hidden,
            minibatch=minibatch,
            gated=gated,
            root=root,
            delta=delta,
            adjacency=Adjacency(adjacency),
            seed=seed,
            **{name: value for name, value in given.items() if value is not None},  # type: ignore[arg-type]
        )
        with interruptible() as stop, _progress(order.epochs, quiet=as_json) as on_epoch:
            card = train_protector(order, out, resume=resume, on_epoch=on_epoch, stop=stop)
    if card is None:
        typer.echo("Stopped. Continue with the same command and --resume.", err=True)
        raise typer.Exit(INTERRUPTED)
    _show(out, as_json=as_json)


@commands.command()
def show(
    checkpoint: Annotated[
        str, typer.Argument(help="A file, or the name of a protector that comes with fedpriv.")
    ],
    as_json: AsJson = False,
) -> None:
    """Print the card of a protector; its hash is checked first.

    [bold]Example[/]: the one that comes with fedpriv:

        fedpriv protector show mnist-4v6
    """
    from fedpriv.strategies.learned_protection import protector_path

    with refusals():
        _show(protector_path(checkpoint), as_json=as_json)


def _show(path: Path, *, as_json: bool) -> None:
    from fedpriv.learning.protector import load

    trained = load(path)
    if as_json:
        values = {"path": str(path), "sha256": trained.sha256, **trained.card.to_dict()}
        print_json(values)
        return
    typer.echo(f"{path}\nsha256 {trained.sha256}")
    for line in _lines(trained.card):
        typer.echo(f"  {line}")


def _lines(card: Card) -> list[str]:
    settings = card.settings
    order, recipe = settings.get("order", {}), settings.get("recipe", {})
    budgets = order.get("epsilons", ["?"] * len(card.horizons))
    facts = {
        "trained on": f"{card.trained_on}, {settings.get('records', '?')} public records",
        "models": ", ".join(order.get("models", ["logistic"])),
        "by": f"fedpriv {card.version}",
        "for": f"{recipe.get('epochs', '?')} epochs, seed {recipe.get('seed', '?')}",
        "clip": f"{card.clip_norm:g}, for features of norm at most 1",
        "norm": f"{card.norm_share:.0%} of what a round costs",
        "budgets": f"delta = {order.get('delta', '?')}, {order.get('adjacency', '?')}",
    }
    return [
        *(f"{name:<12}{value}" for name, value in facts.items()),
        f"{'epsilon':<12}{'rounds':<10}noise of a release that takes all",
        *(
            f"{epsilon!s:<12}{known.rounds:<10}{known.noise:.6g}"
            for epsilon, known in zip(budgets, card.horizons, strict=True)
        ),
    ]


@contextmanager
def _progress(total: int, *, quiet: bool) -> Iterator[Callable[[EpochReport], None]]:
    with progress("epochs", total=total, quiet=quiet) as show:
        yield lambda report: show(
            report.epoch, f"log loss {report.log_loss:.4f}  cost {report.cost:.3f}"
        )
