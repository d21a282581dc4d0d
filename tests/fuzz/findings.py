"""What once broke a reader: kept, so that it does not break it again."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any

from tests.federation.deployed import policies as parties
from tests.fuzz.readers import MODEL, READERS

_DEEP = b"[" * 100_000
"""Python's own readers of TOML and JSON give up with an error that is no `ValueError`."""


def _with(values: dict[str, Any], *path: str, value: Any) -> dict[str, Any]:
    first, *rest = path
    return {**values, first: _with(values[first], *rest, value=value) if rest else value}


def _written(reader: str, values: Any) -> bytes:
    data = READERS[reader].written(values)
    assert data is not None
    return data


def _compressed(line: str) -> str:
    """A node key in OpenSSH format whose point has one coordinate, and the sign of the other."""
    kind, key = line.split()[:2]
    point = b64decode(key).replace(b"\0\0\0\x61\x04", b"\0\0\0\x61\x02", 1)
    return f"{kind} {b64encode(point).decode()}"


_ROSTER = READERS["roster"].values[0]
_FIRST, *_OTHERS = _ROSTER["party"]

FINDINGS: tuple[tuple[str, bytes], ...] = (
    ("party file", b"version = " + _DEEP),
    ("roster", b"version = " + _DEEP),
    ("experiment", b"run = " + _DEEP),
    ("schema", b"label = " + _DEEP),
    ("experiment", b'[run]\n"" = 1\n'),
    ("roster", _written("roster", {**READERS["roster"].values[0], "party": [2]})),
    (
        "roster",
        _written(
            "roster",
            {**_ROSTER, "party": [{**_FIRST, "node": _compressed(_FIRST["node"])}, *_OTHERS]},
        ),
    ),
    ("statement values", _DEEP),
    ("bundle", _written("bundle", {**READERS["bundle"].values[0], "party": 2})),
    ("parquet", READERS["parquet"].seeds[0].replace(b"\x15\x00\x15", b"\x15\xff\x15", 1)),
    *(
        ("party file", _written("party file", _with(parties.file(), table, key, value=10**400)))
        for table, key in (
            ("budget", "epsilon"),
            ("policy", "max_clip"),
            ("policy", "min_noise"),
            ("policy", "max_releases"),
        )
    ),
    ("model", _written("model", {**MODEL, "guests": _DEEP.decode()})),
    ("model", _written("model", {**MODEL, "schema": _DEEP.decode()})),
    ("model", _written("model", {**MODEL, "seed": float("inf")})),
    ("ledger", READERS["ledger"].seeds[0].replace(b"CREATE TABLE", b"CREATE \xe3ABLE", 1)),
    ("csv", b"y,x,c\na,0.5,u\nb,0.2\xff\n"),
)
"""Readers by name, and bytes."""
