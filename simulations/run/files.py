"""The directory of one run: written so that at any moment a crash leaves the old file or the new.

What a release consists of is stated in `fedpriv.simulations.run.release_outcome`: the files of the
directory itself. Beside them, for the owner alone:

private/run.json         identity of the run: its id, config hash, whether it is real
private/checkpoint.npz   the state to go on from; gone when the run is complete
private/progress.json    how far it has come, while it goes on
private/draw.secret      source of all draws of a release that draws only once; gone at its end
private/costs.json       seconds, bytes and exchanges, which depend on the records
private/loading.json     rows dropped, values filled or moved to their bounds, in reading a table
private/failure.txt      why there is no result

``result.json`` comes last: its presence means that the run is complete.
"""

from __future__ import annotations

import csv
import io
import json
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np

from fedpriv._durable import replace_file
from fedpriv._json import parse_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

RESULTS = Path("results")
PRIVATE = "private"
CELLS = "cells"  # of a comparison: its runs' results
_STATE = "state"
_COSTS = "costs.json"


def new_directory(name: str, config_hash: str, *, out: Path | None = None) -> Path:
    """Make the directory of a new run: ``out``, or results/NAME/TIME-HASH."""
    if out is not None:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise ValueError(
                f"--out {str(out)!r} exists and is not an empty directory: choose another one, or "
                f"continue what is there with --resume {out}."
            )
        _make(out)
        return out
    time = datetime.now(tz=UTC).strftime("%Y%m%d-%H%M%S")
    parent = RESULTS / "".join(c if c.isalnum() or c in "-_." else "-" for c in name)
    for suffix in ("", *(f"-{count}" for count in range(2, 1000))):
        path = parent / f"{time}-{config_hash[:8]}{suffix}"
        with suppress(FileExistsError):
            _make(path, exist_ok=False)
            return path
    raise ValueError(f"no free directory in {str(parent)!r}: name one with --out.")


def _make(path: Path, *, exist_ok: bool = True) -> None:
    try:
        path.mkdir(parents=True, exist_ok=exist_ok)
    except FileExistsError:
        raise
    except OSError as error:
        raise ValueError(f"{str(path)!r} cannot be made: {error.strerror}.") from None


def private(directory: Path) -> Path:
    """The folder of a run for files outside its outcome, readable only by its owner."""
    folder = directory / PRIVATE
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def write_json(path: Path, value: Any) -> None:
    """A file of JSON; NaN and infinities are refused, not written."""
    replace_file(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """Read a file of JSON; one that is missing or damaged is a clear error."""
    try:
        return parse_json(path.read_text())
    except OSError as error:
        raise ValueError(f"{str(path)!r} cannot be read: {error.strerror}.") from None
    except ValueError:
        raise ValueError(f"{str(path)!r} is not JSON: the file was changed or damaged.") from None


def write_costs(directory: Path, costs: Mapping[str, Any]) -> None:
    """What a release cost in time, bytes and exchanges; for its owner."""
    write_json(private(directory) / _COSTS, costs)


def read_costs(directory: Path) -> dict[str, Any]:
    """Invert `write_costs`."""
    costs: dict[str, Any] = read_json(directory / PRIVATE / _COSTS)
    return costs


def write_metrics(directory: Path, rows: Sequence[Mapping[str, float | None]]) -> None:
    """metrics.csv and metrics.json; a metric that was not computed is empty, or null."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    replace_file(directory / "metrics.csv", text.getvalue())
    write_json(directory / "metrics.json", list(rows))


def write_arrays(path: Path, **arrays: Any) -> None:
    """A file of arrays that loads without pickle."""
    for name, array in arrays.items():
        if np.asarray(array).dtype.hasobject:  # numpy would pickle it
            raise TypeError(f"{name} must be an array of numbers or text.")
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    replace_file(path, buffer.getvalue())


def write_checkpoint(path: Path, state: Mapping[str, Any]) -> None:
    """Save a state of nested tables, lists, JSON scalars and numpy arrays, whole or not at all."""
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    text = json.dumps(_without_arrays(state, arrays), allow_nan=False)
    write_arrays(path, **{_STATE: np.frombuffer(text.encode(), np.uint8)}, **arrays)


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Invert `write_checkpoint`."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            state = json.loads(arrays[_STATE].tobytes())
            restored: dict[str, Any] = _with_arrays(state, dict(arrays))
    except (OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile):
        raise ValueError(
            f"{str(path)!r} cannot be read as a checkpoint: it was changed or damaged. Remove it "
            "to start the run from its first round."
        ) from None
    return restored


_ARRAY = "__array__"


def _without_arrays(value: Any, arrays: dict[str, np.ndarray[Any, Any]]) -> Any:
    match value:
        case np.ndarray():
            name = f"array{len(arrays)}"
            arrays[name] = value
            return {_ARRAY: name}
        case dict():
            return {key: _without_arrays(item, arrays) for key, item in value.items()}
        case list() | tuple():
            return [_without_arrays(item, arrays) for item in value]
        case np.generic():
            return value.item()
    return value


def _with_arrays(value: Any, arrays: Mapping[str, np.ndarray[Any, Any]]) -> Any:
    match value:
        case {"__array__": str(name)}:
            return arrays[name]
        case dict():
            return {key: _with_arrays(item, arrays) for key, item in value.items()}
        case list():
            return [_with_arrays(item, arrays) for item in value]
    return value
