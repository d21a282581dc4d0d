"""Tuning of hyper-parameters on public data: the records that privacy protects are not used.

What is learned about private records by trying settings on them is a release like any other, and
would have to be paid for (`fedpriv.simulations.run.paid_tuning`). So a grid is tried on another,
public data set, in simulation, and the best setting goes into the experiment.
"""

from __future__ import annotations

from itertools import product
from statistics import fmean
from typing import TYPE_CHECKING, Any

from fedpriv.simulations.experiment.records.data import party_records
from fedpriv.simulations.public.overlap import shares_records
from fedpriv.simulations.run.summary import simulate

if TYPE_CHECKING:
    from fedpriv.simulations.experiment.file import Experiment
    from fedpriv.simulations.experiment.tuning_section import TuningSection

_TUNABLE = ("strategy", "model")


def tuned(experiment: Experiment) -> Experiment:
    """The experiment with the best setting of its grid; itself, if there is none to try here."""
    section = experiment.tuning
    if section is None or section.paid:
        return experiment
    if shares_records(section.on, experiment.data.name):
        raise ValueError(
            f"tuning.on must name another, public data set, got {section.on!r}: hyper-parameters "
            "chosen on the private records would cost budget. on = 'private' pays for them."
        )
    settings = grid_settings(section)
    if not settings:
        return experiment
    parties = len(party_records(experiment).sizes)
    public = experiment.replaced(
        data={
            "name": section.on,
            "path": None,
            "schema": None,
            "records": None,
            "partition": "iid",
            "parties": parties,
            "exponent": None,
            "alpha": None,
        }
    )
    return with_setting(experiment, max(settings, key=lambda setting: _quality(public, setting)))


def grid_settings(section: TuningSection) -> list[dict[str, Any]]:
    """Every combination of the values of a grid, as dotted keys; none if there is no grid."""
    for key, values in section.grid.items():
        if key.partition(".")[0] not in _TUNABLE or not key.partition(".")[2]:
            raise ValueError(
                f"tuning.grid: {key!r} must be a key of strategy or model, such as "
                '"strategy.rounds".'
            )
        if not values:
            raise ValueError(f"tuning.grid: {key!r} needs at least one value to try.")
    if not section.grid:
        return []
    return [
        dict(zip(section.grid, values, strict=True)) for values in product(*section.grid.values())
    ]


def _quality(experiment: Experiment, setting: dict[str, Any]) -> float:
    """Mean accuracy over the seeds, or minus the mean loss of a regression."""
    first = experiment.run.seed
    seeds = experiment.tuning.seeds if experiment.tuning else 1
    results = [
        simulate(with_setting(experiment.replaced(run={"seed": seed}), setting))
        for seed in range(first, first + seeds)
    ]
    if results[0]["accuracy"] is None:
        return -fmean(result["loss"] for result in results)
    return fmean(result["accuracy"] for result in results)


def with_setting(experiment: Experiment, setting: dict[str, Any]) -> Experiment:
    """The experiment with these dotted keys set."""
    for key, value in setting.items():
        section, _, name = key.partition(".")
        experiment = experiment.replaced(**{section: {name: value}})
    return experiment
