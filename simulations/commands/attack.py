"""`fedpriv attack`: what an experiment would give away without its protection, and with it."""

from __future__ import annotations

from typing import Annotated

import typer

from fedpriv.simulations.commands.output import print_json
from fedpriv.simulations.commands.progress import progress
from fedpriv.simulations.commands.run import AsJson, Out, Settings
from fedpriv.simulations.commands.settings import WithSettings
from fedpriv.simulations.refusals import refusals


def register(app: typer.Typer) -> None:
    """Add the command of this file to ``app``."""
    app.command(cls=WithSettings)(attack)


def attack(
    experiment: Annotated[
        str,
        typer.Argument(metavar="EXPERIMENT", help="A TOML file, or the name of a built-in one."),
    ],
    settings: Settings = None,
    out: Out = None,
    records: Annotated[
        int,
        typer.Option(
            help="Number of records that every model is trained on: models memorise fewer "
            "records better."
        ),
    ] = 100,
    models: Annotated[
        int, typer.Option(help="Number of shadow models with noise, and of those without.")
    ] = 16,
    feature: Annotated[
        str | None,
        typer.Option(
            help="The feature to infer, by name; by default, the one whose two values, or the "
            "medians of whose two halves, differ most."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of members, values and noise.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Attack an experiment in a simulation: membership, attributes, records from gradients.

    Membership inference decides whether a record was trained on, by its loss and by the likelihood
    ratio of shadow models (LiRA). Gradient inversion reconstructs a record from the gradient that a
    party would send. Attribute inference guesses one feature of a record whose other features are
    known, from models and from gradients. Each attack is tried without noise and with it.
    attacks.json and the pictures show the curves, beside the bound that no attack can exceed if
    the guarantee holds.

    An attack that fails proves nothing: another may succeed. To test the claim itself, use
    `fedpriv audit`.

    [bold]Example[/]:

        fedpriv attack quickstart --records 50
    """
    from fedpriv.simulations.attack.attack import attack_experiment, in_words, require_no_release
    from fedpriv.simulations.attack.figures import save_figures
    from fedpriv.simulations.experiment.file import read_experiment
    from fedpriv.simulations.run.files import new_directory, write_json

    with refusals():
        require_no_release(experiment)
        wanted = read_experiment(experiment, settings or [])
        with progress("models", quiet=as_json) as show:
            found = attack_experiment(
                wanted,
                records=records,
                models=models,
                feature=feature,
                seed=seed,
                on_model=lambda done, total: show(done, "", total=total),
            )
        directory = new_directory(f"{found.experiment}-attack", found.config_hash, out=out)
        write_json(directory / "attacks.json", found.to_dict())
        save_figures(found, directory)
    if as_json:
        print_json({**found.to_dict(), "directory": str(directory)})
        return
    for line in in_words(found):
        typer.echo(line)
    typer.echo(f"results: {directory}")
