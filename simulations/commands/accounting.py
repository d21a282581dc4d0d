"""`fedpriv account` and `fedpriv calibrate`: noise to guarantee, and guarantee to noise."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedpriv.privacy.adjacency import DEFAULT_ADJACENCY, Adjacency
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.rounding import rounded_up
from fedpriv.privacy.trial_count import TrialCount
from fedpriv.privacy.unit import DEFAULT_UNIT, Unit
from fedpriv.simulations.commands.output import print_json

if TYPE_CHECKING:
    from fedpriv.privacy.accountants import Report


class Mechanism(StrEnum):
    """The noise mechanism of the rounds."""

    GAUSSIAN = "gaussian"
    LAPLACE = "laplace"


Delta = Annotated[
    float, typer.Option(help="Failure probability, well below 1 / number of records.")
]
Rate = Annotated[
    float, typer.Option(help="Poisson rate at which each unit joins a round; 1 is full batch.")
]
Relation = Annotated[
    Adjacency,
    typer.Option(help="The neighbouring data sets: one unit replaced, or one added or removed."),
]
Whose = Annotated[
    Unit,
    typer.Option(
        help="The unit whose contribution is clipped, and so protected. It changes the "
        "meaning of the numbers, not the numbers."
    ),
]
Noise = Annotated[
    Mechanism, typer.Option(help="Noise distribution; laplace is for one released number.")
]
Name = Annotated[
    str,
    typer.Option(
        help="basic, advanced, zcdp-simple, zcdp, tcdp, rdp, pld or gdp; auto chooses the "
        "tightest sound one."
    ),
]
Trials = Annotated[
    float | None,
    typer.Option(
        help="Account for tuning on private records: the rounds, including a score, are "
        "one trial. The best of a random number of trials with this mean is released."
    ),
]
Eta = Annotated[
    float,
    typer.Option(help="Distribution of that number: 0 is logarithmic, 1 geometric; above -1."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this file to ``app``."""
    app.command()(account)
    app.command()(calibrate)


def account(
    delta: Delta,
    noise_multiplier: Annotated[
        float | None,
        typer.Option(
            help="Gaussian: standard deviation of the noise on the sum / clip norm, whatever "
            "the adjacency. Laplace: scale / sensitivity."
        ),
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Number of rounds with that noise.")] = None,
    schedule: Annotated[
        Path | None,
        typer.Option(
            help="Instead of both: a file with a JSON list of multipliers, one per round."
        ),
    ] = None,
    sampling_rate: Rate = 1.0,
    adjacency: Relation = DEFAULT_ADJACENCY,
    unit: Whose = DEFAULT_UNIT,
    mechanism: Noise = Mechanism.GAUSSIAN,
    accountant: Name = "auto",
    expected_trials: Trials = None,
    eta: Eta = 0.0,
    every: Annotated[bool, typer.Option("--all", help="Compare all accountants.")] = False,
    as_json: AsJson = False,
) -> None:
    """Compute an upper bound on the epsilon that these rounds spend.

    [bold]Example[/]: 1000 rounds of sampled gradient descent:

        fedpriv account --noise-multiplier 1.1 --rounds 1000 --sampling-rate 0.01
        --delta 1e-5 --adjacency add-remove
    """
    from fedpriv.privacy import accountants
    from fedpriv.privacy.planning.tuning.trials import tuning_releases
    from fedpriv.simulations.api.accounting import releases as events

    noise = _noise(noise_multiplier, schedule)
    releases = events(noise, rounds, sampling_rate, adjacency, mechanism.value)
    count = sum(n for _, n in releases)
    if (law := _law(expected_trials, eta, mechanism, sampling_rate)) is not None:
        releases = tuning_releases(releases, law)
    chosen = accountants.account(releases, delta=delta, accountant=accountant)
    reports = accountants.account_all(releases, delta=delta) if every else []
    if as_json:
        values: dict[str, Any] = {
            "epsilon": chosen.epsilon,
            "delta": delta,
            "accountant": chosen.accountant,
            "adjacency": adjacency.value,
            "unit": unit.value,
            "mechanism": mechanism.value,
            "noise_multiplier": noise_multiplier,
            "schedule": None if schedule is None else str(schedule),
            "rounds": count,
            "sampling_rate": sampling_rate,
            **_trials(expected_trials, eta),
        }
        if chosen.reason:
            values["reason"] = chosen.reason
        if every:
            values["accountants"] = {r.accountant: r.epsilon for r in reports}
            values["reasons"] = {r.accountant: r.reason for r in reports if r.reason}
        print_json(values)
        return
    assumptions = _assumptions(unit, adjacency, sampling_rate, count, expected_trials)
    if every:
        _print_table(reports, delta, assumptions)
    elif chosen.epsilon is None:
        typer.echo(f"no guarantee: {chosen.reason}   ({chosen.method}; {assumptions})")
        raise typer.Exit(1)
    else:
        typer.echo(
            f"epsilon <= {rounded_up(chosen.epsilon)} at delta = {rounded_up(delta)}   "
            f"({chosen.method}; {assumptions})"
        )


def calibrate(
    epsilon: Annotated[float, typer.Option(help="Privacy budget epsilon.")],
    delta: Delta,
    rounds: Annotated[int, typer.Option(help="Number of rounds that share the budget.")],
    sampling_rate: Rate = 1.0,
    adjacency: Relation = DEFAULT_ADJACENCY,
    unit: Whose = DEFAULT_UNIT,
    mechanism: Noise = Mechanism.GAUSSIAN,
    accountant: Name = "auto",
    expected_trials: Trials = None,
    eta: Eta = 0.0,
    as_json: AsJson = False,
) -> None:
    """Compute how much noise keeps these rounds within a budget, and prove it by accounting.

    [bold]Example[/]: 100 full-batch rounds within epsilon = 1:

        fedpriv calibrate --epsilon 1 --delta 1e-6 --rounds 100
    """
    from fedpriv.privacy.planning import calibration
    from fedpriv.privacy.planning.tuning.trials import calibrate_trials

    law = _law(expected_trials, eta, mechanism, sampling_rate)
    if law is None:
        calibrated = calibration.calibrate(
            epsilon=epsilon,
            delta=delta,
            rounds=rounds,
            sampling_rate=sampling_rate,
            adjacency=adjacency,
            unit=unit,
            mechanism=mechanism.value,
            accountant=accountant,
        )
    else:
        calibrated = calibrate_trials(
            budget=Budget(epsilon=epsilon, delta=delta),
            law=law,
            rounds=rounds,
            adjacency=adjacency,
            unit=unit,
            accountant=accountant,
        )
    if as_json:
        print_json(
            {
                "noise_multiplier": calibrated.noise_multiplier,
                "epsilon": calibrated.epsilon,
                "delta": calibrated.delta,
                "accountant": calibrated.accountant,
                "adjacency": calibrated.adjacency.value,
                "unit": calibrated.unit.value,
                "mechanism": calibrated.mechanism,
                "rounds": calibrated.rounds,
                "sampling_rate": calibrated.sampling_rate,
                **_trials(expected_trials, eta),
            }
        )
        return
    scale = (
        "noise on the clipped sum: standard deviation = noise_multiplier * clip"
        if mechanism is Mechanism.GAUSSIAN
        else "noise on one number: scale = noise_multiplier * sensitivity"
    )
    typer.echo(f"noise_multiplier = {rounded_up(calibrated.noise_multiplier, 6)}   ({scale})")
    typer.echo(
        f"epsilon <= {rounded_up(calibrated.epsilon)} at delta = {rounded_up(delta)}   "
        f"({calibrated.accountant}; "
        f"{_assumptions(unit, adjacency, sampling_rate, rounds, expected_trials)})"
    )


def _noise(noise_multiplier: float | None, schedule: Path | None) -> float | list[float]:
    if schedule is not None and noise_multiplier is None:
        return _read_schedule(schedule)
    if schedule is None and noise_multiplier is not None:
        return noise_multiplier
    raise ValueError(
        "give either --noise-multiplier with --rounds, or --schedule: exactly one of them."
    )


def _read_schedule(path: Path) -> list[float]:
    try:
        values = json.loads(path.read_text())
    except OSError as error:
        raise ValueError(f"schedule {str(path)!r} cannot be read: {error.strerror}.") from None
    except ValueError:
        raise ValueError(f"schedule {str(path)!r} is not JSON.") from None
    if not isinstance(values, list):
        raise ValueError(
            f"schedule {str(path)!r} must be a JSON list of noise multipliers, one per round."
        )
    return values


def _law(
    expected: float | None, eta: float, mechanism: Mechanism, sampling_rate: float
) -> TrialCount | None:
    """Of the number of trials; None if there is no tuning."""
    if expected is None:
        if eta:
            raise ValueError(f"--eta needs --expected-trials, got {eta:g} alone.")
        return None
    if mechanism is not Mechanism.GAUSSIAN or sampling_rate != 1:
        raise ValueError("--expected-trials needs Gaussian noise on full batches.")
    return TrialCount.with_mean(expected, eta=eta)


def _trials(expected: float | None, eta: float) -> dict[str, float]:
    return {} if expected is None else {"expected_trials": expected, "eta": eta}


def _assumptions(
    unit: Unit, adjacency: Adjacency, sampling_rate: float, rounds: int, trials: float | None
) -> str:
    done = "replace" if adjacency is Adjacency.REPLACE_ONE else "add or remove"
    sampling = "full batch" if sampling_rate == 1 else f"Poisson sampling at {sampling_rate:g}"
    tuned = "" if trials is None else f" a trial; best of a random number, mean {trials:g}"
    return f"{done} one {unit.value}; {sampling}; {rounds} round{'s' if rounds > 1 else ''}{tuned}"


def _print_table(reports: list[Report], delta: float, assumptions: str) -> None:
    from rich.console import Console
    from rich.table import Table

    best = min((r.epsilon for r in reports if r.epsilon is not None), default=None)
    table = Table(title=f"delta = {rounded_up(delta)}   ({assumptions})", title_justify="left")
    table.add_column("accountant")
    table.add_column("method")
    table.add_column("epsilon <=", justify="right")
    table.add_column("")
    for report in reports:
        if report.epsilon is None:
            table.add_row(report.accountant, report.method, "-", report.reason, style="dim")
        else:
            mark = "tightest" if report.epsilon == best else ""
            style = "bold green" if mark else None
            table.add_row(
                report.accountant, report.method, rounded_up(report.epsilon), mark, style=style
            )
    Console().print(table)
