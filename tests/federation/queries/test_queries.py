"""Queries survive the wire, and nothing else passes for one."""

from __future__ import annotations

import json
import struct
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.federation.queries.encoding import from_bytes, to_bytes
from fedpriv.federation.queries.kinds import ErmQuery, GradientQuery, Query, RiskGradientQuery
from fedpriv.federation.queries.local_noise import LocalNoise
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import ApproximateEvent, GaussianEvent, PureEvent, SkellamEvent
from fedpriv.privacy.mechanisms.shares import NoiseShare
from fedpriv.privacy.planning.objective.objective import ObjectiveNoise
from fedpriv.secagg import FixedPoint

GRID = FixedPoint(step=2.0**-20)
ONE = Adjacency.REPLACE_ONE
GAUSSIAN = GaussianEvent(adjacency=ONE, relative_noise=3.7)
QUERIES: list[Query] = [
    GradientQuery(
        run="r", round=3, grid=GRID, event=GAUSSIAN, theta=np.array([0.1, -2.0]), clip_norm=1.0
    ),
    GradientQuery(
        run="r",
        round=0,
        grid=GRID,
        event=GAUSSIAN,
        theta=np.zeros(1),
        clip_norm=0.3,
        weights="equal",
        local=LocalNoise(law="gaussian", relative_noise=3.7, adjacency=ONE),
    ),
    ErmQuery(run="r", round=0, grid=GRID, event=None, regulariser=0.1, tolerance=1e-8),
    ErmQuery(
        run="ü",
        round=1,
        grid=FixedPoint(step=2.0**-40, bits=64),
        event=ApproximateEvent(adjacency=ONE, epsilon=1.0, delta=1e-6),
        regulariser=0.1,
        tolerance=1e-8,
        objective=ObjectiveNoise(law="gaussian", epsilon=1.0, delta=1e-6, adjacency=ONE),
    ),
    ErmQuery(
        run="r",
        round=0,
        grid=GRID,
        event=SkellamEvent(adjacency=ONE, variance=80.0, l1_sensitivity=2.5, l2_sensitivity=2.0),
        share=NoiseShare(law="skellam", parameter=10.0, minimum=9, colluders=1),
        regulariser=0.1,
        tolerance=1e-8,
    ),
    RiskGradientQuery(
        run="r",
        round=0,
        grid=GRID,
        event=PureEvent(adjacency=ONE, epsilon=0.5),
        theta=np.array([1e-300, 1e300, -0.0]),
        exchange=7,
    ),
]


def same(one: Query, other: Query) -> bool:
    """Field by field, the point bit by bit."""
    if type(one) is not type(other):
        return False
    pairs = [(getattr(one, f.name), getattr(other, f.name)) for f in fields(one)]
    return all(
        a.tobytes() == b.tobytes() if isinstance(a, np.ndarray) else a == b for a, b in pairs
    )


@pytest.mark.parametrize("query", QUERIES, ids=lambda q: q.kind)
def test_a_query_is_read_back_as_it_was_written(query: Query) -> None:
    assert same(from_bytes(to_bytes(query)), query)


@given(
    theta=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=8),
    clip=st.floats(1e-6, 1e6),
    rate=st.floats(0.001, 1.0),
    index=st.integers(0, 2**40),
)
def test_numbers_cross_the_wire_without_rounding(
    theta: list[float], clip: float, rate: float, index: int
) -> None:
    query = GradientQuery(
        run="r",
        round=index,
        grid=GRID,
        event=GAUSSIAN,
        theta=np.array(theta),
        clip_norm=clip,
        sampling_rate=rate,
    )
    assert same(from_bytes(to_bytes(query)), query)


@pytest.mark.parametrize("query", QUERIES, ids=lambda q: q.kind)
def test_every_cut_and_every_extra_byte_is_refused(query: Query) -> None:
    data = to_bytes(query)
    for length in range(len(data)):
        with pytest.raises(ValueError, match="query"):
            from_bytes(data[:length])
    with pytest.raises(ValueError, match="changed on the way"):
        from_bytes(data + b"\0")


def test_an_unknown_version_is_refused_by_its_number() -> None:
    data = bytearray(to_bytes(QUERIES[0]))
    data[9] = 1  # that of queries whose events had no unit
    with pytest.raises(ValueError, match="version 1"):
        from_bytes(bytes(data))


def test_bytes_of_something_else_are_refused() -> None:
    with pytest.raises(ValueError, match="not a fedpriv query"):
        from_bytes(bytes(100))


def altered(**changes: object) -> bytes:
    """The first query with another header."""
    data = to_bytes(QUERIES[0])
    (length,) = struct.unpack(">I", data[10:14])
    values = json.loads(data[14 : 14 + length]) | changes
    header = json.dumps(values, sort_keys=True, separators=(",", ":")).encode()
    return data[:10] + struct.pack(">I", len(header)) + header + data[14 + length :]


def test_the_altering_helper_changes_nothing_by_itself() -> None:
    assert altered() == to_bytes(QUERIES[0])


@pytest.mark.parametrize(
    "changes",
    [
        {"clip_norm": float("nan")},
        {"clip_norm": -1.0},
        {"clip_norm": "1"},
        {"kind": "everything"},
        {"theta": 1},
        {"theta": 3},
        {"theta": -1},
        {"round": -1},
        {"round": 1.5},
        {"round": True},
        {"run": ""},
        {"extra": 1},
        {"sampling_rate": 0.0},
        {"weights": "heavy"},
        {"grid": {"step": 0.3, "bits": 32}},
        {"grid": {"step": 0.5, "bits": 16}},
        {"event": {"kind": "none"}},
        {"share": {"law": "skellam", "parameter": 0.0, "minimum": 9, "colluders": 1}},
        {"share": {"law": "skellam", "parameter": 1, "minimum": 9, "colluders": 1}},
        {"share": {"law": "skellam", "parameter": 1.0, "minimum": True, "colluders": 0}},
        {"share": {"law": "skellam", "parameter": 1.0, "minimum": 9, "colluders": 9}},
        {"share": {"law": "skellam", "parameter": 1.0, "minimum": 9}},
        {"share": {"law": "loud", "parameter": 1.0, "minimum": 9, "colluders": 1}},
        {"local": {"law": "gaussian", "relative_noise": 0.0, "adjacency": "replace-one"}},
    ],
    ids=str,
)
def test_a_header_that_states_nonsense_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"malformed|changed on the way"):
        from_bytes(altered(**changes))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_point_that_is_not_finite_is_refused_at_both_ends(bad: float) -> None:
    with pytest.raises(ValueError, match="theta must be finite"):
        GradientQuery(run="r", round=0, grid=GRID, event=None, theta=np.array([bad]), clip_norm=1.0)
    data = to_bytes(QUERIES[0])
    with pytest.raises(ValueError, match="malformed"):
        from_bytes(data[:-8] + struct.pack("<d", bad))


def test_a_query_does_not_share_memory_with_the_model_it_was_made_from() -> None:
    theta = np.zeros(2)
    query = GradientQuery(run="r", round=0, grid=GRID, event=None, theta=theta, clip_norm=1.0)
    theta[0] = 9.0
    assert query.theta[0] == 0
    with pytest.raises(ValueError, match="read-only"):
        query.theta[0] = 1.0
