"""Neighbouring tables: cases to try, their files, and all that one record may be exchanged for."""

from __future__ import annotations

import csv
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv._toml import to_toml

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Row = dict[str, str]
GRADIENTS = {"name": "gradient-perturbation", "rounds": 4}
OUTPUT = {"name": "output-perturbation"}
OBJECTIVE = {"name": "objective-perturbation"}
INFERENCE = {"name": "inference"}


PARTIES = {"north": 26, "south": 17, "west": 7}
EXTREME, COPY, SMALLEST = 20, 30, 48  # rows that are made so


@dataclass(frozen=True, kw_only=True)
class Case:
    """One way to make a release.

    Attributes:
        name: What tests call it.
        strategy: The section of the experiment.
        adjacency: When two tables are neighbours.
        model: The section of the experiment.
        data: More keys of its data section.
        file: "csv" or "parquet".
        fold: Whether a public column sets test records apart.
        delta: Of the budget.
        epsilon: Of the budget.
        code: Files of the user's own, by name, beside the experiment.
        tuning: The section of the experiment, if there is one.
    """

    name: str
    strategy: dict[str, Any]
    adjacency: str = "replace-one"
    model: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    file: str = "csv"
    fold: bool = False
    delta: float = 1e-5
    epsilon: float = 2.0
    code: dict[str, str] = field(default_factory=dict)
    tuning: dict[str, Any] = field(default_factory=dict)

    @property
    def task(self) -> str:
        name = self.model.get("name", "logistic")
        return {"softmax": "classes", "huber-regression": "number", "squared": "number"}.get(
            name, "binary"
        )

    @property
    def changes(self) -> int:
        """In how many terms of a sum neighbours differ."""
        return 2 if self.adjacency == "replace-one" else 1

    @property
    def _wards(self) -> list[str]:
        """So many that a record is as long as the image that a network takes it for."""
        pixels = prod(self.model.get("shape", (4,)))
        return ["icu", "er", *(f"w{i}" for i in range(pixels - 4))]

    def experiment(self, folder: Path) -> dict[str, Any]:
        data: dict[str, Any] = {
            "path": str(folder / f"clinic.{self.file}"),
            "schema": str(folder / "schema.toml"),
            **self.data,
        }
        if self.adjacency == "add-remove":
            data.setdefault("records", [25, 15, 10])
        return {
            "name": "audit",
            "data": {key: value for key, value in data.items() if value is not None},
            "model": {"name": "logistic", "l2": 0.1, **self.model},
            "strategy": self.strategy,
            "privacy": {
                "epsilon": self.epsilon,
                "delta": self.delta,
                "adjacency": self.adjacency,
            },
            **({"tuning": self.tuning} if self.tuning else {}),
        }

    def schema(self) -> dict[str, Any]:
        labels: dict[str, dict[str, Any]] = {
            "binary": {"kind": "category", "values": ["no", "yes"]},
            "classes": {"kind": "category", "values": ["a", "b", "c"]},
            "number": {"kind": "number", "min": -1, "max": 1},
        }
        return {
            "label": "outcome",
            **({"positive": "yes"} if self.task == "binary" else {}),
            "party": "clinic",
            "out_of_range": "clamp",
            **({"test_column": "fold", "test_values": ["5"]} if self.fold else {}),
            "columns": {
                "age": {"kind": "number", "min": 0, "max": 100, "fill": 50},
                "dose": {"kind": "number", "min": -1, "max": 1, "fill": 0},
                "ward": {"kind": "category", "values": self._wards, "fill": "er"},
                "outcome": labels[self.task],
                "clinic": {"kind": "category", "values": list(PARTIES)},
            },
        }


def table(task: str, seed: int = 0) -> list[Row]:
    """Rows in no order of parties; one is extreme, and one is a copy of another."""
    rng = np.random.default_rng(seed)
    clinics = rng.permutation(np.repeat(list(PARTIES), list(PARTIES.values())))
    rows = [_row(task, rng, str(clinic)) for clinic in clinics]
    rows[EXTREME] = {**_extreme(task), "clinic": rows[EXTREME]["clinic"], "fold": "2"}
    rows[COPY] = dict(rows[COPY - 1])
    west = next(i for i, row in enumerate(rows) if row["clinic"] == "west")
    rows[west], rows[SMALLEST] = rows[SMALLEST], rows[west]
    return rows


def _row(task: str, rng: np.random.Generator, clinic: str) -> Row:
    age, dose = rng.uniform(10, 90), rng.uniform(-1, 1)
    score = (age - 50) / 40 + dose + rng.normal() / 2
    label = {
        "binary": "yes" if score > 0 else "no",
        "classes": "abc"[int(np.digitize(score, [-0.5, 0.5]))],
        "number": f"{np.clip(score / 3, -1, 1):.3f}",
    }[task]
    return {
        "age": f"{age:.1f}",
        "dose": f"{dose:.3f}",
        "ward": str(rng.choice(["icu", "er"])),
        "outcome": label,
        "clinic": clinic,
        "fold": str(rng.integers(1, 6)),
    }


def _extreme(task: str, sign: int = 1) -> Row:
    ends = {"binary": ("yes", "no"), "classes": ("a", "c"), "number": ("1", "-1")}[task]
    return {
        "age": "100" if sign > 0 else "0",
        "dose": str(sign),
        "ward": "icu" if sign > 0 else "er",
        "outcome": ends[sign < 0],
        "clinic": "",
        "fold": "",
    }


def neighbours(case: Case, rows: list[Row]) -> Iterator[tuple[str, list[Row]]]:
    """Tables that differ from ``rows`` by one record, the worst that we know of among them."""
    places = {
        "first row": 0,
        "smallest party": SMALLEST,
        "extreme record": EXTREME,
        "last row": len(rows) - 1,
        "copy": COPY,
    }
    for name, place in places.items():
        rest = [dict(row) for row in rows]
        if case.adjacency == "add-remove":
            del rest[place]
        else:
            rest[place] = {**rest[place], **_opposite(case.task, rest[place])}
        yield name, rest
    if case.adjacency == "replace-one":
        flipped = [dict(row) for row in rows]
        flipped[EXTREME]["outcome"] = _extreme(case.task, -1)["outcome"]
        yield "label flip", flipped


def _opposite(task: str, row: Row) -> Row:
    """The record at the other end of every range; it stays at its party."""
    sign = -1 if float(row["age"]) > 50 else 1
    return {k: v for k, v in _extreme(task, sign).items() if k not in ("clinic", "fold")}


def write(case: Case, rows: list[Row], folder: Path) -> Path:
    """The table, if there is one, its schema and its experiment; the path of the last."""
    folder.mkdir(parents=True)
    if not rows:  # everybody left; or built-in data, which have no use for it
        (folder / "clinic.csv").write_text(",".join(table(case.task)[0]) + "\n", encoding="utf-8")
    elif case.file == "csv":
        with (folder / "clinic.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0].keys())
            writer.writeheader()
            writer.writerows(rows)
    else:
        import pyarrow as pa
        from pyarrow import parquet

        columns: dict[str, Any] = {key: [row[key] for row in rows] for key in rows[0]}
        for key in ("age", "dose"):
            columns[key] = [float(value) if value.strip() else None for value in columns[key]]
        parquet.write_table(pa.table(columns), folder / "clinic.parquet")
    for name, text in case.code.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "schema.toml").write_text(to_toml(case.schema()))
    (folder / "study.toml").write_text(to_toml(case.experiment(folder)))
    return folder / "study.toml"
