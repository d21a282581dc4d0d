"""Coefficients in the units of a table: against the same regression on its raw columns."""

from __future__ import annotations

import csv
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

import fedpriv
from fedpriv._toml import to_toml
from fedpriv.data import Bounds, Preprocessing, parse_schema
from fedpriv.inference.estimate import LINEAR_RULE, Curvature
from fedpriv.inference.noisy_matrix import NoisyMatrix
from fedpriv.privacy.budget import Budget
from fedpriv.simulations.run.statement.coefficients import coding_of, refused

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

N = 900
RNG = np.random.default_rng(12)
AGE, DOSE = RNG.uniform(20, 80, N), RNG.uniform(0, 10, N)
WARD, SEX = RNG.integers(0, 3, N), RNG.integers(0, 2, N)
MEAN = 100 + 0.5 * AGE - 1.5 * DOSE + 3.0 * (WARD == 1) - 2.0 * (WARD == 2) + SEX
PRESSURE = MEAN + RNG.normal(0, 8, N)
SICK = RNG.random(N) < expit((MEAN - 120) / 10)
COLUMNS: dict[str, Any] = {
    "age": {"kind": "number", "min": 20, "max": 80},
    "ward": {"kind": "category", "values": ["a", "b", "c"]},
    "dose": {"kind": "number", "min": 0, "max": 10},
    "sex": {"kind": "category", "values": ["f", "m"]},
}
NAMES = ("age", "ward=b", "ward=c", "dose", "sex=m", "(intercept)")
# The same regression on raw columns; levels against the first.
RAW = np.column_stack([AGE, WARD == 1, WARD == 2, DOSE, SEX == 1, np.ones(N)]).astype(float)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with (tmp_path / "t.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["age", "ward", "dose", "sex", "pressure", "sick"])
        values = zip(AGE, WARD, DOSE, SEX, PRESSURE, SICK, strict=True)
        for age, ward, dose, sex, pressure, sick in values:
            writer.writerow([age, "abc"[ward], dose, "fm"[sex], pressure, "yes" if sick else "no"])
    return tmp_path


def study(folder: Path, label: str, **privacy: Any) -> dict[str, Any]:
    schema: dict[str, Any] = {"label": label, "out_of_range": "clamp", "columns": dict(COLUMNS)}
    if label == "sick":
        schema["positive"] = "yes"
    else:
        schema["columns"]["pressure"] = {"kind": "number", "min": 50, "max": 200}
    (folder / "schema.toml").write_text(to_toml(schema))
    return {
        "data": {
            "path": str(folder / "t.csv"),
            "schema": str(folder / "schema.toml"),
            "partition": "hashed",
            "parties": 1,
        },
        "privacy": {"epsilon": "inf", **privacy},
        "model": {"l2": 1e-5},
    }


def values(result: Any, key: str) -> NDArray[np.float64]:
    return np.array([getattr(row, key) for row in result.coefficients.rows])


def test_linear_coefficients_are_those_of_the_raw_columns(folder: Path) -> None:
    found = fedpriv.fit(study(folder, "pressure"))
    best, rss, *_ = np.linalg.lstsq(RAW, PRESSURE, rcond=None)
    errors = np.sqrt(np.diag(np.linalg.inv(RAW.T @ RAW)) * rss[0] / (N - 6))
    assert found.coefficients is not None
    assert tuple(row.name for row in found.coefficients.rows) == NAMES
    assert found.coefficients.references == {"ward": "a", "sex": "f"}
    assert found.coefficients.about.endswith("the mean of pressure")
    assert values(found, "estimate") == pytest.approx(best, rel=2e-3, abs=5e-3)
    assert values(found, "stderr") == pytest.approx(errors, rel=2e-3)


def test_logistic_coefficients_are_those_of_the_raw_columns(folder: Path) -> None:
    """The ridge of 1e-5 is taken back to the first order."""
    found = fedpriv.fit(study(folder, "sick"))
    signs, scale = np.where(SICK, 1.0, -1.0), np.array([50, 1, 1, 5, 1, 1])
    scaled = RAW / scale

    def loss(beta: NDArray[np.float64]) -> float:
        return float(np.logaddexp(0, -signs * (scaled @ beta)).sum())

    best = minimize(loss, np.zeros(6), method="BFGS", tol=1e-8).x
    p = expit(scaled @ best)
    errors = np.sqrt(np.diag(np.linalg.inv((scaled * (p * (1 - p))[:, None]).T @ scaled)))
    assert values(found, "estimate") == pytest.approx(best / scale, rel=1e-2, abs=5e-3)
    assert values(found, "stderr") == pytest.approx(errors / scale, rel=1e-2)
    assert found.coefficients is not None
    assert found.coefficients.about.endswith("log-odds of sick = yes")


def test_without_an_intercept_the_first_category_has_all_levels(folder: Path) -> None:
    tables = study(folder, "pressure")
    found = fedpriv.fit(tables, data={"intercept": 0.0})
    assert found.coefficients is not None
    assert found.coefficients.references == {"sex": "f"}
    rows = {row.name: row.estimate for row in found.coefficients.rows}
    best = np.linalg.lstsq(RAW, PRESSURE, rcond=None)[0]
    assert rows["ward=b"] - rows["ward=a"] == pytest.approx(best[1], abs=2e-2)
    assert rows["ward=a"] + rows["(intercept)"] == pytest.approx(best[5], rel=1e-3)


def test_all_levels_follow_from_those_that_are_kept() -> None:
    schema = parse_schema({"label": "y", "positive": "1", "columns": COLUMNS})
    rng = np.random.default_rng(0)
    for intercept in (1.0, 0.5, 0.0):
        path = Preprocessing(
            feature_names=schema.feature_names,
            max_norm=2.0,
            bounds=Bounds(scaling="divide", intercept=intercept),
            schema=schema,
        )
        coding = coding_of(path, scaled_label=False)
        table = {
            "age": rng.uniform(20, 80, 50),
            "dose": rng.uniform(0, 10, 50),
            "ward": rng.choice(["a", "b", "c"], 50),
            "sex": rng.choice(["f", "m"], 50),
        }
        x = path.features(table)
        assert x == pytest.approx(x[:, coding.kept] @ coding.levels.T, abs=1e-6)
        for one, other in coding.exclusive:
            assert (x[:, one] * x[:, other] == 0).all()
        if coding.constant is not None:
            assert x[:, coding.constant[0]] == pytest.approx(coding.constant[1])


def test_rows_that_are_clipped_have_no_units(folder: Path) -> None:
    found = fedpriv.run(
        study(folder, "sick"), strategy={"name": "inference"}, data={"scaling": "clip"}
    )
    assert found.coefficients is not None
    assert "data.scaling must be 'divide'" in found.coefficients.refusal
    assert found.coefficients.rows == ()


def curvature(least: float, stddev: float) -> Curvature:
    matrix = NoisyMatrix.released(np.diag([least, 1e6]), stddev=stddev)
    return Curvature.of(matrix, rule=LINEAR_RULE)


def test_a_refusal_says_what_would_do() -> None:
    """σ√(2d) = 20, and 40 are needed: 30 are a quarter of a factor 4/3 short."""
    budget = Budget(epsilon=1.0, delta=1e-6)
    found = curvature(30.0, 10.0)
    assert not found.enough
    assert found.missing_factor == pytest.approx(4 / 3)
    told = refused(found, records=3000, budget=budget)
    assert "About 4000 records would do" in told
    assert "about epsilon = 1.36" in told  # of 4/3 times the μ
    assert curvature(30.0 * 1.34, 10.0).enough
    assert curvature(30.0, 10.0 / 1.34).enough


def test_a_refusal_says_no_more_than_it_can_know() -> None:
    hidden = curvature(-3.0, 10.0)
    assert hidden.missing_factor == inf
    told = refused(hidden, records=3000, budget=Budget(epsilon=1.0, delta=1e-6))
    assert "More than 6000 records would do" in told
    exact = NoisyMatrix.released(np.diag([0.0, 1.0]), stddev=0.0)
    assert "determine one another" in refused(
        Curvature.of(exact, rule=LINEAR_RULE), records=10, budget=None
    )
