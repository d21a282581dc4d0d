"""Hostile places: copies of one record, which a release must treat alike wherever they stand.

Functions and sums of PyTorch take vectors of numbers at a time, and have other instructions for
those that are left over at the end. A record that leaves makes others the last.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from fedpriv.data import Bounds, Records, enforce
from fedpriv.federation.party.party import Party
from fedpriv.federation.queries.bounds import grid_of
from fedpriv.federation.queries.kinds import GradientQuery
from fedpriv.federation.task import Task
from fedpriv.learning.batch import RecordBatch
from fedpriv.learning.clipping.clipped_sum import ClippedGradient, Clipping
from fedpriv.learning.clipping.dense import ROWS
from fedpriv.learning.clipping.norms import squared_norms
from fedpriv.learning.losses import HuberHinge, Logistic, Loss, Softmax
from fedpriv.learning.models import LinearModel, MlpModel, Model
from fedpriv.learning.network import small_cnn
from fedpriv.learning.threads import one_thread
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import GaussianEvent
from fedpriv.privacy.randomness import RandomStream
from tests.audit.examination import difference
from tests.audit.wide_networks import Wide

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor

    from tests.audit.laboratory import Laboratory
    from tests.audit.neighbours import Case

WIDTH, HIDDEN, SEED = 16, 20, 10
"""Of the network, whose first weights are public."""

COPIES = 64
"""So many records that nothing is left over until one of them leaves."""

MODEL = MlpModel(widths=(WIDTH, HIDDEN, 1), activation="sigmoid")
THETA = MODEL.initial(np.random.default_rng(SEED)).float()


def measured(loss: Loss, x: Tensor) -> Tensor:
    """The squared gradient norms and the slopes, (2, n), of many copies, and of one fewer."""
    found = []
    for count in (COPIES, COPIES - 1):
        batch = RecordBatch(features=x.repeat(count, 1), labels=torch.ones(count))
        factors = MODEL.gradient_factors(THETA, batch, loss)
        squares = torch.stack([factor.squares().double() for factor in factors]).sum(0)
        found.append(torch.stack([squares, factors[-1].rows()[:, -1].double()]))
    return torch.cat(found, dim=1)


def spread(loss: Loss, row: int, x: Tensor) -> float:
    values = measured(loss, x)[row]
    return float(values.max() - values.min())


def findings(
    strategy: dict[str, Any],
    model: dict[str, Any],
    record: Tensor,
    laboratory: Laboratory,
    folder: Path,
) -> list[str]:
    """What one of many copies shows beside the noise, or by more than the noise hides."""
    case: Case = Wide(
        name="places",
        columns=WIDTH,
        strategy={**strategy, "rounds": 1, "learning_rate": 0.1, "seed": SEED},
        adjacency="add-remove",
        model={"name": "mlp", "hidden": [HIDDEN], "activation": "sigmoid", **model},
        data={
            "test_fraction": 0.0,
            "intercept": 0.0,
            "feature_norm": 8.0,
            "records": [COPIES, 1, 1, 1, 1, 1, 1],
        },
    )
    row = {f"x{i:02}": repr(float(value)) for i, value in enumerate(record)} | {"y": "1", "p": "a"}
    rows = [dict(row) for _ in range(COPIES)]
    one = laboratory.run(case, rows, folder / "one")
    other = laboratory.run(case, rows[:-1], folder / "other", script=one)
    assert (one.code, other.code) == (0, 0), one.said + other.said
    return difference(case, one, other)


@one_thread()
def test_a_record_that_leaves_makes_no_other_gradient_short(
    laboratory: Laboratory, tmp_path: Path
) -> None:
    """The norms of the last 31 were added up in another order: a count moved by 32, not by 1."""
    rng = np.random.default_rng(1)
    drawn = torch.from_numpy(rng.uniform(-0.9, 0.9, (100, WIDTH)).astype(np.float32))
    worst = max(drawn, key=partial(spread, Logistic(), 0))
    squares = measured(Logistic(), worst)[0]
    clip = float((squares.min() + squares.max()) / 2) ** 0.5
    strategy = {"name": "adaptive-clipping", "clip": clip}
    assert findings(strategy, {}, worst, laboratory, tmp_path) == []


@one_thread()
def test_a_record_that_leaves_flips_no_other_by_the_last_digit_of_a_sigmoid(
    laboratory: Laboratory, tmp_path: Path
) -> None:
    """At the bend of a hinge the last digit of the activations decided about a gradient."""
    loss = HuberHinge(smoothing=1e-8)
    worst = max(_at_the_bend(), key=partial(spread, loss, 1))
    model = {"loss": "huber-svm", "smoothing": loss.smoothing}
    strategy = {"name": "gradient-perturbation"}
    assert findings(strategy, model, worst, laboratory, tmp_path) == []


def _at_the_bend() -> Tensor:
    """Records whose margin is 1 up to its last digits, at the first network."""
    first, second = THETA[: HIDDEN * WIDTH].view(HIDDEN, WIDTH), THETA[-HIDDEN - 1 : -1]
    rng = np.random.default_rng(2)
    lengths = torch.from_numpy(rng.uniform(0.5, 0.9, (200, WIDTH)).astype(np.float32))
    towards = (second @ first).sign() * lengths
    low, high = torch.zeros(len(towards), 1), torch.ones(len(towards), 1)
    for _ in range(30):
        middle = (low + high) / 2
        below = MODEL.scores(THETA, towards * middle)[:, None] < 1
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return towards * high


def test_a_record_that_leaves_makes_no_other_short_where_threads_share_them() -> None:
    """PyTorch cuts what a party computes into shares, whose last numbers have other instructions.

    With five threads a count of short gradients moved by 27, and the answer by 110, not by 2.2.
    """
    count, counting = 860 * ROWS + 1, 4.0  # enough for five shares, which end elsewhere with less
    model = MlpModel(widths=(2, 1, 1), activation="sigmoid")
    theta = model.initial(np.random.default_rng(4))
    task = Task(model=model, loss=Logistic(), regulariser=0.1, feature_bound=8.0, sizes=(count,))
    before, threads = torch.get_num_threads(), 5
    torch.set_num_threads(threads)
    try:
        record, clip = _short_by_place(model, theta, count)
        query = GradientQuery(
            run="places",
            round=0,
            grid=grid_of(step=2.0**-20, bound=count * counting, parties=1),
            event=GaussianEvent(relative_noise=1.0, adjacency=Adjacency.ADD_REMOVE),
            theta=theta.numpy(),
            clip_norm=clip,
            counting=counting,
        )
        sums = []
        for copies in (count, count - 1):
            records = Records(X=np.tile(record, (copies, 1)), y=np.ones(copies, np.float32))
            party = Party(records, task=task, size=count, sampling=lambda _: RandomStream.from_os())
            sums.append(query.grid.decode(party.answer(query)) * query.grid.step)
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    stated = query.sensitivity(task, sizes=task.sizes, adjacency=Adjacency.ADD_REMOVE)
    assert stated is not None
    assert 0 < np.linalg.norm(sums[0] - sums[1]) <= stated


def _short_by_place(model: Model, theta: Tensor, count: int) -> tuple[NDArray[np.float32], float]:
    """A record, and a clip norm, such that of its copies many are short by their place, if any."""
    drawn = np.random.default_rng(1).uniform(-0.9, 0.9, (20, model.features)).astype(np.float32)
    for x in drawn:
        squares = []
        for copies in (count, count - 1):
            batch = RecordBatch(
                features=torch.tensor(x).double().repeat(copies, 1), labels=torch.ones(copies)
            )
            clipping = Clipping(clip_norm=1.0)
            gradient = ClippedGradient(model=model, loss=Logistic(), batch=batch, clipping=clipping)
            squares.append(gradient(theta).measures[0].numpy())
        for square in np.unique(np.concatenate(squares)):
            clip = float(np.sqrt(square))
            for _ in range(4):
                short = [int((some <= clip**2).sum()) for some in squares]
                if abs(short[0] - short[1]) > 1:
                    return x, clip
                clip = float(np.nextafter(clip, 2.0))
    return drawn[0], 1.0


@pytest.mark.parametrize("records", [7, 60, 128, 200])
@pytest.mark.parametrize(
    ("model", "loss"),
    [
        (MODEL, Logistic()),
        (MlpModel(widths=(5, 7, 4, 3), activation="relu"), Softmax(classes=3)),
        (LinearModel(width=9, classes=3), Softmax(classes=3)),
    ],
    ids=["network", "deep", "softmax"],
)
@one_thread()
def test_the_sum_of_a_party_follows_from_its_own_records(
    model: Model, loss: Loss, records: int
) -> None:
    """It is rounded to a grid, and the last digit may decide about a step, at every party.

    Products in batches had other instructions by how many there were, and where numbers lay: one
    record more at the first party changed the last digits of 58 % of 4000 others.
    """
    rng = np.random.default_rng(0)
    most = records + 2 * records + 151
    X = torch.from_numpy(rng.normal(size=(most, model.features)).astype(np.float32))
    labels = rng.integers(0, 2, most) if loss.outputs > 1 else rng.choice([-1.0, 1.0], most)
    y, theta = torch.from_numpy(labels), torch.from_numpy(rng.normal(size=model.dimension))
    found = set()
    for before in (0, 1, 3, records, 150):
        for after in (0, 5, records, 2 * records + 1):
            kept = torch.arange(records, records + before + records + after) % most
            kept[before : before + records] = torch.arange(records)
            batch = RecordBatch(
                features=X[kept],
                labels=y[kept],
                offsets=torch.tensor([0, before, before + records, len(kept)]),
            )
            sums = ClippedGradient(
                model=model, loss=loss, batch=batch, clipping=Clipping(clip_norm=1.0)
            )(theta)
            found.add(sums.value[1].numpy().tobytes())
    assert len(found) == 1


@pytest.mark.parametrize(("classes", "loss"), [(1, Logistic()), (3, Softmax(classes=3))])
@one_thread()
def test_an_image_has_the_same_gradient_and_norm_in_every_place(classes: int, loss: Loss) -> None:
    rng, model = np.random.default_rng(0), small_cnn(shape=(1, 8, 8), classes=classes)
    theta = model.initial(rng).float()
    for _ in range(5):
        image = torch.from_numpy(rng.normal(size=model.features).astype(np.float32))
        found = set()
        for count in (1, 3, 64, 193):
            labels = torch.ones(count, dtype=torch.int64 if classes > 1 else torch.float32)
            batch = RecordBatch(features=image.repeat(count, 1), labels=labels)
            factors = model.gradient_factors(theta, batch, loss)
            parts = [factor.rows() for factor in factors]
            parts += [factor.squares()[:, None] for factor in factors]
            found |= {line.numpy().tobytes() for line in torch.cat(parts, dim=1)}
        assert len(found) == 1


@pytest.mark.parametrize("width", [1, 5, 16, 33, 64, 65, 785, 1001])
def test_a_row_is_bounded_and_measured_alike_in_every_place(width: int) -> None:
    """Rows of many sizes, cut anew by a row that leaves: their bits decide about hash and clip."""
    rng = np.random.default_rng(width)
    X = (rng.normal(size=(90, width)) * 10.0 ** rng.integers(-3, 3, (90, width))).astype(np.float32)
    bounded, squares = enforce(X, Bounds(norm=2.0)), squared_norms(torch.from_numpy(X))
    for first, last in ((1, 90), (0, 89), (3, 4), (7, 40)):
        part = X[first:last]  # in the memory of the whole, and so askew
        assert (enforce(part, Bounds(norm=2.0)) == bounded[first:last]).all()
        assert torch.equal(squared_norms(torch.from_numpy(part)), squares[first:last])
