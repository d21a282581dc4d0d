"""`fedpriv schedule`: how rounds share a budget, what theory guarantees, and pictures of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedpriv.privacy.adjacency import DEFAULT_ADJACENCY
from fedpriv.simulations.commands.accounting import AsJson, Delta, Relation
from fedpriv.simulations.commands.output import print_json

if TYPE_CHECKING:
    from fedpriv.simulations.schedule_pictures import Sketch

Epsilon = Annotated[float, typer.Option(help="Privacy budget epsilon of all rounds together.")]
Records = Annotated[int, typer.Option(help="Number of training records, N.")]
Dimension = Annotated[int, typer.Option(help="Number of parameters, d.")]
Kappa = Annotated[
    float, typer.Option(help="Condition number M/lambda; 1/(4 lambda) + 1 for logistic regression.")
]
Most = Annotated[int, typer.Option(help="Largest number of rounds to consider.")]
Clip = Annotated[float, typer.Option(help="Clip norm of a record's gradient.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this file to ``app``."""
    group = typer.Typer(
        help="Noise schedules: choose the number of rounds, and show noise, cost and bound.",
        no_args_is_help=True,
    )
    group.command()(plan)
    group.command()(show)
    group.command()(advantage)
    app.add_typer(group, name="schedule")


def plan(
    epsilon: Epsilon,
    delta: Delta,
    records: Records,
    dimension: Dimension,
    kappa: Kappa,
    clip: Clip = 1.0,
    adjacency: Relation = DEFAULT_ADJACENCY,
    most: Most = 10_000,
    beta: Annotated[
        float, typer.Option(help="Momentum of debiased momentum; 0 for plain gradient descent.")
    ] = 0.0,
    as_json: AsJson = False,
) -> None:
    """Find the number of rounds with the least bound on the excess risk, from public facts.

    The bound is for logistic regression with steps of 1/M (with --beta, the largest step that the
    theorem on momentum allows), features of norm at most 1 and a clip norm of at least 1: no bound
    is known for gradients that are really clipped. It is pessimistic. Use it as a start, and
    public data for more.

    [bold]Example[/]: 50,000 records of 100 features, lambda = 0.01 (kappa = 26):

        fedpriv schedule plan --epsilon 1 --delta 1e-6 --records 50000 --dimension 100
        --kappa 26
    """
    from fedpriv.privacy.budget import Budget
    from fedpriv.simulations.schedule_pictures import logistic_descent, planned

    sketches = planned(
        budget=Budget(epsilon=epsilon, delta=delta),
        adjacency=adjacency,
        descent=logistic_descent(
            records=records, dimension=dimension, condition=kappa, clip=clip, momentum=beta
        ),
        most=most,
    )
    if as_json:
        print_json([sketch.summary() for sketch in sketches])
        return
    for sketch in sketches:
        _print_summary(sketch)
    typer.echo("gain: how many times less harm the noise does than the same budget spread evenly")


def show(
    name: Annotated[
        str, typer.Argument(help="uniform, dynamic, momentum, exponential or step.")
    ] = "dynamic",
    epsilon: Epsilon = 1.0,
    delta: Delta = 1e-6,
    rounds: Annotated[int, typer.Option(help="Number of rounds that share the budget.")] = 100,
    gamma: Annotated[
        float | None,
        typer.Option(
            help="Contraction per round, for dynamic and momentum; by default 1 - 1/kappa."
        ),
    ] = None,
    beta: Annotated[float, typer.Option(help="Momentum, for the momentum schedule.")] = 0.9,
    decay: Annotated[float, typer.Option(help="Factor of every round, for exponential.")] = 0.99,
    every: Annotated[int, typer.Option(help="Rounds between two steps, for step.")] = 20,
    factor: Annotated[float, typer.Option(help="Factor of a step, for step.")] = 0.8,
    records: Records = 50_000,
    dimension: Dimension = 100,
    kappa: Kappa = 26.0,
    clip: Clip = 1.0,
    adjacency: Relation = DEFAULT_ADJACENCY,
    svg: Annotated[Path | None, typer.Option(help="Also draw the picture into this file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the noise, the cost and, if one is proved, the bound of every round.

    [bold]Example[/]: 50 rounds with falling noise, as a picture:

        fedpriv schedule show dynamic --rounds 50 --kappa 10 --svg dynamic.svg
    """
    from fedpriv.privacy.budget import Budget
    from fedpriv.simulations.schedule_pictures import (
        Sketch,
        logistic_descent,
        save_svg,
        schedule_named,
        text_curve,
    )

    descent = logistic_descent(
        records=records,
        dimension=dimension,
        condition=kappa,
        clip=clip,
        momentum=beta if name == "momentum" else 0.0,
    )
    sketch = Sketch(
        schedule=schedule_named(
            name,
            gamma=descent.gamma if gamma is None else gamma,
            beta=beta,
            decay=decay,
            every=every,
            factor=factor,
        ),
        budget=Budget(epsilon=epsilon, delta=delta),
        adjacency=adjacency,
        descent=descent,
        rounds=rounds,
    )
    if svg is not None:
        save_svg(sketch, svg)
    if as_json:
        print_json(
            {
                **sketch.summary(),
                "epsilon": epsilon,
                "delta": delta,
                "adjacency": adjacency.value,
                "noise_multipliers": sketch.noise.tolist(),
                "rho": sketch.rho.tolist(),
                "bounds": None if sketch.bounds is None else sketch.bounds.tolist(),
            }
        )
        return
    _print_summary(sketch)
    curves = {
        "noise σ on the sum / clip norm": sketch.noise,
        "cost ρ (zCDP) of each round": sketch.rho,
        "bound on the excess risk after each round": sketch.bounds,
    }
    for title, values in curves.items():
        if values is not None:
            typer.echo("\n" + text_curve(values, title=title))
    if svg is not None:
        typer.echo(f"\nsvg: {svg}")


def advantage(
    epsilon: Epsilon = 1.0,
    delta: Delta = 1e-6,
    records: Records = 50_000,
    dimension: Dimension = 100,
    least: Annotated[float, typer.Option("--from", help="Smallest condition number.")] = 2.0,
    greatest: Annotated[float, typer.Option("--to", help="Largest condition number.")] = 500.0,
    points: Annotated[
        int, typer.Option(help="Number of condition numbers, evenly spaced by factors.")
    ] = 9,
    adjacency: Relation = DEFAULT_ADJACENCY,
    most: Most = 10_000,
    svg: Annotated[Path | None, typer.Option(help="Also draw the picture into this file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show by how much dynamic noise is better than uniform noise, over the condition number.

    Each schedule has its own best number of rounds. The command compares the proved bounds on the
    excess risk of logistic regression without clipping. Where a bound is no better than no
    training, nothing is claimed.

    [bold]Example[/]: the figure for ten times as many records:

        fedpriv schedule advantage --records 500000 --to 5000 --svg advantage.svg
    """
    import numpy as np

    from fedpriv.privacy.budget import Budget
    from fedpriv.simulations.schedule_advantage import advantages, save_advantage
    from fedpriv.simulations.schedule_pictures import text_curve

    found = advantages(
        budget=Budget(epsilon=epsilon, delta=delta),
        adjacency=adjacency,
        records=records,
        dimension=dimension,
        least=least,
        most=greatest,
        points=points,
        rounds=most,
    )
    if svg is not None:
        save_advantage(found, svg)
    if as_json:
        print_json([one.to_dict() for one in found])
        return
    typer.echo("     kappa     gamma   uniform: rounds, bound   dynamic: rounds, bound   advantage")
    for one in found:
        row = one.to_dict()
        ratio = "–" if one.ratio is None else f"{one.ratio:.3g}"
        typer.echo(
            f"{one.kappa:>10.4g}{row['gamma']:>10.5f}{row['uniform_rounds']:>16}"
            f"{row['uniform_bound']:>9.3g}{row['dynamic_rounds']:>16}{row['dynamic_bound']:>9.3g}"
            f"{ratio:>12}"
        )
    known = [one for one in found if one.ratio is not None]
    if len(known) > 1:
        curve = text_curve(
            np.array([one.ratio for one in known]),
            title="advantage: bound with uniform noise / bound with dynamic noise",
            axis="kappa",
            ends=(f"{known[0].kappa:.4g}", f"{known[-1].kappa:.4g}"),
        )
        typer.echo("\n" + curve)
    if svg is not None:
        typer.echo(f"\nsvg: {svg}")


def _print_summary(sketch: Sketch) -> None:
    values, rounds = sketch.summary(), sketch.rounds
    if sketch.descent.no_bound:
        promise = f"excess risk: no bound is known ({sketch.descent.no_bound})"
    else:
        vacuous = ", no better than no training" if values["bound"] >= sketch.descent.gap else ""
        promise = f"excess risk <= {values['bound']:.4g}{vacuous}, gain {values['gain']:.3g}"
    typer.echo(
        f"{values['schedule']}: {rounds} round{'s' if rounds > 1 else ''}, noise multiplier "
        f"{values['first_noise']:.4g} to {values['last_noise']:.4g}, {promise}   "
        f"(gamma = {values['gamma']:.5g}, step = {values['step']:.4g}; {sketch.budget}; "
        f"{sketch.adjacency.value})"
    )
