"""A clinic's table with every kind of column, and experiments on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = """
label = "{label}"
{positive}
party = "ward"
out_of_range = "clamp"
test_column = "year"
test_values = ["2025"]

[columns.age]
kind = "number"
min = 0
max = 100
fill = 50

[columns.blood]
kind = "category"
values = ["A", "B", "0"]
fill = "0"

[columns.ward]
kind = "category"
values = ["north", "south"]

[columns.outcome]
kind = "category"
values = ["well", "ill"]

[columns.grade]
kind = "category"
values = ["mild", "severe", "none"]

[columns.days]
kind = "number"
min = 0
max = 40
"""

LABELS = {
    "outcome": ('positive = "ill"', "logistic"),
    "grade": ("", "softmax"),
    "days": ("", "huber-regression"),
}


def clinic(
    folder: Path, *, label: str = "outcome", model: str | None = None, rows: int = 400
) -> dict[str, Any]:
    """Write a table and its schema; the experiment on it."""
    rng = np.random.default_rng(0)
    age = rng.uniform(-10, 110, rows)
    blood = rng.choice(["A", "B", "0", "", "other"], rows)
    sick = (age + 20 * (blood == "A") + rng.normal(0, 10, rows) > 60).astype(int)
    columns = {
        "age": [f"{value:.3f}" if value > -5 else "" for value in age],
        "blood": blood,
        "ward": rng.choice(["north", "south"], rows),
        "year": rng.choice(["2024", "2025"], rows),
        "outcome": np.array(["well", "ill"])[sick],
        "grade": np.array(["none", "mild", "severe"])[sick + sick * (age > 90)],
        "days": [f"{value:.2f}" for value in np.clip(age / 3, 0, 40)],
    }
    lines = [",".join(columns), *(",".join(row) for row in zip(*columns.values(), strict=True))]
    (folder / "clinic.csv").write_text("\n".join(lines) + "\n")
    positive, fitting = LABELS[label]
    described = [
        table
        for table in SCHEMA.format(label=label, positive=positive).split("\n\n")
        if not any(f"[columns.{other}]" in table for other in LABELS if other != label)
    ]
    (folder / "schema.toml").write_text("\n\n".join(described))
    return {
        "data": {
            "path": str(folder / "clinic.csv"),
            "schema": str(folder / "schema.toml"),
            "public_test": True,
        },
        "model": {"name": model or fitting, "l2": 0.01},
        "strategy": {"name": "gradient-perturbation", "rounds": 5, "learning_rate": 1.0},
        "privacy": {"epsilon": 20.0},
    }
