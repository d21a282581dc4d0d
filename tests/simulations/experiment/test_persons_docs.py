"""The page about persons does what it says, and persons as the unit beat group privacy."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t

from fedpriv._toml import parse_toml
from fedpriv.data import parse_schema
from fedpriv.privacy.gaussian import gdp_epsilon, gdp_mu
from fedpriv.simulations.experiment.file import parse_experiment, read_experiment

PAGE = (Path(__file__).parents[3] / "docs" / "persons.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_files_on_the_page_are_accepted() -> None:
    schema, experiment = (parse_toml(text, "page") for text in blocks("toml"))
    assert parse_schema(schema).person == "patient"
    experiment["data"]["name"] = "visits"
    study = parse_experiment({**experiment, "strategy": {"name": "gradient-perturbation"}})
    assert study.persons.records == 5


def test_the_person_unit_beats_group_privacy_from_three_records_on() -> None:
    """The code of the page: the same promise to a person, the same seeds; repeatable to the bit.

    The lower end of a 95 % confidence interval of the gain in log-loss is above zero.
    """
    names: dict[str, Any] = {}
    for example in blocks("python"):
        exec(example, names)  # noqa: S102 (our own page)
    gains = np.array(names["gains"])
    error = float(gains.std(ddof=1)) / np.sqrt(len(gains))
    assert gains.mean() - t.ppf(0.975, len(gains) - 1) * error > 0


def test_the_budgets_of_the_experiment_are_what_group_privacy_makes_of_them() -> None:
    axes = read_experiment("persons").compare
    assert axes is not None
    for entry in axes.strategies[1:]:
        for epsilon, changed in entry.at.items():
            mu = gdp_mu(epsilon=float(epsilon), delta=1e-6) / 8
            assert changed["privacy.epsilon"] <= gdp_epsilon(mu=mu, delta=1e-6) * (1 + 1e-12)
