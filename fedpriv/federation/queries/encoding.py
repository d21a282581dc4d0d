"""Encoding of queries as bytes on the wire, and back: each has one encoding; others are refused.

Layout: magic, version (2 bytes), length of the header (4 bytes), header (canonical JSON), then the
query's arrays, if any, as float64, little-endian: the header holds their shapes. Each kind of query
declares which fields are arrays, and how the others are read. Reading checks that writing gives the
same bytes again: no trailing bytes, no second spelling, no NaN, no unknown field.
"""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, fields, is_dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.federation.queries.kinds import QUERIES
from fedpriv.privacy.events import Event

if TYPE_CHECKING:
    from fedpriv.federation.queries.base import Query

VERSION = 3
_MAGIC = b"fedpriv?"
_PREFIX = struct.Struct(">8sHI")


def to_bytes(query: Query) -> bytes:
    """The one encoding of ``query``."""
    values: dict[str, Any] = {"kind": query.kind}
    tail = b""
    for field in fields(query):
        value = getattr(query, field.name)
        if "later" in field.metadata and value == field.default:
            continue
        if isinstance(value, np.ndarray):
            tail += value.astype("<f8").tobytes()
            value = list(value.shape)
        elif isinstance(value, Event):
            value = value.to_dict()
        elif is_dataclass(value) and not isinstance(value, type):
            value = asdict(value)
        values[field.name] = value
    header = json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    return _PREFIX.pack(_MAGIC, VERSION, len(header)) + header + tail


def from_bytes(data: bytes) -> Query:
    """Read back what `to_bytes` wrote.

    Raises:
        ValueError: for anything else; the message says what is wrong, never what the bytes held.
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
    for field in fields(kind):
        value = values.get(field.name)
        if "read" in field.metadata:
            values[field.name] = field.metadata["read"](value)
        elif "array" in field.metadata and value is not None:
            count = prod(value)
            numbers = np.frombuffer(tail, dtype="<f8", count=count, offset=start)
            values[field.name] = numbers.reshape(value)
            start += 8 * count
    return kind(**values)
