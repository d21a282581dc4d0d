"""Cancelled runs at the server: recorded first, announced to every party, never resumed.

    private/seats.json        the runs of the protocol that served a run, each noted before it began
    private/cancelled.json    the run was cancelled, when, and which parties know it

The record is on the disk before any party is told, and from then on the run is closed here. A party
that was away is told by the next run, or by cancelling again; until then it holds a seat that
nobody asks. What was spent stays spent, here and at the parties.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fedpriv.federation.protocol.errands import MOST_SEATS, Cancel, Cancelled
from fedpriv.simulations.deploy.run.closed import CANCELLED, is_cancelled
from fedpriv.simulations.deploy.run.jobs.errands import DONE, PATIENCE, send
from fedpriv.simulations.run.files import PRIVATE, private, read_json, write_json
from fedpriv.simulations.run.kept_secret import forget_secret

if TYPE_CHECKING:
    from pathlib import Path

    from flwr.serverapp import Grid

    from fedpriv.federation.engines.courier import Patience
    from fedpriv.federation.engines.seals import Seal

_SEATS = "seats.json"


def note_seat(directory: Path, run: bytes) -> None:
    """Remember a run of the protocol that is about to serve the run of a directory."""
    path = private(directory) / _SEATS
    known = read_json(path) if path.exists() else []
    write_json(path, [*known, run.hex()][-MOST_SEATS:])


def record(directory: Path) -> None:
    """Record that a run is cancelled; durable on return.

    Raises:
        ValueError: It was never started, or is finished.
    """
    identity = directory / PRIVATE / "run.json"
    if not identity.exists():
        raise ValueError(
            f"{str(directory)!r} is no directory of a run: there is nothing to cancel."
        )
    _require_unfinished(directory)
    if not is_cancelled(directory):
        now = datetime.now(tz=UTC).isoformat(timespec="seconds")
        values = {"run": read_json(identity)["run"], "time": now, "told": []}
        write_json(private(directory) / CANCELLED, values)
    forget_secret(directory)


def tell(
    directory: Path,
    grid: Grid,
    *,
    names: tuple[str, ...],
    seal: Seal,
    patience: Patience = PATIENCE,
) -> dict[str, str]:
    """Tell every party that is there that a run was cancelled; what came of it, for each.

    Raises:
        ValueError: It was finished before it ended.
    """
    _require_unfinished(directory)
    path, seats = private(directory) / CANCELLED, private(directory) / _SEATS
    known: dict[str, Any] = read_json(path)
    joined = bytes.fromhex("".join(read_json(seats))) if seats.exists() else b""
    outcome = send(
        grid,
        "cancel",
        lambda run: Cancel(run=run, round=0, party=0, name=known["run"].encode(), seats=joined),
        names=names,
        expected=Cancelled,
        seal=seal,
        patience=patience,
    )
    told = {name for name, said in outcome.words.items() if said == DONE}
    write_json(path, {**known, "told": sorted(told.union(known["told"]))})
    return {name: "left it" if said == DONE else said for name, said in outcome.words.items()}


def untold(runs: Path, names: tuple[str, ...]) -> list[Path]:
    """The directories of cancelled runs that some party does not know to be cancelled."""
    found = [
        path
        for path in sorted(runs.glob(f"*/{PRIVATE}/{CANCELLED}"))
        if is_cancelled(path.parents[1])
    ]
    return [path.parents[1] for path in found if set(names) - set(read_json(path)["told"])]


def _require_unfinished(directory: Path) -> None:
    if (directory / "result.json").exists():
        raise ValueError(
            f"the run in {str(directory)!r} is finished: what it released cannot be taken back."
        )
