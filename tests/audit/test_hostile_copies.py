"""Hostile copies: one that leaves renumbers the others, and parties by hash are dealt others."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

from fedpriv.data import Dataset, PartitionedDataset, Records, partition
from fedpriv.data.dataset import no_records
from fedpriv.data.marks import cells, marks
from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.federation.queries.bounds import grid_of
from fedpriv.federation.queries.kinds import GradientQuery
from fedpriv.federation.task import Task
from fedpriv.learning.losses import Logistic
from fedpriv.learning.models import LinearModel
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import GaussianEvent
from tests.federation.worlds import streams

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    Rows = NDArray[np.float32]

WIDTH, PARTIES, STEP = 3, 60, 2.0**-18


def dealt(X: Rows) -> PartitionedDataset:
    """Parties by hash, of records that all have the same label."""
    dataset = Dataset(
        name="copies",
        task="binary",
        train=Records(X=X, y=-np.ones(len(X), np.float32)),
        test=no_records(WIDTH, "binary"),
        feature_names=tuple("abc"),
        max_norm=1.0,
        classes=("no", "yes"),
    )
    return partition(dataset, kind="hashed", parties=PARTIES, rng=np.random.default_rng(5))


def parties_of(X: Rows) -> NDArray[np.int64]:
    """At which parties these records are, if they are all there is."""
    return cells(
        PARTIES, marks(Records(X=X, y=-np.ones(len(X), np.float32)), purpose="party", seed=SEED)
    )


SEED = int(np.random.default_rng(5).integers(1 << 62))


@pytest.mark.parametrize("bits", [64, 8])
def test_a_copy_that_leaves_changes_the_order_at_no_party(
    bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With marks of few bits as well, which many records share: one could find such records."""

    def coarse(*arguments: Any, **named: Any) -> NDArray[np.uint64]:
        found = marks(*arguments, **named)
        return found >> np.uint64(64 - bits) << np.uint64(64 - bits)

    monkeypatch.setattr(sys.modules["fedpriv.data.partition"], "marks", coarse)
    rng = np.random.default_rng(0)
    X = rng.choice(rng.uniform(-0.5, 0.5, (40, WIDTH)), 600).astype(np.float32)
    whole = dealt(X)
    for left in (0, 17, 599):
        rest = dealt(np.delete(X, left, axis=0))
        changed = []
        for party in range(PARTIES):
            before, after = (some.party(party).X.tolist() for some in (whole, rest))
            if before != after:
                changed.append(party)
                gone = next(i for i, row in enumerate([*after, None]) if row != before[i])
                assert before[gone] == X[left].tolist()
                assert [*before[:gone], *before[gone + 1 :]] == after
        assert len(changed) == 1


def test_a_copy_that_leaves_rounds_the_sum_of_no_other_party() -> None:
    """Each was dealt its copy at another place of its sum, in which the last digits are others.

    A record of 1.5 steps of the grid is followed by tiny ones of its own party. Before it these add
    up to a last digit, behind it they are lost, and 1.5 steps are rounded the other way. When the
    first copy left, every party's copy took the place of the next: with 60 parties the sum moved by
    13 steps, and with 20,000 by 4498, nearly C, beside what the record itself is.
    """
    long, tiny = np.float32(3 * STEP), np.float32(STEP * 2.0**-52)  # a slope at zero is 1/2
    copies = np.full((3 * PARTIES, WIDTH), long)
    numbers = np.random.default_rng(0).integers(0, 1 << 22, (60 * PARTIES, WIDTH))
    pool = tiny * (1 + numbers * np.float32(2.0**-23)).astype(np.float32)
    places = parties_of(pool)
    rows: list[Rows] = []
    met: set[int] = set()
    for copy, party in zip(copies, parties_of(copies).tolist(), strict=True):
        rows.append(copy)
        if party not in met:
            met.add(party)
            rows += list(pool[places == party][:3])
    X = np.array(rows)
    task = Task(
        model=LinearModel(width=WIDTH),
        loss=Logistic(),
        regulariser=0.01,
        feature_bound=1.0,
        sizes=(20,) * PARTIES,
        headroom=float(PARTIES),
        in_place=False,
    )
    query = GradientQuery(
        run="copies",
        round=0,
        grid=grid_of(step=STEP, bound=20.0 * PARTIES, parties=PARTIES),
        event=GaussianEvent(relative_noise=1.0, adjacency=Adjacency.ADD_REMOVE),
        theta=np.zeros(WIDTH),
        clip_norm=1.0,
    )

    def total(some: Rows) -> NDArray[np.int64]:
        data = dealt(some)
        federation = VectorizedFederation(data, task=task, sampling=streams(0, "copies"))
        return federation.sum(query).total

    apart = np.abs(total(X) - total(X[1:]))
    assert 1 <= apart.min() <= apart.max() <= 2
