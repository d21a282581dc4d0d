"""A kind of query states its bounds, or there is none; who states them is guarded without more."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pytest

from fedpriv.federation.deployed.guard import check_terms
from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.federation.party.answers import ANSWERED, Answers, Holdings
from fedpriv.federation.party.guard import Policy, QueryRefused, check_query
from fedpriv.federation.party.party import Party
from fedpriv.federation.queries.base import ARRAY, ON_A_VECTOR, Query
from fedpriv.federation.queries.bounds import fits, share_mechanism
from fedpriv.federation.queries.encoding import from_bytes, to_bytes
from fedpriv.federation.queries.kinds import (
    QUERIES,
    GradientQuery,
    LossQuery,
    RiskGradientQuery,
)
from fedpriv.federation.queries.local_noise import LocalNoise
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.mechanisms.shares import NoiseShare
from fedpriv.privacy.unit import Unit
from fedpriv.secagg import FixedPoint
from tests.federation.deployed.policies import ENGAGEMENT, POLICY
from tests.federation.queries.test_queries import GAUSSIAN, GRID
from tests.federation.queries.test_queries import QUERIES as WRITTEN
from tests.federation.worlds import linear_task, random_data, streams

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray

    from fedpriv.federation.party.draws import Draws
    from fedpriv.federation.task import Task
    from fedpriv.privacy.events import Event

ABSTRACT = (
    "events", "sampling_rate", "weighted", "joint_fit", "own_noise", "record_bound",
    "answer_width", "reach", "sensitivity", "check", "check_certain",
)  # fmt: skip
MORE: list[Query] = [
    GradientQuery(
        run="r", round=2, grid=GRID, event=GAUSSIAN, theta=np.array([0.5, -1.0]), clip_norm=1.0,
        sampling_rate=0.25, centre=np.array([0.1, 0.2]), scale=np.array([2.0, 3.0]), counting=0.5,
    ),
    LossQuery(
        run="r", round=4, grid=GRID, event=None, clip=2.5,
        points=np.array([[0.0, 1.0], [2.0, -3.0], [0.5, 0.25]]),
    ),
    RiskGradientQuery(
        run="r", round=0, grid=GRID, event=None, theta=np.zeros(2), exchange=0, headroom=2.0
    ),
]  # fmt: skip
DIGESTS = (
    "96a555449d41f9ccf363f5f32046be61cdc2f522afc8b4c3ba34d6542439efa5",
    "b03ed62e5d2b6b22fc282af7b141b179cf4466a5ccb76df4ef325ea718d11e49",
    "88f69117bb87ed7023a783499f129c1c1e641475067cf1e7cfa00d96818b342d",
    "8a48622ce9b26a8fea5a557fed41763542a172fb3c656a02c40271b39f6335a8",
    "aba4f5a5e4a7b6e704249c62370e81d15ce81dc7dbe007051f96b2430a30d448",
    "73877a6b989fb13afd1701edd1f1dc2b5b4cccfb6e6fa88ca731769637cfa06c",
    "a6d3222c2e58273f78fe5ec5327aa364e51a52c22bf31634bfa2c1e6ef233311",
    "a81f75f57492bb565b56d0ddc9b08f91086ab2c624189df837de09aff139d8aa",
    "c6c9e837126cd2fdc87026f5d8b0471de4068e2f6c9fd0b707d9f9f065b21de2",
)


def test_queries_have_the_bytes_that_they_always_had() -> None:
    """SHA-256 of each, as version 3 of the encoding first wrote it."""
    assert tuple(sha256(to_bytes(query)).hexdigest() for query in (*WRITTEN, *MORE)) == DIGESTS


@pytest.mark.parametrize("query", MORE, ids=lambda query: query.kind)
def test_arrays_of_all_shapes_are_read_back(query: Query) -> None:
    assert to_bytes(from_bytes(to_bytes(query))) == to_bytes(query)


def test_a_norm_is_written_where_it_is_not_the_usual_one_and_has_one_spelling() -> None:
    usual = GradientQuery(
        run="r", round=0, grid=GRID, event=GAUSSIAN, theta=np.zeros(2), clip_norm=1.0
    )
    other = replace(usual, clip_in="l1")
    assert b"clip_in" not in to_bytes(usual)
    read = from_bytes(to_bytes(other))
    assert isinstance(read, GradientQuery)
    assert read.clip_in == "l1"
    spelled = to_bytes(other).replace(b'"l1"', b'"l2"')
    with pytest.raises(ValueError, match="canonical"):
        from_bytes(spelled)
    with pytest.raises(ValueError, match="malformed"):
        from_bytes(to_bytes(other).replace(b'"l1"', b'"l3"'))
    noise = LocalNoise(law="gaussian", relative_noise=3.0, adjacency=Adjacency.REPLACE_ONE)
    for more in ({"counting": 0.5}, {"local": noise}):
        with pytest.raises(ValueError, match="clip_in must be 'l2'"):
            replace(other, **more)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FeatureSumQuery(Query):
    """Σ over a party's records of the features that a direction points at: a guest's kind."""

    kind: ClassVar[str] = "feature-sum"
    events: ClassVar[tuple[type[Event], ...]] = ON_A_VECTOR
    sampling_rate: ClassVar[float] = 1.0
    weighted: ClassVar[bool] = False
    joint_fit: ClassVar[bool] = False
    direction: NDArray[np.float64] = field(metadata=ARRAY)
    local: LocalNoise | None = None

    @property
    def own_noise(self) -> LocalNoise | None:
        return self.local

    def record_bound(self, task: Task) -> float:
        return float(np.abs(self.direction).max()) * task.feature_bound

    def answer_width(self, task: Task) -> int:
        return len(self.direction)

    def reach(self, task: Task, size: int) -> float:
        return size * self.record_bound(task)

    def sensitivity(
        self, task: Task, *, sizes: Collection[int], adjacency: Adjacency
    ) -> float | None:
        return adjacency.sum_sensitivity * self.record_bound(task)

    def check(self, task: Task) -> None:
        if self.direction.shape != (task.model.features,):
            raise ValueError("direction must have a number for each feature.")

    def check_certain(self, task: Task) -> None:
        pass


def feature_sums(holdings: Holdings, query: FeatureSumQuery, _draws: Draws) -> Answers:
    batch = holdings._batch
    ends = batch.segments.offsets.tolist()
    rows = batch.features.double().numpy() * query.direction
    sums = [rows[a:b].sum(0) for a, b in pairwise(ends)]
    return Answers(vectors=np.array(sums))


SIZES = (30, 50)
TASK = linear_task(SIZES, 4)
DATA = random_data(SIZES, 4)
GUEST = FeatureSumQuery(
    run="r", round=0, grid=FixedPoint(step=2.0**-20), event=GAUSSIAN, direction=np.full(4, 0.5)
)


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Policy:
    """The two places that learn of a new kind: the table of names, and how it is answered."""
    monkeypatch.setitem(QUERIES, FeatureSumQuery.kind, FeatureSumQuery)
    monkeypatch.setitem(ANSWERED, FeatureSumQuery.kind, feature_sums)
    return Policy(queries=(FeatureSumQuery.kind,))


def test_a_guest_s_kind_is_guarded_encoded_and_summed_by_what_it_states(known: Policy) -> None:
    read = from_bytes(to_bytes(GUEST))
    assert isinstance(read, FeatureSumQuery)
    assert (read.direction == GUEST.direction).all()
    check_query(read, TASK, known)
    expected = DATA.dataset.train.X.astype(np.float64).sum(0) * 0.5
    parties = [
        Party(DATA.party(j), task=TASK, sampling=streams(0, "p"), policy=known) for j in range(2)
    ]
    total = np.add.reduce([party.answer(read) for party in parties], dtype=np.uint32)
    assert GUEST.grid.decode(total) * GUEST.grid.step == pytest.approx(expected, abs=1e-4)
    with pytest.raises(QueryRefused, match="does not answer queries of kind 'feature-sum'"):
        VectorizedFederation(DATA, task=TASK, sampling=streams(0, "p")).sum(read)


def test_a_guest_s_own_refusals_bounds_and_noise_are_enforced(known: Policy) -> None:
    with pytest.raises(QueryRefused, match="a number for each feature"):
        check_query(replace(GUEST, direction=np.ones(3)), TASK, known)
    loud = replace(GUEST, direction=np.full(4, 1e6))
    assert not fits(loud, TASK)
    with pytest.raises(QueryRefused, match="wrap around"):
        check_query(loud, TASK, known)
    local = LocalNoise(law="gaussian", relative_noise=3.7, adjacency=Adjacency.REPLACE_ONE)
    check_query(replace(GUEST, local=local), TASK, known)
    cheap = replace(GAUSSIAN, relative_noise=4.0)
    with pytest.raises(QueryRefused, match="not that of the noise"):
        check_query(replace(GUEST, local=local, event=cheap), TASK, known)
    share = NoiseShare(law="skellam", parameter=2.0**44, minimum=2, colluders=1)
    wide = replace(GUEST, share=share, grid=FixedPoint(step=2.0**-20, bits=64))
    mechanism = share_mechanism(wide, TASK)
    assert mechanism is not None
    check_query(replace(wide, event=mechanism.event()), TASK, known)
    with pytest.raises(QueryRefused, match="not that of the shares"):
        check_query(wide, TASK, known)


def test_a_deployed_party_charges_a_guest_s_kind_by_what_it_states(known: Policy) -> None:
    features = ENGAGEMENT.task.model.features
    asked = replace(GUEST, run=ENGAGEMENT.run, direction=np.full(features, 0.5))
    policy = replace(POLICY, queries=("feature-sum",))
    adjacency = Adjacency.REPLACE_ONE
    assert check_terms(asked, ENGAGEMENT, policy, adjacency, Unit.RECORD) == GAUSSIAN
    far = replace(asked, direction=np.full(features, 2.0))
    with pytest.raises(QueryRefused, match="one record's part"):
        check_terms(far, ENGAGEMENT, policy, adjacency, Unit.RECORD)


def test_what_is_not_said_how_to_answer_is_not_answered(
    known: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(ANSWERED, FeatureSumQuery.kind)
    party = Party(DATA.party(0), task=TASK, sampling=streams(0, "p"), policy=known)
    with pytest.raises(ValueError, match="how to answer"):
        party.answer(GUEST)


@pytest.mark.parametrize("left_out", ABSTRACT)
def test_a_kind_that_leaves_something_open_cannot_be_instantiated(left_out: str) -> None:
    members = {
        name: getattr(FeatureSumQuery, name) for name in (*ABSTRACT, "kind") if name != left_out
    }
    incomplete = type("Incomplete", (Query,), {**members, "__slots__": ()})
    with pytest.raises(TypeError, match=left_out):
        incomplete(run="r", round=0, grid=GRID, event=None)
    complete = type("Complete", (incomplete,), {left_out: getattr(FeatureSumQuery, left_out)})
    complete(run="r", round=0, grid=GRID, event=None)


def test_every_member_that_must_be_stated_is_tried() -> None:
    assert sorted(ABSTRACT) == sorted(Query.__abstractmethods__)
