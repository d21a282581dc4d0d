"""Neighbouring files, both admitted by their schema, that a release must not tell apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from fedpriv.data import Dataset, PartitionedDataset, Records, partition, read_table
from fedpriv.data.marks import below, marks
from fedpriv.data.tables.schema import parse_schema
from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.federation.queries.bounds import gradient_sensitivity, grid_of
from fedpriv.federation.queries.kinds import GradientQuery
from fedpriv.federation.task import Task
from fedpriv.learning.batch import RecordBatch
from fedpriv.learning.losses import Logistic, Loss, Softmax
from fedpriv.learning.models import LinearModel, MlpModel, Model
from fedpriv.learning.segments import Segments
from fedpriv.learning.threads import one_thread
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.mechanisms import GaussianMechanism
from fedpriv.privacy.randomness import RandomStream
from fedpriv.simulations.experiment.catalogue import checked
from fedpriv.simulations.experiment.file import parse_experiment
from fedpriv.simulations.run.prepare import prepare
from tests.audit.examination import difference, limit
from tests.audit.laboratory import moved
from tests.audit.neighbours import GRADIENTS, OUTPUT, Case, table, write

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from tests.audit.laboratory import Laboratory
    from tests.audit.neighbours import Row

CODES = parse_schema(
    {
        "label": "y",
        "positive": "1",
        "out_of_range": "clamp",
        "columns": {
            "a": {"kind": "number", "min": 0, "max": 1, "fill": 0},
            "t": {"kind": "category", "values": [0, 1], "fill": 0},
            "y": {"kind": "category", "values": [0, 1]},
        },
    }
)


@dataclass(frozen=True, kw_only=True)
class Crowd(Case):
    """A release for many parties."""

    parties: int = 160

    def schema(self) -> dict[str, Any]:
        found = super().schema()
        found["columns"]["clinic"]["values"] = [f"c{j:03}" for j in range(self.parties)]
        return found


# Whether there is a release.


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_no_label_that_the_schema_admits_decides_whether_there_is_a_release(
    adjacency: str, laboratory: Laboratory, tmp_path: Path
) -> None:
    """A label beyond a `label_bound` below 1 was found in the table, and refused it."""
    case = Case(
        name="bound",
        strategy=GRADIENTS,
        adjacency=adjacency,
        model={"name": "squared", "label_bound": 0.5},
    )
    rows = [{**row, "outcome": "0.3"} for row in table("number")]
    other = [{**rows[0], "outcome": "0.9"}, *rows[1 if adjacency == "replace-one" else 0 :]]
    one, two = (laboratory.run(case, some, tmp_path / str(len(some))) for some in (rows, rows[1:]))
    three = laboratory.run(case, other, tmp_path / "other")
    assert {(done.code, done.said) for done in (one, two, three)} == {(2, one.said)}
    assert "label_bound of at least 1" in one.said


def test_no_number_that_is_far_out_of_range_is_told_of(
    laboratory: Laboratory, tmp_path: Path
) -> None:
    """It overflowed on its way to the end of the range, with a warning."""
    case = Case(name="far", strategy=GRADIENTS)
    rows = table("binary")
    one = laboratory.run(case, rows, tmp_path / "one")
    for place, far in enumerate(("1e308", "-1.7e308", "1e-400", "-0.0")):
        changed = [{**row, "age": far} if row is rows[3] else row for row in rows]
        other = laboratory.run(case, changed, tmp_path / str(place), script=one)
        assert (other.code, other.said) == (one.code, one.said)
        assert difference(case, one, other) == []


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("column", ["a", "t"])
@pytest.mark.parametrize("rows", [1, 2])
def test_no_missing_value_changes_how_a_parquet_column_is_read(
    column: str, missing: bool, rows: int, tmp_path: Path
) -> None:
    """A column of codes with a gap is written as floating-point numbers, one of gaps as nothing."""
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns: dict[str, Any] = {"a": [1, 0][:rows], "t": [1, 0][:rows], "y": [1, 0][:rows]}
    if missing:
        columns[column] = [None] if rows == 1 else [float("nan"), 0.0]
    parquet.write_table(pa.table(columns), tmp_path / "t.parquet")
    dataset, report = read_table(tmp_path / "t.parquet", CODES)
    assert report.missing == ({column: 1} if missing else {})
    assert report.clamped == {}
    first = {"a": [-1.0, 0.0, 1.0], "t": [1.0, 1.0, 0.0]}[column] if missing else [1.0, 0.0, 1.0]
    assert dataset.train.X[0].tolist() == first


# Who is in the sum.


def test_a_hash_that_takes_few_records_is_one_that_moves_others(
    laboratory: Laboratory, tmp_path: Path
) -> None:
    """Sizes rounded to all records looked like records that stay in place.

    Which parties are solved in which blocks then followed from who is tested on, and one step of
    the solver more or less moved the parties beside the changed one: by 7.6 times what was stated.
    """
    rng = np.random.default_rng(4)
    case = Crowd(
        name="few",
        strategy={**OUTPUT, "tolerance": 0.15686251276006472},
        model={"name": "huber-svm", "smoothing": 0.1},
        data={"test_fraction": 1e-4},
    )
    some: list[Row] = [
        {
            "age": f"{rng.uniform(0, 100):.2f}",
            "dose": f"{rng.uniform(-1, 1):.3f}",
            "ward": str(rng.choice(["icu", "er"])),
        }
        for _ in range(100)
    ]
    for row in some:
        score = float(row["age"]) / 50 - 1 + float(row["dose"]) + rng.normal() / 3
        row["outcome"] = "yes" if score > 0 else "no"
    rows = [{**row, "clinic": f"c{j:03}"} for j in range(case.parties) for row in some]
    tested = _tested_on(case, {**rows[0]}, rng, tmp_path / "drawn")
    one = laboratory.run(case, rows, tmp_path / "one")
    other = laboratory.run(case, [tested, *rows[1:]], tmp_path / "other", script=one)
    assert difference(case, one, other) == []
    assert moved(one.releases[0], other.releases[0]) <= limit(one.releases[0])


def _tested_on(case: Case, row: Row, rng: np.random.Generator, folder: Path) -> Row:
    """The row at another age, such that the hash sets it apart for testing."""
    drawn = [{**row, "age": f"{age:.3f}"} for age in rng.uniform(0, 100, 30_000)]
    write(case, drawn, folder)
    dataset, _ = read_table(folder / "clinic.csv", parse_schema(case.schema()))
    seed = checked(parse_experiment(case.experiment(folder))).seed_of("test split")
    fraction = case.data["test_fraction"]
    (found, *_) = np.flatnonzero(
        below(fraction, marks(dataset.train, purpose="test split", seed=seed))
    )
    return drawn[found]


@pytest.mark.parametrize(
    ("data", "in_place"),
    [
        ({"test_fraction": 0.0}, True),
        ({"test_fraction": 1e-4}, False),
        ({"test_fraction": 1e-17}, False),  # 1 - 1e-17 is 1 in floating point
        ({"test_fraction": 0.9}, False),
        ({"partition": "hashed", "parties": 1, "test_fraction": 0.0}, True),
    ],
    ids=str,
)
def test_only_records_that_no_hash_moves_are_in_place(
    data: dict[str, Any], in_place: bool, tmp_path: Path
) -> None:
    """And only the others may be tested on as public ones, or be left out of what is counted."""
    case = Case(name="places", strategy=OUTPUT, data=data)
    write(case, table("binary"), tmp_path / "data")
    prepared = prepare(parse_experiment(case.experiment(tmp_path / "data")))
    assert prepared.task.in_place == in_place
    assert prepared.own_test == in_place


# What a record does to the answers of others.

ALONE = (11, 1, 11, 1, 11, 1, 9)
"""Parties in chunks of 12 records; with one record less, of 11: every other chunk is cut anew."""


@dataclass(frozen=True, kw_only=True)
class Wide(Case):
    """A table of numbers in [-1, 1], of as many parties as there are in `ALONE`."""

    columns: int = 16

    def schema(self) -> dict[str, Any]:
        number = {"kind": "number", "min": -1, "max": 1, "fill": 0}
        return {
            "label": "y",
            "positive": "1",
            "party": "p",
            "out_of_range": "clamp",
            "columns": {
                **{f"x{i:02}": number for i in range(self.columns)},
                "y": {"kind": "category", "values": [0, 1]},
                "p": {"kind": "category", "values": list("abcdefg")},
            },
        }


def test_a_record_that_leaves_flips_no_other_at_the_kink_of_a_network(
    laboratory: Laboratory, tmp_path: Path
) -> None:
    """All records at the kinks of the first network, whose weights are public: it was 36 C."""
    hidden = 5
    case = Wide(
        name="kink",
        strategy={**GRADIENTS, "learning_rate": 0.1},
        adjacency="add-remove",
        model={"name": "mlp", "hidden": [hidden], "activation": "relu"},
        data={"test_fraction": 0.0, "intercept": 0.0, "feature_norm": 8.0, "records": list(ALONE)},
    )
    model = MlpModel(widths=(case.columns, hidden, 1), activation="relu")
    first = model.initial(np.random.default_rng(0)).float()
    weights = first[: hidden * case.columns].view(hidden, -1)
    null = np.linalg.svd(weights.double().numpy())[2][hidden:]
    rng = np.random.default_rng(0)
    drawn = rng.normal(size=(2000, len(null))) @ null
    drawn = (drawn / np.abs(drawn).max(1, keepdims=True) / 1.01).astype(np.float32)

    def flips(x: NDArray[np.float32]) -> int:
        few, many = ((weights @ torch.tensor(x).repeat(n, 1).T).T > 0 for n in (11, 12))
        return int((few != many[0]).sum())

    worst = max(drawn, key=flips)
    row = {f"x{i:02}": repr(float(value)) for i, value in enumerate(worst)} | {"y": "1"}
    rows = [{**row, "p": p} for p, size in zip("abcdefg", ALONE, strict=True) for _ in range(size)]
    one = laboratory.run(case, rows, tmp_path / "one")
    other = laboratory.run(case, rows[:-1], tmp_path / "other", script=one)
    assert difference(case, one, other) == []


@pytest.mark.parametrize("length", [1.0, 1e4, 1e8])
@pytest.mark.parametrize("classes", [2, 3, 5, 10])
def test_nor_one_between_two_classes_of_long_parameters(classes: int, length: float) -> None:
    """Rounding of scores as long as 10⁸ decides between classes: 36 C as well."""
    rng, width = np.random.default_rng(0), 17
    task = Task(
        model=LinearModel(width=width, classes=classes),
        loss=Softmax(classes=classes),
        regulariser=0.01,
        feature_bound=1.0,
        sizes=ALONE,
    )
    relation = Adjacency.ADD_REMOVE
    sensitivity = gradient_sensitivity(task, clip_norm=1.0, adjacency=relation)
    step = 2.0**-20
    for _ in range(5):
        theta = rng.normal(size=(classes, width))
        theta *= length / np.linalg.norm(theta, axis=1, keepdims=True)
        apart, x = theta[0] - theta[1], theta[0] + theta[1] - theta[2:].sum(0) / 2
        x -= apart * (x @ apart) / (apart @ apart)  # the first two classes tie
        query = GradientQuery(
            run="r",
            round=0,
            grid=grid_of(step=step, bound=task.records, parties=task.parties),
            event=GaussianMechanism(
                sensitivity=sensitivity, stddev=1.0, adjacency=relation
            ).event(),
            theta=theta.ravel(),
            clip_norm=1.0,
        )
        X = np.tile((x / np.linalg.norm(x) / 1.01).astype(np.float32), (task.records, 1))
        sums = [
            VectorizedFederation(
                _held(X[:n], classes), task=task, sampling=lambda _: RandomStream.from_os()
            )
            .sum(query)
            .value
            for n in (task.records, task.records - 1)
        ]
        grid = step * np.sqrt(task.dimension)
        assert np.linalg.norm(sums[0] - sums[1]) <= sensitivity + grid


def _held(X: NDArray[np.float32], classes: int) -> PartitionedDataset:
    party = np.repeat(np.arange(len(ALONE)), ALONE).astype(np.int32)[: len(X)]
    records = Records(X=X, y=np.ones(len(X), np.int64), party=party)
    dataset = Dataset(
        name="x",
        task="multiclass",
        train=records,
        test=records.take(slice(0, 0)),
        feature_names=tuple(map(str, range(X.shape[1]))),
        max_norm=1.0,
        party_names=tuple(map(str, range(len(ALONE)))),
        classes=tuple(map(str, range(classes))),
    )
    return partition(dataset, kind="natural")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("hidden", [(), (1,), (3,), (7, 20)], ids=str)
@pytest.mark.parametrize("outputs", [1, 2, 10])
@pytest.mark.parametrize("activation", ["relu", "sigmoid", "tanh"])
@one_thread()
def test_a_row_has_the_same_scores_and_gradients_in_every_place(
    activation: str, outputs: int, hidden: tuple[int, ...], dtype: torch.dtype
) -> None:
    """Among few and many, and wherever the first row of a batch lies in memory."""
    rng = np.random.default_rng(0)
    for width in (3, 17):
        model: Model = MlpModel(widths=(width, *hidden, outputs), activation=activation)
        if not hidden and outputs > 1:
            model = LinearModel(width=width, classes=outputs)
        loss: Loss = Softmax(classes=outputs) if outputs > 1 else Logistic()
        theta = torch.from_numpy(rng.normal(size=model.dimension))
        row = torch.from_numpy(rng.normal(size=width)).to(dtype)
        found: set[bytes] = set()
        for count in (1, 3, 11, 12, 193, 400):
            for skipped in (0, 1):
                memory = torch.zeros((count + 1) * width, dtype=dtype)
                features = memory[skipped * width : (count + skipped) * width].view(count, width)
                features[:] = row
                labels = torch.ones(count, dtype=torch.int64 if outputs > 1 else dtype)
                batch = RecordBatch(features=features, labels=labels)
                scores = model.scores(theta, features).reshape(count, outputs)
                factors = model.gradient_factors(theta, batch, loss)
                parts = [factor.rows() for factor in factors]
                parts += [factor.squares()[:, None] for factor in factors]
                found |= {line.numpy().tobytes() for line in torch.cat([scores, *parts], 1)}
        assert len(found) == 1, (width, len(found))


@pytest.mark.parametrize("records", [1, 128, 129, 1500])
def test_a_sum_of_one_party_is_the_same_beside_others(records: int) -> None:
    """Half a step of the grid and next to nothing: in another order it was rounded up."""
    rows = torch.full((records, 3), 2.0**-62)
    rows[0] = 0.5
    more = torch.cat([rows, torch.ones(5, 3)])
    alone = Segments(offsets=torch.tensor([0, records]))
    beside = Segments(offsets=torch.tensor([0, records, records + 5]))
    ones = torch.ones(len(more))
    for one, both in (
        (alone.weighted_sums(ones[:records], rows), beside.weighted_sums(ones, more)),
        (alone.sums(rows), beside.sums(more)),
    ):
        assert torch.equal(one[0].double(), both[0].double())


# What was tried, and found nothing.


@pytest.mark.parametrize(
    "fraction", [None, 0.0, 0.5], ids=["default split", "no split", "half of all tested on"]
)
@pytest.mark.parametrize("kind", ["last of its party", "one of many copies", "one of two parties"])
def test_a_record_that_leaves_shows_through_its_noise_alone(
    kind: str, fraction: float | None, laboratory: Laboratory, tmp_path: Path
) -> None:
    rows = table("binary")
    data: dict[str, Any] = {"test_fraction": fraction}
    if kind == "last of its party":
        others = [row for row in rows if row["clinic"] != "west"]
        rows = [*others, next(row for row in rows if row["clinic"] == "west")]
    elif kind == "one of many copies":
        rows = [*rows, *([dict(rows[0])] * 20)]
    else:
        data |= {"partition": "hashed", "parties": 2, "records": 50}
    case = Case(name=kind, strategy=GRADIENTS, adjacency="add-remove", data=data)
    one = laboratory.run(case, rows, tmp_path / "one")
    other = laboratory.run(case, rows[:-1], tmp_path / "other", script=one)
    assert (one.code, other.code) == (0, 0)
    assert difference(case, one, other) == []


@pytest.mark.parametrize(
    "content",
    [
        "a,t,y\r\n0.5,1,1\r\n",
        "\ufeffa,t,y\n0.5,1,1",
        'a,t,y\n"0.5","1","1"\n',
        " a ,t, y\n +0.50 , 1 ,\t1 \n\n",
        "t,y,more,a\n1,1,\u00e9,5e-1\n",
    ],
    ids=["lines", "mark", "quotes", "blanks", "order"],
)
def test_a_record_is_the_same_however_it_is_spelled(content: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(content.encode())
    dataset, report = read_table(tmp_path / "t.csv", CODES)
    assert dataset.train.X.tolist() == [[0.0, 0.0, 1.0]]
    assert dataset.train.y.tolist() == [1.0]
    assert (report.missing, report.clamped) == ({}, {})
