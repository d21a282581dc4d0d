"""Strategies × engines × who adds noise × samples × drop-outs: docs/what-runs-where.md is so.

Every cell that says yes is run, every other one refused with the reason that the page gives: all
of them on the engines `vectorized` and `local`; on `sharded`, with workers of this process, those
without samples and shares; of the deployed ones those with samples, and what only a deployment
refuses. ``FEDPRIV_STRESS=1`` runs all of these, too. As a program it makes the table anew.
"""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv._toml import to_toml
from fedpriv.federation.queries.kinds import QUERIES
from fedpriv.privacy.planning.calibration import calibrate
from fedpriv.privacy.unit import Unit
from fedpriv.simulations.engines import sharded
from fedpriv.simulations.experiment.file import parse_experiment
from fedpriv.simulations.run.prepare import build_federation, check, prepare, serving, train
from fedpriv.strategies import STRATEGIES
from tests.federation.deployed.deployments import FOUR, Deployment
from tests.federation.engines.workforces import Workers

if TYPE_CHECKING:
    from collections.abc import Mapping

PAGE = Path(__file__).parents[2] / "docs" / "what-runs-where.md"
STRESS = "FEDPRIV_STRESS" in os.environ
FORMS: Mapping[str, Mapping[str, Any]] = {
    "joint": {"fit": "joint"},
    "coordinate": {"rule": "coordinate"},
    "quantile": {"rule": "quantile"},
    "linear": {},
    "logistic": {},
}
LINEAR = {"name": "squared", "label_bound": 8.0, "l2": 0.05}
"""The model of the form "linear", whose labels are numbers: `inference` has two forms of noise."""
NUMBER = """
label = "dose"
[columns.dose]
kind = "number"
min = -1
max = 1
[columns.age]
kind = "number"
min = 0
max = 100
[columns.sick]
kind = "category"
values = ["no", "yes"]
"""
SAMPLES = ("sampling_rate", "party_rate")
REASONS = {
    "a": "strategy.sampling_rate is not a known key",
    "e": "a joint fit shows the server exact sums",
    "j": "a joint fit needs every party",
    "n": "adds no noise: its model may reveal any record",
    "o": "noise_at must be 'server'",
}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One cell of the table."""

    strategy: str
    form: str
    column: str
    verdict: str

    def __str__(self) -> str:
        return " ".join(part for part in (self.strategy, self.form, self.column) if part)

    @property
    def options(self) -> dict[str, Any]:
        """What an experiment says of the strategy: little work, whatever it is."""
        known = STRATEGIES[self.strategy].options.model_fields
        chosen = {"name": self.strategy, **FORMS.get(self.form, {})}
        for rounds in {"rounds", "horizon"} & set(known):
            chosen[rounds] = 2
        if "allow_swamped" in known:
            chosen |= {"allow_swamped": True, "local_learning_rate": 0.1}
        if "sample" in self.column:
            chosen[next((key for key in SAMPLES if key in known), SAMPLES[0])] = 0.5
        return chosen

    @property
    def privacy(self) -> dict[str, Any]:
        """For the largest unit that the strategy knows, or none where it promises nothing."""
        values: dict[str, Any] = {
            "adjacency": "add-remove" if "sample" in self.column else "replace-one"
        }
        info = STRATEGIES[self.strategy]
        if info.private:
            values |= {"epsilon": 20.0, "delta": 1e-5, "unit": _unit(self.strategy)}
        if "shares" in self.column:
            values["noise_at"] = "parties"
        return values

    @property
    def model(self) -> dict[str, Any]:
        """What is learned."""
        return LINEAR if self.form == "linear" else {"l2": 0.05}

    def simulate(self, engine: str) -> None:
        """Train for two rounds on parties of this process; also with one missing, if asked to."""
        for missing in (0.0, 0.2) if self.column == "some missing" else (0.0,):
            prepared = prepare(
                parse_experiment(
                    {
                        "data": {
                            "name": "synthetic:squared" if self.form == "linear" else "synthetic",
                            "partition": "iid",
                            "parties": 5,
                            "scaling": "divide" if self.strategy == "inference" else "clip",
                        },
                        "model": self.model,
                        "strategy": self.options,
                        "privacy": self.privacy,
                        "run": {"engine": engine, "dropout": missing},
                    }
                ),
                keep=True,
            )
            strategy = check(prepared)
            assert strategy is not None
            sums = build_federation(prepared, run=prepared.run, rounds=strategy.releases)
            with serving(sums):
                assert train(strategy, sums, lambda _query, _sum: True)
            assert np.isfinite(strategy.theta).all()

    def deploy(self, folder: Path) -> None:
        """Train with four parties that hold their own records, ledgers and rules."""
        unit = self.privacy.get("unit", "record")
        deployment = Deployment(
            folder=folder,
            **FOUR,
            policy={
                "strategies": [self.strategy],
                "queries": list(QUERIES),
                "units": [unit],
                "noise_at": "parties" if _noise_by_parties(self) else "server",
                "min_noise": 0.001,
                "max_clip": 10.0,
                "max_local_steps": 100,
            },
            budget={
                "epsilon": 40.0,
                "delta": 1e-5,
                "unit": unit,
                "adjacency": self.privacy["adjacency"],
            },
        )
        if self.form == "linear":
            for path in (deployment.server, *map(deployment.home, deployment.names)):
                (path / "schema.toml").write_text(NUMBER)
        text = deployment.config(privacy=self.privacy, model=self.model)
        tables = {**tomllib.loads(text), "strategy": self.options}
        if self.strategy == "inference":
            tables["data"]["scaling"] = "divide"
        deployment.run(folder / "server" / "runs" / "a", config=to_toml(tables))


def _unit(strategy: str) -> str:
    units = STRATEGIES[strategy].units
    return (Unit.PARTY if Unit.PARTY in units else Unit.RECORD).value


def _noise_by_parties(cell: Cell) -> bool:
    return "shares" in cell.column or STRATEGIES[cell.strategy].noise_by == "parties"


def table() -> list[Cell]:
    """The cells of the page."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("| strategy | server |"))
    columns = [cell.strip() for cell in lines[start].strip("|").split("|")][1:]
    cells = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        which, *verdicts = (cell.strip() for cell in line.strip("|").split("|"))
        name, _, form = which.partition(", ")
        cells += [
            Cell(strategy=name.strip("`"), form=form, column=column, verdict=verdict)
            for column, verdict in zip(columns, verdicts, strict=True)
        ]
    return cells


def found(cell: Cell, folder: Path) -> str:
    """What a cell really is: "yes", or the reason of its refusal."""
    try:
        if "deployed" in cell.column:
            cell.deploy(folder)
        else:
            cell.simulate("vectorized")
    except ValueError as refusal:
        for reason, words in REASONS.items():
            if words in str(refusal):
                return reason
        raise
    return "yes"


def write_table() -> None:
    """Put what is found into the page."""
    text = PAGE.read_text(encoding="utf-8")
    with TemporaryDirectory() as folder:
        for label, row in groupby(table(), key=lambda cell: (cell.strategy, cell.form)):
            head = f"| `{label[0]}`" + (f", {label[1]}" if label[1] else "") + " |"
            verdicts = []
            for cell in row:
                (place := Path(folder, str(cell))).mkdir(mode=0o700)
                verdicts.append(found(cell, place))
            old = next(line for line in text.splitlines() if line.startswith(head))
            text = text.replace(old, f"{head} {' | '.join(verdicts)} |")
    PAGE.write_text(text, encoding="utf-8")


TABLE = table()
SIMULATED = [
    (cell, engine)
    for cell in TABLE
    for engine in ("vectorized", "local", "sharded")
    if "deployed" not in cell.column
    and (STRESS or engine != "sharded" or cell.column in ("server", "some missing"))
]
DEPLOYED = [cell for cell in TABLE if "deployed" in cell.column]
ALWAYS = [
    cell
    for cell in DEPLOYED
    if STRESS or cell.verdict == "n" or (cell.verdict == "yes" and "sample" in cell.column)
]


def test_a_sample_takes_more_noise_in_a_single_release() -> None:
    """What the page says of reason a: of the noise on a mean, relative to that on all records."""

    def on_mean(rate: float, *, law: str, epsilon: float, delta: float) -> float:
        found = calibrate(
            epsilon=epsilon,
            delta=delta,
            rounds=1,
            sampling_rate=rate,
            adjacency="add-remove",
            mechanism=law,
        )
        return found.noise_multiplier / rate

    for epsilon in (0.1, 1.0, 8.0):
        whole = on_mean(1.0, law="laplace", epsilon=epsilon, delta=0.0)
        assert whole == pytest.approx(1 / epsilon)
        for rate in (0.9, 0.5, 0.1, 0.01):
            pure = 1 / (rate * np.log1p(np.expm1(epsilon) / rate))
            assert on_mean(rate, law="laplace", epsilon=epsilon, delta=0.0) == pytest.approx(pure)
            assert pure > whole
    gaussian = [on_mean(rate, law="gaussian", epsilon=1.0, delta=1e-6) for rate in (1, 0.5, 0.1)]
    assert gaussian[1] / gaussian[0] == pytest.approx(1.34, abs=0.005)
    assert gaussian[2] / gaussian[0] == pytest.approx(3.4, abs=0.02)


def test_every_strategy_has_a_row_and_every_reason_is_explained() -> None:
    assert {cell.strategy for cell in TABLE} == set(STRATEGIES)
    page = PAGE.read_text(encoding="utf-8")
    explained = set(re.findall(r"^- \*\*(\w)\*\* ", page, flags=re.MULTILINE))
    assert explained == set(REASONS) == {cell.verdict for cell in TABLE} - {"yes"}


@pytest.mark.parametrize(("cell", "engine"), SIMULATED, ids=str)
def test_a_simulation_runs_or_is_refused_as_the_page_says(
    cell: Cell, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharded, "RaySession", lambda **_options: Workers(workers=2))
    if cell.verdict == "yes":
        cell.simulate(engine)
        return
    with pytest.raises(ValueError, match=REASONS[cell.verdict]):
        cell.simulate(engine)


@pytest.mark.parametrize("cell", ALWAYS, ids=str)
def test_a_deployment_runs_or_is_refused_as_the_page_says(cell: Cell, tmp_path: Path) -> None:
    if cell.verdict == "yes":
        cell.deploy(tmp_path)
        return
    with pytest.raises(ValueError, match=REASONS[cell.verdict]):
        cell.deploy(tmp_path)


if __name__ == "__main__":
    write_table()
