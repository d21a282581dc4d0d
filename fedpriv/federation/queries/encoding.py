"""Queries as bytes, and back: one encoding for each query, and everything else refused.

Layout: magic, version (2 bytes), length of the header (4 bytes), header (canonical JSON), then its
arrays as float64, little-endian, if the query has any: the header holds their shapes. Reading
checks that writing what was read gives the same bytes again: no trailing bytes, no second spelling,
no NaN, no unknown field.
"""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, fields
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.federation.queries.kinds import QUERIES
from fedpriv.federation.queries.local_noise import LocalNoise
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import event_from_dict
from fedpriv.privacy.mechanisms.shares import NoiseShare
from fedpriv.privacy.planning.objective import ObjectiveNoise
from fedpriv.secagg import FixedPoint

if TYPE_CHECKING:
    from fedpriv.federation.queries.kinds import Query

VERSION = 1
_MAGIC = b"fedpriv?"
_PREFIX = struct.Struct(">8sHI")
_ARRAYS = ("theta", "points", "centre", "scale")  # in the order of their bytes


def to_bytes(query: Query) -> bytes:
    """The one encoding of ``query``."""
    values: dict[str, Any] = {"kind": query.kind}
    for field in fields(query):
        value = getattr(query, field.name)
        match field.name:
            case name if name in _ARRAYS and value is not None:
                values[name] = list(value.shape)
            case "event":
                values["event"] = None if value is None else value.to_dict()
            case "grid" | "local" | "objective" | "share":
                values[field.name] = None if value is None else asdict(value)
            case name:
                values[name] = value
    header = json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    arrays = [getattr(query, name, None) for name in _ARRAYS]
    tail = b"".join(array.astype("<f8").tobytes() for array in arrays if array is not None)
    return _PREFIX.pack(_MAGIC, VERSION, len(header)) + header + tail


def from_bytes(data: bytes) -> Query:
    """Read back what `to_bytes` wrote.

    Raises:
        ValueError: for anything else; the message says what is wrong, never what was in it.
    """
    if len(data) < _PREFIX.size:
        raise ValueError(f"a query has at least {_PREFIX.size} bytes, got {len(data)}.")
    magic, version, length = _PREFIX.unpack_from(data)
    if magic != _MAGIC:
        raise ValueError("these bytes are not a fedpriv query.")
    if version != VERSION:
        raise ValueError(
            f"the query has version {version}; this fedpriv reads version {VERSION}. "
            "Server and parties must run the same release."
        )
    header, tail = data[_PREFIX.size : _PREFIX.size + length], data[_PREFIX.size + length :]
    try:
        values = json.loads(header)
        query = _build(values, tail)
        canonical = to_bytes(query)
    except (
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise ValueError(f"the query is malformed: {type(error).__name__}.") from error
    if canonical != data:
        raise ValueError("the query is not in its canonical encoding: it was changed on the way.")
    return query


def _build(values: dict[str, Any], tail: bytes) -> Query:
    kind = QUERIES[values.pop("kind")]
    start = 0
    for name in _ARRAYS:
        if (shape := values.get(name)) is not None:
            count = prod(shape)
            found = np.frombuffer(tail, dtype="<f8", count=count, offset=start)
            values[name] = found.reshape(shape)
            start += 8 * count
    values["grid"] = FixedPoint(**values["grid"])
    if values["event"] is not None:
        values["event"] = event_from_dict(values["event"])
    if values["share"] is not None:
        values["share"] = NoiseShare(**values["share"])
    for name, make in (("local", LocalNoise), ("objective", ObjectiveNoise)):
        if values.get(name) is not None:
            stated = dict(values[name])
            stated["adjacency"] = Adjacency(stated["adjacency"])
            values[name] = make(**stated)
    return kind(**values)
