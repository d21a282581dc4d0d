"""Small federations of persons with several records at several parties, and their neighbours."""

from __future__ import annotations

from itertools import product
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.data import Dataset, Persons, Records, partition
from fedpriv.federation.task import PersonBounds, Task
from fedpriv.learning.losses import Logistic
from fedpriv.learning.models import LinearModel
from fedpriv.privacy.adjacency import Adjacency

if TYPE_CHECKING:
    from fedpriv.data import PartitionedDataset

WIDTH, PARTIES = 3, 4


def linear_task(parties: int, *, size: int = 6) -> Task:
    """Logistic regression of persons who are at so many of the parties, each of ``size``."""
    return Task(
        model=LinearModel(width=WIDTH),
        loss=Logistic(),
        regulariser=0.1,
        feature_bound=1.0,
        sizes=(size,) * PARTIES,
        in_place=False,
        persons=PersonBounds(parties=parties),
    )


Visit = tuple[str, int, tuple[float, ...], float]  # person, party, features, label


def visits(seed: int = 0) -> list[Visit]:
    """Persons with 1 to 6 records; "both" at two parties, "all" at four, the others at one."""
    rng = np.random.default_rng(seed)

    def features() -> tuple[float, ...]:
        vector = rng.normal(size=WIDTH)
        return tuple(vector / np.linalg.norm(vector) * 0.999)

    rows = [
        (f"person {i}", i % PARTIES, features(), float(rng.choice([-1, 1])))
        for i in range(9)
        for _ in range(1 + i % 6)
    ]
    strong = tuple(np.full(WIDTH, 0.999 / sqrt(WIDTH)))
    rows += [("both", party, strong, 1.0) for party in (0, 2) for _ in range(5)]
    rows += [("all", party, strong, 1.0) for party in range(PARTIES) for _ in range(3)]
    return rows


def data(rows: list[Visit]) -> PartitionedDataset:
    records = Records(
        X=np.array([row[2] for row in rows], np.float32),
        y=np.array([row[3] for row in rows], np.float32),
        party=np.array([row[1] for row in rows]),
        person=Persons.of([row[0] for row in rows]),
    )
    dataset = Dataset(
        name="made",
        task="binary",
        train=records,
        test=records.take(slice(0, 0)),
        feature_names=tuple(f"x{i}" for i in range(WIDTH)),
        max_norm=1.0,
        party_names=tuple(f"party {j}" for j in range(PARTIES)),
        classes=("-1", "+1"),
    )
    return partition(dataset, kind="natural")


def neighbours(rows: list[Visit], adjacency: Adjacency, parties: int) -> list[list[Visit]]:
    """All that lack one person; or have another instead, with extreme records at any parties."""
    found = []
    for who in {row[0] for row in rows if homes(rows, row[0]) <= parties}:
        rest = [row for row in rows if row[0] != who]
        if adjacency is Adjacency.ADD_REMOVE:
            found.append(rest)
            continue
        for places, sign in product(((0, 1, 2, 3)[:parties], (3, 2, 1, 0)[:parties]), (-1.0, 1.0)):
            strong = tuple(np.full(WIDTH, 0.999 / sqrt(WIDTH)))
            other = [("new", home, strong, sign) for home in places for _ in range(4)]
            found.append([*other[:3], *rest, *other[3:]])
    return found


def homes(rows: list[Visit], who: str) -> int:
    return len({row[1] for row in rows if row[0] == who})
