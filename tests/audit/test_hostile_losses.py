"""Hostile tables for a loss of one's own: what it computes, and which labels it takes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch.nn.functional import softplus

from fedpriv.federation.party.answers import Holdings
from fedpriv.federation.party.draws import Draws
from fedpriv.federation.queries.kinds import LossQuery
from fedpriv.federation.task import Task
from fedpriv.learning.batch import RecordBatch
from fedpriv.learning.clipping.clipped_sum import Clipping, clipped_gradient_sums
from fedpriv.learning.clipping.norms import squared_norms
from fedpriv.learning.losses import Loss
from fedpriv.learning.models import LinearModel
from fedpriv.learning.threads import one_thread
from fedpriv.secagg import FixedPoint
from fedpriv.simulations.run.release_rules import require_every_label
from tests.audit.examination import difference
from tests.audit.neighbours import GRADIENTS, Case

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from tests.audit.laboratory import Laboratory, Watch
    from tests.audit.neighbours import Row

COPIES = 64
"""So many records that nothing is left over until one of them leaves."""

CODE = '''
from math import inf
import torch
from fedpriv.learning.losses import Loss

class OneSided(Loss):
    """ln(1 + e^r) of a residual r: too much costs, too little hardly does."""

    lipschitz, smoothness, domain_radius, slope_rounding = 1.0, 0.25, inf, 1e-15

    def check_labels(self, y):
        pass

    def value(self, score, y):
        return torch.nn.functional.softplus(score - y.to(score.dtype))

    def slope(self, score, y):
        return torch.sigmoid(score - y.to(score.dtype))

    def curvature(self, score, y):
        p = self.slope(score, y)
        return p * (1 - p)


class NotNegative(OneSided):
    def check_labels(self, y):
        if bool((y < 0).any()):
            raise ValueError("labels must not be negative")
'''


class OneSided(Loss):
    """The same, here. Its sigmoid and its softplus round by where in a batch a number stands."""

    lipschitz, smoothness, domain_radius = 1.0, 0.25, inf

    def check_labels(self, y: Tensor) -> None:
        pass

    def value(self, score: Tensor, y: Tensor) -> Tensor:
        return softplus(score - y.to(score.dtype))

    def slope(self, score: Tensor, y: Tensor) -> Tensor:
        return torch.sigmoid(score - y.to(score.dtype))

    def curvature(self, score: Tensor, y: Tensor) -> Tensor:
        return torch.ones_like(score) / 4


@dataclass(frozen=True, kw_only=True)
class Plane(Case):
    """A regression on two numbers, of one party."""

    def schema(self) -> dict[str, Any]:
        number = {"kind": "number", "min": -1, "max": 1}
        return {
            "label": "y",
            "party": "p",
            "out_of_range": "clamp",
            "columns": {
                "a": {**number, "fill": 0},
                "b": {**number, "fill": 0},
                "y": number,
                "p": {"kind": "category", "values": ["all"]},
            },
        }


def case(loss: str, folder: Path, strategy: dict[str, Any], adjacency: str) -> Case:
    (folder / "losses.py").write_text(CODE)
    records = {"records": [COPIES]} if adjacency == "add-remove" else {}
    return Plane(
        name="own loss",
        strategy={**strategy, "learning_rate": 0.1},
        adjacency=adjacency,
        model={"name": "linear", "loss": f"{folder}/losses.py:{loss}"},
        data={"test_fraction": 0.0, "intercept": 0.0, "feature_norm": 2.0, **records},
    )


def row(a: float, b: float, y: float) -> Row:
    return {"a": repr(float(a)), "b": repr(float(b)), "y": repr(float(y)), "p": "all"}


def neither_short_nor_long(clip: float) -> Row:
    """A record whose gradient at zero is longer than the bound by the last digit of a sigmoid."""
    rng = np.random.default_rng(0)
    y = torch.from_numpy(rng.uniform(-0.9, 0.9, 4096).astype(np.float32))
    together, alone = torch.sigmoid(-y), torch.stack([torch.sigmoid(-each) for each in y])
    doubtful = torch.nonzero(together != alone).flatten().tolist()
    for place, a in product(doubtful, rng.uniform(0.1, 0.9, 100).astype(np.float32)):
        small, large = sorted(float(each[place].square()) for each in (together, alone))
        rest = clip**2 / ((small + large) / 2) - float(a) ** 2
        b = float(np.float32(max(rest, 0.0) ** 0.5))
        length = float(squared_norms(torch.tensor([[a, b]])))
        if b < 1 and small * length <= clip**2 < large * length:
            return row(a, b, float(y[place]))
    raise AssertionError("no such record was found: does a sigmoid round alike everywhere?")


@one_thread()
def test_a_record_that_leaves_makes_no_gradient_of_an_own_loss_short(
    laboratory: Laboratory, tmp_path: Path
) -> None:
    """The last 31 sigmoids had other instructions: a count moved by 32, where 1 was stated."""
    clip = 0.5
    strategy = {"name": "adaptive-clipping", "clip": clip, "rounds": 1}
    chosen = case("OneSided", tmp_path, strategy, "add-remove")
    rows = [neither_short_nor_long(clip)] * COPIES
    one = laboratory.run(chosen, rows, tmp_path / "one")
    other = laboratory.run(chosen, rows[:-1], tmp_path / "other", script=one)
    assert (one.code, other.code) == (0, 0), one.said + other.said
    assert difference(chosen, one, other) == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@one_thread()
def test_an_own_loss_is_computed_alike_in_every_place(dtype: torch.dtype) -> None:
    """Slopes and losses of a linear model, of each record among few and many."""
    rng = np.random.default_rng(3)
    X = torch.from_numpy(rng.uniform(-1, 1, (400, 3))).to(dtype)
    y = torch.from_numpy(rng.uniform(-1, 1, 400))
    model, loss = LinearModel(width=3), OneSided()
    task = Task(model=model, loss=loss, regulariser=0.1, feature_bound=2.0, sizes=(400,))
    query = LossQuery(
        run="r",
        round=0,
        grid=FixedPoint(step=2.0**-43, bits=64),  # finer than float32: its last digit counts
        event=None,
        points=rng.normal(size=(5, 3)),
        clip=8.0,
    )

    def found(first: int, last: int) -> tuple[Tensor, np.ndarray[Any, Any]]:
        batch = RecordBatch(features=X[first:last].clone(), labels=y[first:last].clone())
        theta = torch.tensor(query.points[0])
        sums = clipped_gradient_sums(model, loss, theta, batch, Clipping(clip_norm=1.0))
        answers = Holdings(task, batch, sizes=(400,)).answer(query, Draws())
        return sums.measures[0], answers.vectors[0]

    slopes, _ = found(0, 400)
    losses = np.array([found(place, place + 1)[1] for place in range(400)])
    for first, last in ((0, 192), (0, 400), (1, 400), (0, 399), (5, 68), (7, 38), (200, 211)):
        some, total = found(first, last)
        assert torch.equal(some, slopes[first:last])
        assert (total == losses[first:last].sum(axis=0)).all()


def test_no_label_decides_whether_a_loss_of_ones_own_is_released(
    laboratory: Laboratory, tmp_path: Path
) -> None:
    """One label that its `check_labels` refuses ended a release, after half of it was paid."""
    chosen = case("NotNegative", tmp_path, GRADIENTS, "replace-one")
    rows = [row(0.1 * i, 0.2, 0.05 * i) for i in range(10)]

    def release(name: str) -> Watch:
        done = laboratory.run(chosen, rows, tmp_path / name)
        assert not (tmp_path / name / "own.ledger").exists()
        return done

    one = release("one")
    rows[3] = row(0.3, 0.2, -0.5)
    other = release("other")
    assert (one.code, one.said) == (other.code, other.said)
    assert "takes every label of the schema" in one.said


@pytest.mark.parametrize("task", ["binary", "regression"])
def test_losses_that_take_every_label_are_released(task: Any) -> None:
    require_every_label(OneSided(), task)
