"""Neighbouring tables, and everything that a release makes of them, from the file to its directory.

A `World` writes a small table with a schema and an experiment. `Watch` runs the whole command on it
and notes, by hooks that only tests have, every sum before its noise and every release after it. A
second run can be scripted: it is given the releases of the first, so that both ask for the same
sums and differ by what one record does to each of them, as in the proof of adaptive composition.
"""

from __future__ import annotations

import csv
import json
import os
import re
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import count
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv._toml import to_toml
from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.privacy.mechanisms import LaplaceMechanism, Mechanism
from fedpriv.privacy.mechanisms.selection import Selection
from fedpriv.privacy.randomness import RandomStream
from fedpriv.simulations.report.render import page
from fedpriv.simulations.run import outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pytest

    from fedpriv.federation.queries.kinds import Query

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


@dataclass(frozen=True, kw_only=True, eq=False)
class Released:
    """One call of a mechanism: the exact sum on its grid, and what was made of it."""

    mechanism: Mechanism
    total: np.ndarray[Any, Any]
    step: float
    value: np.ndarray[Any, Any]


@dataclass(frozen=True, kw_only=True, eq=False)
class Selected:
    """One call of a selection: the exact scores, and the index that was chosen."""

    selection: Selection
    scores: np.ndarray[Any, Any]
    index: int


@dataclass(kw_only=True, eq=False)
class Watch:
    """What one run did, as no observer of its outcome can see it."""

    directory: Path
    code: int = 0
    said: str = ""
    releases: list[Released] = field(default_factory=list)
    selections: list[Selected] = field(default_factory=list)
    queries: list[Query] = field(default_factory=list)
    federation: VectorizedFederation | None = None

    def files(self) -> dict[str, bytes]:
        """The outcome: all files but those of the owner."""
        paths = {path.name: path for path in self.directory.iterdir()} if self.code == 0 else {}
        paths.pop("private", None)
        return {name: path.read_bytes() for name, path in paths.items()}

    def json(self, name: str) -> Any:
        return json.loads((self.directory / name).read_text())


class Laboratory:
    """Runs `fedpriv run --release`, watched, with randomness that repeats; or `describe`."""

    def __init__(self, command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
        self._command, self._patch = command, monkeypatch

    def run(
        self,
        case: Case,
        rows: list[Row],
        folder: Path,
        *,
        script: Watch | None = None,
        seed: int = 0,
    ) -> Watch:
        """One release; with a ``script``, it gets the releases of that run instead of its own."""
        study = write(case, rows, folder)
        ledger = folder / "own.ledger"
        watch = Watch(directory=folder / "out")
        with self._patch.context() as patch:
            self._hook(patch, watch, script, seed)
            done = self._command(
                "describe" if case.strategy["name"] == "describe" else "run",
                study,
                "--release",
                "--ledger",
                ledger,
                "--new-ledger",
                "--out",
                watch.directory,
            )
        watch.code = done.code
        said = " ".join((done.out + done.err).split()).replace(str(folder), "FOLDER")
        watch.said = re.sub(r"-[0-9a-f]{8}'", "-RUN'", said)  # drawn for every run
        return watch

    @staticmethod
    def _hook(patch: pytest.MonkeyPatch, watch: Watch, script: Watch | None, seed: int) -> None:
        release, select, add_up = Mechanism.release, Selection.select, VectorizedFederation.sum
        numbers = count()

        def from_os(_cls: type) -> RandomStream:
            key = sha256(f"{seed}/{next(numbers)}".encode()).digest()
            return RandomStream(key, secure=True)

        def released(self: Mechanism, total: Any, *, step: float, stream: Any) -> Any:
            value = release(self, total, step=step, stream=stream)
            if script is not None:
                value = script.releases[len(watch.releases)].value
            watch.releases.append(
                Released(mechanism=self, total=np.array(total), step=step, value=value)
            )
            return value

        def selected(self: Selection, scores: Any, stream: Any) -> int:
            index = select(self, scores, stream)
            if script is not None:
                index = script.selections[len(watch.selections)].index
            watch.selections.append(Selected(selection=self, scores=np.array(scores), index=index))
            return index

        def summed(self: VectorizedFederation, query: Query) -> Any:
            watch.federation = self
            watch.queries.append(query)
            return add_up(self, query)

        patch.setattr(os, "fsync", lambda _file: None)  # no machine will fail here
        patch.setattr(RandomStream, "from_os", classmethod(from_os))
        patch.setattr(Mechanism, "release", released)
        patch.setattr(Selection, "select", selected)
        patch.setattr(VectorizedFederation, "sum", summed)


def public_part(watch: Watch, *, adaptive: bool) -> dict[str, Any]:
    """All of an outcome that must not depend on a record; random names are blanked out.

    What follows from noisy releases is left out: of a plan that is fixed beforehand, the model
    and metrics on public test records; of an adaptive one, also its noise and its end.
    """
    part: dict[str, Any] = {}
    run = watch.json("result.json")["run"]
    ledger = watch.json("statement.json")["ledger"] or {}
    noisy = {outcome.Origin.TESTED, *({outcome.Origin.NOISY} if adaptive else ())}
    for name, content in watch.files().items():
        if name == "model.npz":
            with np.load(watch.directory / name) as arrays:
                kept = {key: str(arrays[key].tolist()) for key in arrays if key != "theta"}
                place = str(watch.directory.parent)  # of code of the user's own
                blanked = {key: text.replace(place, "…") for key, text in kept.items()}
                part[name] = (blanked, arrays["theta"].shape)
        elif name in ("metrics.csv", "metrics.json"):
            rows = watch.json("metrics.json")
            part[name] = (
                sorted({key for row in rows for key in row})
                if adaptive
                else [
                    {key: value for key, value in row.items() if outcome.ROUND[key] not in noisy}
                    for row in rows
                ]
            )
        elif name == "report.html":
            part[name] = page(watch.json("report.json")) == content.decode()  # and nothing else
        elif adaptive and name not in ("config.toml", "result.json"):
            continue  # plan and statement tell what was admitted on the way
        else:
            text = content.decode()
            if name == "result.json":
                values = json.loads(text).items()
                text = json.dumps({k: v for k, v in values if outcome.RESULT[k] not in noisy})
            if name == "report.json":
                values = json.loads(text)
                sections = [s for s in values["sections"] if outcome.REPORT[s["id"]] not in noisy]
                text = json.dumps({**values, "headline": "…", "sections": sections})
            for drawn in (run, str(ledger.get("head")), str(watch.directory.parent)):
                text = text.replace(drawn, "…")
            part[name] = text
    return part


def moved(one: Released, other: Released) -> float:
    """How far a record moved the exact sum of a release, in the norm that its noise is for."""
    order = 1 if isinstance(one.mechanism, LaplaceMechanism) else 2
    apart = (one.total - other.total).astype(np.float64)
    return float(np.linalg.norm(apart, order) * one.step)
