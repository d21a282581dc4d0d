"""`fedpriv audit`: lower bounds on μ and ε for an experiment's strategy, as it really runs."""

from __future__ import annotations

from typing import Annotated

import typer

from fedpriv.simulations.commands.output import print_json
from fedpriv.simulations.commands.progress import progress
from fedpriv.simulations.commands.run import AsJson, EngineName, Out, Settings, changes_to
from fedpriv.simulations.commands.settings import WithSettings
from fedpriv.simulations.refusals import refusals

VIOLATED = 1
"""The runs contradict the claim."""


def register(app: typer.Typer) -> None:
    """Add the command of this file to ``app``."""
    app.command(cls=WithSettings)(audit)


def audit(
    experiment: Annotated[
        str,
        typer.Argument(metavar="EXPERIMENT", help="A TOML file, or the name of a built-in one."),
    ],
    settings: Settings = None,
    engine: EngineName = None,
    out: Out = None,
    runs: Annotated[
        int,
        typer.Option(
            help="Runs on each of the two neighbours, in pairs with equal noise. 119 show 80 % "
            "of μ in nineteen audits of twenty, whatever μ is, if neighbours reach it; "
            "419 if they reach 90 % of it."
        ),
    ] = 500,
    confidence: Annotated[
        float,
        typer.Option(
            help="Confidence of the lower bounds. With 0.95, at most one in twenty audits of a "
            "true claim raises a false alarm; for audits that run every night, use 0.999."
        ),
    ] = 0.95,
    seed: Annotated[int, typer.Option(help="Seed of the noise of all runs.")] = 0,
    model_only: Annotated[
        bool,
        typer.Option(
            "--model-only",
            help="Let the adversary see only the last model, not every release: a weaker "
            "adversary, who sees what somebody who is given the model sees.",
        ),
    ] = False,
    one_run: Annotated[
        bool | None,
        typer.Option(
            "--one-run/--many-runs",
            help="Run the strategy only once, with many canaries planted in its sums, each by "
            "the toss of a coin; the default for networks. It shows about 60 % of μ.",
        ),
    ] = None,
    canaries: Annotated[
        int,
        typer.Option(
            help="Number of canaries in one run: more canaries show more, and take longer."
        ),
    ] = 1000,
    as_json: AsJson = False,
) -> None:
    """Audit a claim: run a strategy many times on two neighbouring tables, and tell them apart.

    The strategy runs as in a release: test split, bounds, parties, fixed point, secure aggregation
    if the engine has it (--engine local), drop-outs, noise at the server or at the parties. The
    records are crafted to be the worst that are known for the strategy. Sizes, model and all
    settings are the experiment's own. Nothing about your records is released, and nothing is spent.
    Networks are run once, with a thousand canaries.

    The result is a lower bound on epsilon. If it is above the claim, it proves a violation, and the
    exit status is 1. If it is below, it only shows that this adversary could not do better.
    audit.json has all details.

    [bold]Example[/]:

        fedpriv audit quickstart --set strategy.rounds=10 --runs 1000
    """
    from fedpriv.simulations.audit.audit import audit_experiment
    from fedpriv.simulations.audit.result import in_words
    from fedpriv.simulations.experiment.file import read_experiment
    from fedpriv.simulations.run.files import new_directory, write_json

    with refusals():
        wanted = read_experiment(experiment, changes_to(experiment, settings, engine))
        with progress("runs", quiet=as_json) as show:
            found = audit_experiment(
                wanted,
                runs=runs,
                confidence=confidence,
                seed=seed,
                model_only=model_only,
                one_run=one_run,
                canaries=canaries,
                on_run=lambda done, total: show(done, "", total=total),
            )
        directory = new_directory(f"{found.experiment}-audit", found.config_hash, out=out)
        write_json(directory / "audit.json", found.to_dict())
    if as_json:
        print_json({**found.to_dict(), "directory": str(directory)})
    else:
        for line in in_words(found):
            typer.echo(line)
        typer.echo(f"results: {directory}")
    if not found.passed:
        raise typer.Exit(VIOLATED)
