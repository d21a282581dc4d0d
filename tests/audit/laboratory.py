"""A laboratory: everything that a release makes of neighbouring tables, to its directory."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.privacy.mechanisms import LaplaceMechanism, Mechanism
from fedpriv.privacy.mechanisms.selection import Selection
from fedpriv.privacy.randomness import RandomStream
from fedpriv.simulations.report.render import page
from fedpriv.simulations.run import release_outcome as outcome
from tests.audit.neighbours import Case, Row, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

    from fedpriv.federation.queries.kinds import Query


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
