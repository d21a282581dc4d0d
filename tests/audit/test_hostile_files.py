"""Attacks on a release made in one place, by hostile files: to see a record despite the noise."""

from __future__ import annotations

import csv
import tomllib
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from fedpriv.data import (
    DataError,
    Dataset,
    Records,
    hold_out,
    parse_schema,
    partition,
    read_schema,
    read_table,
)
from fedpriv.data.marks import marks
from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.federation.queries.bounds import gradient_sensitivity, grid_of
from fedpriv.federation.queries.kinds import GradientQuery
from fedpriv.federation.task import Task
from fedpriv.learning.erm.problem import ErmProblem
from fedpriv.learning.erm.solver import solve
from fedpriv.learning.losses import HuberHinge, Logistic, Loss, Softmax
from fedpriv.learning.models import LinearModel
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.mechanisms import GaussianMechanism
from fedpriv.privacy.randomness import RandomStream
from fedpriv.simulations.run.metrics.evaluation import rounds_between

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from fedpriv.data import PartitionedDataset

SCHEMA = """
label = "y"
positive = "1"
out_of_range = "clamp"

[columns.a]
kind = "number"
min = 0
max = 1
fill = 0

[columns.t]
kind = "category"
values = ["u", "v"]
fill = "u"

[columns.y]
kind = "category"
values = ["0", "1"]
"""


def rows_of(folder: Path, lines: list[str]) -> int:
    (folder / "s.toml").write_text(SCHEMA)
    (folder / "t.csv").write_text("a,y,t,note\n" + "".join(f"{line}\n" for line in lines))
    dataset, _ = read_table(folder / "t.csv", read_schema(folder / "s.toml"))
    return len(dataset.train)


@pytest.mark.parametrize(
    "row", ['0.5,1,u,"he said', '0.5,1,"u,he', '0.5,1,u,he "said"', '"0.5,1,u,x']
)
def test_one_row_swallows_no_others_by_a_quote(row: str, tmp_path: Path) -> None:
    """A quote that is not closed, in a clamped or an ignored column, made one value of the rest."""
    lines = ["0.5,1,u,note"] * 10
    assert rows_of(tmp_path, lines) == 10
    with pytest.raises(DataError, match="line 4: a quotation mark is out of place") as refusal:
        rows_of(tmp_path, [*lines[:2], row, *lines[3:]])
    assert "said" not in str(refusal.value)


def test_quotes_as_they_should_be_are_read(tmp_path: Path) -> None:
    """Every row of a properly quoted file is a record, delimiters and line breaks included."""
    lines = ['0.5,1,"u","he ""said"", twice"', '"0.5","1",v,"two\r\nlines"', '"","1","",""']
    assert rows_of(tmp_path, lines * 3) == 9


@pytest.mark.parametrize("before", [0, 70_000, 140_000])
def test_a_long_row_is_read_wherever_it_stands(before: int, tmp_path: Path) -> None:
    """A row of several blocks was refused or not, by where a block happened to end."""
    lines = ["0.5,1,u,x"] * before + ["0.5,1,u," + "z" * 2_000_000] + ["0.5,1,u,x"] * 5
    assert rows_of(tmp_path, lines) == before + 6


@pytest.mark.parametrize("before", [0, 1000, 2000])
def test_bytes_that_nobody_reads_refuse_no_file_by_their_place(before: int, tmp_path: Path) -> None:
    """Some rows were decoded with the header: a row less before it, and a file was refused."""
    (tmp_path / "s.toml").write_text(SCHEMA)
    lines = [b"a,y,t,note", *[b"0.5,1,u,x"] * before, b"0.5,1,u,\xff", b"0.5,1,u,x", b""]
    (tmp_path / "t.csv").write_bytes(b"\n".join(lines))
    dataset, _ = read_table(tmp_path / "t.csv", read_schema(tmp_path / "s.toml"))
    assert len(dataset.train) == before + 2
    (tmp_path / "t.csv").write_bytes(b"\n".join(lines).replace(b",u,\xff", b",\xff,u"))
    with pytest.raises(DataError, match="not in UTF-8"):
        read_table(tmp_path / "t.csv", read_schema(tmp_path / "s.toml"))


NUMBERS = [
    "1e308", "-1e-400", "4.9e-324", "nan", "-NaN", "", "  ", "?", "-9.0", "1.", "+1", ".5",
    "\u00a03", "\t2\t", "-0", "0" * 400 + "1",
]  # fmt: skip
TEXTS = [
    "u",
    "x,y",
    'z"q',
    "",
    "two\nlines",
    "two\r\nlines",
    "\x00",
    "\ufeff0",
    "\u2028",
    "\x85",
    "\x0b",
]


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
def test_no_value_of_a_row_changes_another_row(ends: str, tmp_path: Path) -> None:
    """Everything that a clamped and filled column, or one that nobody reads, may hold."""
    schema = parse_schema({**tomllib.loads(SCHEMA), "missing_values": ["?", "-9"]})
    rng = np.random.default_rng(5)

    def records(rows: list[list[str]]) -> Counter[tuple[float, ...]]:
        with (tmp_path / "t.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator=ends, quoting=csv.QUOTE_ALL)
            writer.writerows([["a", "y", "t", "note"], *rows])
        train = read_table(tmp_path / "t.csv", schema)[0].train
        return Counter(map(tuple, np.column_stack([train.X, train.y]).tolist()))

    rows = [[str(rng.uniform(-1, 2)), str(rng.integers(2)), "u", "x"] for _ in range(20)]
    before = records(rows)
    for number, text, note in zip(NUMBERS * 3, TEXTS * 5, TEXTS[3:] * 6, strict=False):
        place = int(rng.integers(len(rows) + 1))
        after = records([*rows[:place], [number, "1", text, note], *rows[place:]])
        assert not before - after
        assert (after - before).total() == 1


def held(
    X: NDArray[np.float32], y: NDArray[np.float32], party: NDArray[np.int32], parties: int
) -> PartitionedDataset:
    dataset = Dataset(
        name="x",
        task="binary",
        train=Records(X=X, y=y, party=party),
        test=Records(X=X[:0], y=y[:0], party=party[:0]),
        feature_names=tuple(map(str, range(X.shape[1]))),
        max_norm=1.0,
        party_names=tuple(f"{j:04}" for j in range(parties)),
        classes=("a", "b"),
    )
    return partition(dataset, kind="natural")


@pytest.mark.parametrize("scaled", [False, True])
def test_a_record_that_leaves_flips_no_other_at_a_sharp_bend(scaled: bool) -> None:
    """All margins within a last bit of the bend of a hinge, while all records move by one place."""
    rng = np.random.default_rng(0)
    parties, each, width = 400, 60, 30
    theta = rng.normal(size=width)
    theta *= 3 / np.linalg.norm(theta)
    unit = theta / 3
    X = rng.normal(size=(parties * each, width))
    X -= np.outer(X @ unit, unit)
    X = (X / np.linalg.norm(X, axis=1, keepdims=True) * 0.9 + unit / 3).astype(np.float32)
    X[0] = 0  # the record that leaves adds nothing itself
    y = np.ones(len(X), np.float32)
    party = np.repeat(np.arange(parties), each).astype(np.int32)
    task = Task(
        model=LinearModel(width=width),
        loss=HuberHinge(smoothing=1e-8),
        regulariser=0.01,
        feature_bound=1.0,
        sizes=(each,) * parties,
    )
    moved = gradient_sensitivity(task, clip_norm=1.0, adjacency=Adjacency.ADD_REMOVE)
    query = GradientQuery(
        run="r",
        round=0,
        grid=grid_of(step=2.0**-20, bound=task.records, parties=parties),
        event=GaussianMechanism(
            sensitivity=moved, stddev=moved, adjacency=Adjacency.ADD_REMOVE
        ).event(),
        theta=theta,
        clip_norm=1.0,
        scale=np.ones(width) if scaled else None,
    )
    sums = [
        VectorizedFederation(
            held(X[first:], y[first:], party[first:], parties),
            task=task,
            sampling=lambda _round: RandomStream.from_os(),
            workers=1,
        )
        .sum(query)
        .value
        for first in (0, 1)
    ]
    assert np.linalg.norm(sums[0] - sums[1]) <= moved


@pytest.mark.parametrize("loss", [Logistic(), HuberHinge(smoothing=0.01), Softmax(classes=3)])
@pytest.mark.parametrize(("parties", "records", "width"), [(8, 64, 33), (2, 200, 50), (10, 65, 17)])
def test_no_record_moves_the_minimiser_of_another_party(
    loss: Loss, parties: int, records: int, width: int
) -> None:
    """A party that is done early shrank the batch, and the others were rounded in other places."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(parties * records, width))
    X /= 1.001 * np.linalg.norm(X, axis=1, keepdims=True)
    y = rng.integers(0, 3, len(X)) if loss.outputs > 1 else rng.choice([-1.0, 1.0], len(X))
    minimisers = []
    for scale in (1.0, 0.3, 0.0):  # of all records of the first party: it is easier and easier
        features = X.copy()
        features[:records] *= scale
        problem = ErmProblem(
            features=torch.tensor(features),
            labels=torch.tensor(y),
            offsets=torch.arange(parties + 1) * records,
            loss=loss,
            regulariser=1e-3,
        )
        minimisers.append(solve(problem, tolerance=1e-4).theta[1:])
    assert torch.equal(minimisers[0], minimisers[1])
    assert torch.equal(minimisers[0], minimisers[2])


def test_records_with_equal_hashes_keep_their_marks_when_one_leaves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All hashes collide, as they can be made to by somebody who knows the seed."""

    class Colliding:
        def digest(self, length: int) -> bytes:
            return np.array([0] * (length // 8 - 3) + [0, 3, 5], "<u8").tobytes()

    monkeypatch.setattr("fedpriv.data.marks.shake_256", lambda _text: Colliding())
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2)).astype(np.float32)
    X[10:14] = X[9]
    party = (np.arange(40) % 3).astype(np.int32)
    whole = Records(X=X, y=np.ones(40, np.float32), party=party)
    before = marks(whole, purpose="test split", seed=3)
    others = np.setdiff1d(np.arange(40), np.arange(9, 14))  # records of which there are no copies
    for gone in range(40):
        kept = np.delete(np.arange(40), gone)
        after = dict(zip(kept, marks(whole.take(kept), purpose="test split", seed=3), strict=True))
        assert all(after[place] == before[place] for place in others if place != gone)
        assert sum((Counter(before.tolist()) - Counter(map(int, after.values()))).values()) == 1


def test_one_record_is_split_without_a_word() -> None:
    """A table of a single record: trained on or tested on, there is a partition and a release."""
    assert rounds_between(test_records=1, train_records=0) == 1
    sides = set()
    for value in np.linspace(0, 1, 40, dtype=np.float32):
        X = np.full((1, 2), value, np.float32)
        dataset = held(X, np.ones(1, np.float32), np.zeros(1, np.int32), 2).dataset
        split = hold_out(dataset, fraction=0.5, seed=1)
        sides.add(len(split.train))
        assert partition(split, kind="natural").parties == 2
    assert sides == {0, 1}
