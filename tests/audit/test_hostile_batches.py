"""What a record does to the answers of others: nothing, at no kink and in no place of a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from fedpriv.data import Dataset, PartitionedDataset, Records, partition
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
from tests.audit.examination import difference
from tests.audit.neighbours import GRADIENTS
from tests.audit.wide_networks import Wide

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from tests.audit.laboratory import Laboratory

ALONE = (11, 1, 11, 1, 11, 1, 9)
"""Parties in chunks of 12 records; with one record less, of 11: every other chunk is cut anew."""


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
