"""A store in the place of a table: the keys of the data section, as its records were prepared.

An experiment names a store as `data.path`. Missing keys are filled in from the store; conflicting
ones are refused. So it is the same experiment, with the same hash and the same noise, as the one
that the store was made from, wherever the records are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedpriv.data.store.manifest import Manifest, is_store

FREE = ("public_test", "records_per_person")
"""Keys that no record depends on."""

_PLACES = ("path", "schema", "root", "store")


def take_store(values: dict[str, Any]) -> None:
    """Fill in the data section of an experiment file that names a store."""
    data = values.get("data")
    if not isinstance(data, dict):
        return
    key = next((key for key in ("store", "path", "name") if _names_store(data.get(key))), None)
    if key is None:
        return
    folder = Path(str(data[key])).absolute()
    prepared = dict(Manifest.read(folder).facts["data"])
    given = {k: value for k, value in data.items() if k not in (*_PLACES, key)}
    for name, value in given.items():
        if name not in FREE and prepared.get(name) != value:
            raise ValueError(
                f"data.{name} must be {prepared.get(name)!r}, as the records of the store "
                f"{str(folder)!r} were prepared, got {value!r}: leave it out, or make another "
                "store with `fedpriv data shard`."
            )
    values["data"] = {**prepared, **given, "store": str(folder)}


def _names_store(value: Any) -> bool:
    return isinstance(value, str) and is_store(value)
