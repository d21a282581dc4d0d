"""`fedpriv plan-cost`: what secure aggregation will cost, before anybody is asked to take part."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedpriv.simulations.commands.output import print_json
from fedpriv.simulations.commands.run import AsJson, Settings
from fedpriv.simulations.commands.settings import WithSettings

if TYPE_CHECKING:
    from fedpriv.federation.cost.prediction import Prediction
    from fedpriv.federation.cost.setting import Setting

_MODES = ("semi-honest", "active")
_LONGEST_LIST = 100
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB", "EB")


def register(app: typer.Typer) -> None:
    """Add the command of this file to ``app``."""
    app.command("plan-cost", cls=WithSettings)(plan_cost)


def plan_cost(
    parties: Annotated[
        str | None, typer.Option(help="Number of parties, or several: 10,1000,1e6.")
    ] = None,
    dimension: Annotated[
        str | None,
        typer.Option(help="Number of values in an answer, that is, of a model: 1000,1e6."),
    ] = None,
    mode: Annotated[
        str | None,
        typer.Option(
            help="semi-honest, active, or both separated by a comma; semi-honest by default."
        ),
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(help="Number of sums in a run; 10 by default.")
    ] = None,
    dropout: Annotated[
        float | None,
        typer.Option(help="The fraction of the parties that leaves every second round; or 0."),
    ] = None,
    colluding: Annotated[
        float | None,
        typer.Option(
            help="The fraction of the parties that colludes with the server; 0.1 by default."
        ),
    ] = None,
    noise_at: Annotated[
        str | None,
        typer.Option(help="Who draws the noise: server or parties; server by default."),
    ] = None,
    bits: Annotated[
        int | None, typer.Option(help="Bits of a number in the ring, 32 or 64; 32 by default.")
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="EXPERIMENT",
            help="Take all of these settings from an experiment; options on the command line "
            "override it.",
        ),
    ] = None,
    settings: Settings = None,
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate", help="Measure this machine's processor first, in about four seconds."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Predict what secure aggregation costs a party and the server: bytes, time, memory.

    Bytes are computed from the messages themselves: exactly, or as means within one percent of a
    run. Processor time is the time that masks add to the same rounds in the clear, within a factor
    of two: on this machine with --calibrate, otherwise on the machine that the last line names.
    Memory counts buffers, without interpreter and records. The table is per round of a run; its
    first set-up is divided among all rounds. Settings that the protocol does not accept are
    computed by the same rules, and marked.

    [bold]Example[/]: how a clinic's share grows with the number of clinics, in both modes:

        fedpriv plan-cost --parties 10,100,1000 --dimension 1e4 --mode semi-honest,active

    What an experiment would take with real parties, on this machine:

        fedpriv plan-cost --from chem97 --calibrate
    """
    from fedpriv.federation.cost.prediction import predict
    from fedpriv.federation.cost.unit_costs import RECORDED, RECORDED_COSTS, calibrated

    if settings and source is None:
        raise ValueError(
            f"--set changes an experiment, and none is named, got {settings[0]}: --from EXPERIMENT."
        )
    given = {
        "rounds": rounds,
        "dropout": dropout,
        "colluding": colluding,
        "noise_at": noise_at,
        "bits": bits,
    }
    wanted = _settings(
        _numbers("parties", parties),
        _numbers("dimension", dimension),
        _modes(mode),
        {name: value for name, value in given.items() if value is not None},
        None if source is None else _read(source, settings),
    )
    units = calibrated() if calibrate else RECORDED_COSTS
    predictions = [predict(setting, units) for setting in wanted]
    machine = "this machine, measured now" if calibrate else RECORDED
    if as_json:
        costs = {field.name: getattr(units, field.name) for field in fields(units)}
        print_json(
            {
                "machine": machine,
                "unit_seconds": costs,
                "predictions": [one.to_dict() for one in predictions],
            }
        )
    else:
        _print(predictions, machine)


def _read(source: str, changes: list[str] | None) -> Setting:
    from fedpriv.simulations.experiment.file import read_experiment
    from fedpriv.simulations.run.cost import setting_of

    return setting_of(read_experiment(source, changes or []))


def _settings(
    parties: list[int] | None,
    dimensions: list[int] | None,
    modes: list[str] | None,
    given: dict[str, Any],
    base: Setting | None,
) -> list[Setting]:
    """Every combination; what is not given is that of the experiment, if there is one."""
    from fedpriv.federation.cost.setting import Setting

    if base is None:
        for name, numbers in (("--parties", parties), ("--dimension", dimensions)):
            if numbers is None:
                raise ValueError(f"{name} must be given, or an experiment: --from EXPERIMENT.")
        cases = product(parties or [], dimensions or [], modes or _MODES[:1])
        return [Setting(parties=m, dimension=d, mode=kind, **given) for m, d, kind in cases]
    cases = product(
        parties or [base.parties], dimensions or [base.dimension], modes or [base.mode.value]
    )
    return [replace(base, parties=m, dimension=d, mode=kind, **given) for m, d, kind in cases]


def _numbers(name: str, text: str | None) -> list[int] | None:
    """Counts with commas between them; 1e6 is a million."""
    if text is None:
        return None
    found = []
    for word in text.split(","):
        try:
            number = float(word)
        except ValueError:
            number = 0.5
        if not 1 <= number <= 1e12 or number != int(number):
            raise ValueError(
                f"--{name} must be whole numbers from 1 to 1e12 with commas between them, such as "
                f"10,1000,1e6, got {text!r}."
            )
        found.append(int(number))
    if len(found) > _LONGEST_LIST:
        raise ValueError(f"--{name} must have at most {_LONGEST_LIST} numbers, got {len(found)}.")
    return found


def _modes(text: str | None) -> list[str] | None:
    if text is None:
        return None
    found = [word.strip() for word in text.split(",")]
    for word in found:
        if word not in _MODES:
            raise ValueError(f"--mode must be of {', '.join(map(repr, _MODES))}, got {word!r}.")
    return found


def _print(predictions: list[Prediction], machine: str) -> None:
    from rich.console import Console
    from rich.table import Table

    first = predictions[0].setting
    table = Table(
        title=f"Secure aggregation, per round of {first.rounds}; {first.dropout:.3g} of the "
        f"parties leave every second round; noise at the {first.noise_at}",
        title_justify="left",
    )
    table.add_column("parties", justify="right")
    table.add_column("numbers", justify="right")
    for name in ("mode", "holders, threshold", "exchanges"):
        table.add_column(name)
    for side in ("party", "server"):
        table.add_column(f"{side}: sends", justify="right")
        table.add_column("receives", justify="right")
        table.add_column("computes", justify="right")
        table.add_column("holds", justify="right")
    notes = set()
    for one in predictions:
        setting = one.setting
        cells = [
            f"{setting.parties:,}",
            f"{setting.dimension:,}",
            setting.mode.value + (" *" if setting.limit else ""),
            f"{setting.holders:,}, {setting.threshold:,}",
            f"{one.exchanges / setting.rounds:.3g}",
        ]
        for cost in (one.party, one.server):
            cells += [
                _bytes(cost.sent / setting.rounds),
                _bytes(cost.received / setting.rounds),
                _time(cost.seconds / setting.rounds),
                _bytes(cost.memory),
            ]
        table.add_row(*cells, style="dim" if setting.limit else None)
        notes |= {setting.limit} - {""}
    console = Console()
    console.print(table)
    for note in sorted(notes):
        console.print(f"* computed by the same rules, but not to be run: {note}.", highlight=False)
    console.print(f"Processor time: {machine}.", highlight=False)


def _bytes(count: float) -> str:
    """Bytes, for people: 3 digits and a unit."""
    place = 0
    while count >= 999.5 and place < len(_UNITS) - 1:
        count, place = count / 1000, place + 1
    return f"{count:.3g} {_UNITS[place]}"


def _time(seconds: float) -> str:
    if seconds < 1:
        return f"{1e3 * seconds:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 3600 else f"{seconds / 3600:.3g} h"
