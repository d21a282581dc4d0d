"""Tables to describe: a study with missing values, as files and as a pandas DataFrame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fedpriv._toml import to_toml

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA: dict[str, Any] = {
    "label": "died",
    "positive": "yes",
    "party": "site",
    "person": "who",
    "out_of_range": "clamp",
    "columns": {
        "site": {"kind": "category", "values": ["north", "south", "west"]},
        "age": {"kind": "number", "min": 0, "max": 128},
        "weight": {"kind": "number", "min": 30, "max": 158},
        "smoker": {"kind": "category", "values": ["no", "yes"]},
        "time": {"kind": "number", "min": 0, "max": 16},
        "died": {"kind": "category", "values": ["no", "yes"]},
    },
}
DESCRIBE: dict[str, Any] = {
    "edges": {"age": [32, 64]},
    "tables": [["smoker", "died"]],
    "survival": {
        "time": "time",
        "event": "died",
        "seen": "yes",
        "edges": [2, 4, 6, 8, 10, 12, 14],
    },
}


def study(records: int, seed: int = 0) -> pd.DataFrame:
    """Records of a study; numbers are multiples of 1/8, so that nothing is lost in scaling."""
    rng = np.random.default_rng(seed)
    age = np.rint(8 * rng.normal(56, 14, records).clip(0, 128)) / 8
    smoker = rng.random(records) < 0.3
    event = rng.exponential(np.where(smoker, 6, 10))
    censored = rng.uniform(0, 16, records)
    frame = pd.DataFrame(
        {
            "site": rng.choice(["north", "south", "west"], records),
            "who": [f"person {index // 2}" for index in range(records)],
            "age": age,
            "weight": np.rint(8 * (60 + age / 4 + rng.normal(0, 9, records)).clip(30, 158)) / 8,
            "smoker": np.where(smoker, "yes", "no"),
            "time": np.rint(64 * np.minimum(event, censored)) / 64,
            "died": np.where(event < censored, "yes", "no"),
        }
    )
    frame.loc[rng.random(records) < 0.04, "age"] = np.nan
    frame.loc[rng.random(records) < 0.02, "smoker"] = np.nan
    return frame


def written(folder: Path, frame: pd.DataFrame, **tables: Any) -> dict[str, Any]:
    """The experiment that describes a frame, with its files in ``folder``."""
    frame.to_csv(folder / "study.csv", index=False)
    (folder / "schema.toml").write_text(to_toml(SCHEMA))
    data = {"path": str(folder / "study.csv"), "schema": str(folder / "schema.toml")}
    tables = {key: dict(value) for key, value in tables.items()}
    return {"data": {**data, **tables.pop("data", {})}, "describe": DESCRIBE, **tables}
