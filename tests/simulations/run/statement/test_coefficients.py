"""Coefficients in the units of a table: without noise, the table that statsmodels has.

The oracle is statsmodels' OLS (classical errors, normal quantiles) and Logit on the raw columns,
with a skewed column, a rare level, and the first level of each category as its reference.
"""

from __future__ import annotations

import csv
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.special import expit
from statsmodels.discrete.discrete_model import Logit
from statsmodels.regression.linear_model import OLS

import fedpriv
from fedpriv._toml import to_toml
from fedpriv.data import Bounds, Preprocessing, parse_schema
from fedpriv.inference.estimate import LINEAR_RULE, Curvature, Estimate
from fedpriv.inference.noisy_matrix import NoisyMatrix
from fedpriv.privacy.budget import Budget
from fedpriv.simulations.run.statement.coefficients import coding_of, refused

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

N = 900
RNG = np.random.default_rng(12)
AGE, DOSE = RNG.uniform(20, 80, N), RNG.exponential(1.5, N).clip(0, 10)
WARD, SEX = RNG.choice(3, N, p=[0.55, 0.4, 0.05]), RNG.integers(0, 2, N)
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


def assert_is_the_table_of(peer: Any, found: Any) -> None:
    """Estimates, errors and intervals within 1e-3 of a standard error, and p-values within 1e-3."""
    errors = np.asarray(peer.bse)
    low, high = np.asarray(peer.conf_int(0.05)).T
    for key, theirs in (
        ("estimate", peer.params),
        ("stderr", errors),
        ("low", low),
        ("high", high),
    ):
        assert values(found, key) / errors == pytest.approx(theirs / errors, abs=1e-3), key
    assert values(found, "p_value") == pytest.approx(np.asarray(peer.pvalues), abs=1e-3)


def test_a_linear_table_without_noise_is_that_of_statsmodels(folder: Path) -> None:
    found = fedpriv.fit(study(folder, "pressure"))
    peer = OLS(PRESSURE, RAW).fit(cov_type="nonrobust", use_t=False)
    assert found.coefficients is not None
    assert tuple(row.name for row in found.coefficients.rows) == NAMES
    assert found.coefficients.references == {"ward": "a", "sex": "f"}
    assert found.coefficients.about.endswith("the mean of pressure")
    assert_is_the_table_of(peer, found)
    with pytest.raises(AssertionError):  # a test that can fail: a sandwich has other errors
        assert_is_the_table_of(OLS(PRESSURE, RAW).fit(cov_type="HC1", use_t=False), found)


def test_a_logistic_table_without_noise_is_that_of_statsmodels(folder: Path) -> None:
    """The ridge of 1e-5 is taken back to the first order."""
    found = fedpriv.fit(study(folder, "sick"))
    peer = Logit(SICK.astype(float), RAW).fit(disp=False, method="newton", tol=1e-12)
    assert found.coefficients is not None
    assert tuple(row.name for row in found.coefficients.rows) == NAMES
    assert found.coefficients.about.endswith("log-odds of sick = yes")
    assert_is_the_table_of(peer, found)


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


def estimate(matrix: NoisyMatrix) -> Estimate:
    """One that is refused, of which only the curvature is looked at."""
    return Estimate(
        values=np.zeros(matrix.size),
        covariance=None,
        curvature=Curvature.of(matrix, rule=LINEAR_RULE),
    )


def seen(least: float, stddev: float) -> Estimate:
    return estimate(NoisyMatrix.released(np.diag([least, *[1e6] * 7]), stddev=stddev))


def test_a_refusal_says_what_would_do() -> None:
    """σ√(2d) = 20, and 40 are needed: 30 are a quarter of a factor 4/3 short."""
    budget = Budget(epsilon=1.0, delta=1e-6)
    found = seen(30.0, 5.0)
    assert not found.curvature.enough
    assert found.curvature.missing_factor == pytest.approx(4 / 3)
    told = refused(found, records=3000, budget=budget)
    assert "About 4000 records would do" in told
    assert "about epsilon = 1.36" in told  # of 4/3 times the μ
    assert seen(30.0 * 1.34, 5.0).curvature.enough
    assert seen(30.0, 5.0 / 1.34).curvature.enough


def test_a_refusal_says_no_more_than_it_can_know() -> None:
    hidden = seen(-3.0, 5.0)
    assert hidden.curvature.missing_factor == inf
    told = refused(hidden, records=3000, budget=Budget(epsilon=1.0, delta=1e-6))
    assert "More than 6000 records would do" in told
    exact = NoisyMatrix.released(np.diag([0.0, 1.0]), stddev=0.0)
    assert "determine one another" in refused(estimate(exact), records=10, budget=None)


def test_a_refusal_for_the_pull_of_the_regulariser_says_so() -> None:
    found = replace(seen(300.0, 5.0), pull=np.array(1.234))
    told = refused(found, records=3000, budget=None)
    assert "may be wrong by 1.2 standard errors" in told
