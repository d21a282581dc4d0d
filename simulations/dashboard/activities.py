"""Activities: what is running, or ran, in a directory; the content of a dashboard.

Everything is read from files that others write: results, configurations, the progress of what goes
on. The status of a member of a federation is that of `fedpriv deploy status --json`.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal

from fedpriv._toml import read_toml
from fedpriv.simulations.run.files import CELLS, PRIVATE, read_json
from fedpriv.simulations.run.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

State = Literal["running", "interrupted", "failed", "finished"]
Kind = Literal["run", "comparison"]

_DEPTH = 5  # results/NAME/TIME-HASH, below a folder of projects; FEDERATION/server/runs/NAME
_MOST = 200  # activities, the newest
_MOST_FOLDERS = 20_000  # looked at
_REPORT = "report.html"


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """A run or a comparison.

    Attributes:
        id: Names it in addresses: a hash of its directory.
        kind: "run" or "comparison".
        directory: Relative to what is watched.
        title: What its experiment calls it.
        strategy: Of a run.
        state: "running" while a process of its own goes on; "interrupted" if it is gone.
        changed: When it last showed life, in seconds since 1970.
        unit: What is counted: "rounds" or "runs".
        done: How many are done; None if nobody says.
        total: Of how many.
        seconds_left: At the pace so far; None if it does not run, or has only begun.
        epsilon: What was spent so far; of what is finished, at most.
        epsilon_budget: What may be; None of a comparison, and of a run without noise.
        simulated: Whether no privacy is spent at all; None before that is written.
        facts: Metrics by name.
        failure: Why there is no result.
        report: Whether there is a page about it.
    """

    id: str
    kind: Kind
    directory: str
    title: str
    strategy: str | None = None
    state: State
    changed: float
    unit: str
    done: int | None = None
    total: int | None = None
    seconds_left: float | None = None
    epsilon: float | None = None
    epsilon_budget: float | None = None
    simulated: bool | None = None
    facts: dict[str, float] = field(default_factory=dict)
    failure: str = ""
    report: bool = False


def required(root: Path) -> Path:
    """A directory that is there."""
    if not root.is_dir():
        raise ValueError(
            f"DIR must be a directory, got {str(root)!r}: the dashboard follows what is in it."
        )
    return root


def overview(root: Path) -> dict[str, Any]:
    """All that a dashboard shows of a directory, as JSON-ready values."""
    folders = _folders(required(root))
    return {
        "directory": str(root.resolve()),
        "activities": [asdict(each) for each in activities(root, folders)],
        "members": members(root, folders),
    }


def activities(root: Path, folders: Sequence[Path]) -> list[Activity]:
    """Runs and comparisons in these folders: those that go on first, then the newest."""
    found = [_activity(path, root) for path in folders if _is_activity(path)]
    return sorted(found, key=lambda each: (each.state != "running", -each.changed))[:_MOST]


def members(root: Path, folders: Sequence[Path]) -> list[dict[str, Any]]:
    """Members of federations in these folders, with what `status --json` says of each."""
    from fedpriv.simulations.deploy.folders import member_folder
    from fedpriv.simulations.deploy.health.status_facts import status_facts

    found = []
    for path in folders:
        if not ((path / "federation.toml").is_file() or (path / "party.toml").is_file()):
            continue
        try:
            facts = status_facts(member_folder(path))
        except (ValueError, OSError) as error:  # it is being made, or was changed by hand
            facts = {"state": "unknown", "error": str(error)}
        found.append({"directory": str(path.relative_to(root)), **facts})
    return found


def report_of(root: Path, wanted: str) -> bytes | None:
    """The page of the activity with an id; None if there is none."""
    for path in _folders(root):
        if _is_activity(path) and _id(path) == wanted and (path / _REPORT).is_file():
            return (path / _REPORT).read_bytes()
    return None


def _activity(path: Path, root: Path) -> Activity:
    known = _if_there(path / "config.toml")
    compared = not _is_run(path)
    progress, result = Progress.read(path), _if_there(path / "result.json")
    failure = path / PRIVATE / "failure.txt"
    finished = (path / "rows.json").is_file() if compared else bool(result)
    state: State = "interrupted"
    if finished:
        state = "finished"
    elif progress is not None and progress.alive:
        state = "running"
    elif failure.is_file():
        state = "failed"
    privacy = known.get("privacy", {})
    facts = dict(progress.facts) if progress is not None else {}
    spent = facts.pop("epsilon", None)
    if result:
        metrics = {name: result.get(name) for name in ("accuracy", "loss", "rmse")}
        facts = {name: value for name, value in metrics.items() if value is not None}
        spent = result.get("epsilon")
    budget = privacy.get("epsilon", 1.0)
    return Activity(
        id=_id(path),
        kind="comparison" if compared else "run",
        directory=str(path.relative_to(root)),
        title=str(known.get("name", path.name)),
        strategy=None if compared else known.get("strategy", {}).get("name"),
        state=state,
        changed=_changed(path, progress),
        unit="runs" if compared else "rounds",
        done=result.get("rounds") if progress is None else progress.done,
        total=None if progress is None else progress.total,
        seconds_left=None if progress is None or state != "running" else progress.seconds_left,
        epsilon=spent,
        epsilon_budget=budget if isinstance(budget, int | float) and not compared else None,
        simulated=True if compared else _simulated(path),
        facts=facts,
        failure=failure.read_text().strip() if state == "failed" else "",
        report=finished and (path / _REPORT).is_file(),
    )


def _folders(root: Path) -> list[Path]:
    """The root and the folders below it, but for hidden ones, private ones, and links."""
    found, level = [root], [root]
    for _ in range(_DEPTH):
        level = [below for path in level for below in _below(path)][: _MOST_FOLDERS - len(found)]
        found += level
    return found


def _below(path: Path) -> list[Path]:
    try:
        with os.scandir(path) as entries:
            return [
                path / entry.name
                for entry in entries
                if entry.is_dir(follow_symlinks=False)
                and not entry.name.startswith((".", "__"))
                and entry.name not in (PRIVATE, CELLS)
            ]
    except OSError:  # gone meanwhile, or not for us
        return []


def _is_activity(path: Path) -> bool:
    """Whether a run or a comparison was started in a folder."""
    started = _is_run(path) or (path / CELLS).is_dir() or Progress.read(path) is not None
    return started and (path / "config.toml").is_file()


def _is_run(path: Path) -> bool:
    return (path / PRIVATE / "run.json").is_file()


def _simulated(path: Path) -> bool | None:
    release = _if_there(path / PRIVATE / "run.json").get("release")
    return None if release is None else not release


def _if_there(path: Path) -> dict[str, Any]:
    """A file of values; nothing if it is not there, or half there."""
    try:
        found = read_toml(path, "experiment") if path.suffix == ".toml" else read_json(path)
    except (ValueError, OSError):
        return {}
    return found if isinstance(found, dict) else {}


def _changed(path: Path, progress: Progress | None) -> float:
    if progress is not None:
        return progress.updated
    try:
        return max((path / name).stat().st_mtime for name in ("", "config.toml"))
    except OSError:
        return 0.0


def _id(path: Path) -> str:
    return sha256(os.fsencode(path.resolve())).hexdigest()[:16]
