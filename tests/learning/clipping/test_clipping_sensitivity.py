"""One record moves a clipped sum by at most C (add-remove) or 2C (replace-one): by search."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedpriv.learning.batch import RecordBatch
from fedpriv.learning.clipping.clipped_sum import Clipping, clipped_gradient_sums
from fedpriv.learning.clipping.factors import Rows
from fedpriv.learning.losses import HuberHinge, Logistic, Loss, Softmax, Squared
from fedpriv.learning.models import LinearModel, MlpModel, Model
from fedpriv.learning.network import NetworkModel
from fedpriv.learning.rounding_error import rounding_sensitivity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedpriv.learning.clipping.factors import Factor

C = 0.5
OTHERS = 6
Record = tuple[Tensor, Tensor]


def _network() -> NetworkModel:
    module = nn.Sequential(nn.Conv2d(1, 2, 2), nn.ReLU(), nn.Flatten(), nn.Linear(4, 1))
    return NetworkModel(module=module, input_shape=(1, 2, 3))


CASES: dict[str, tuple[Model, Loss]] = {
    "linear": (LinearModel(width=6), Logistic()),
    "hinge": (LinearModel(width=6), HuberHinge(smoothing=0.1)),
    "unbounded": (LinearModel(width=6), Squared(radius=1.0, label_bound=1.0)),
    "classes": (LinearModel(width=6, classes=3), Softmax(classes=3)),
    "mlp": (MlpModel(widths=(6, 4, 1), activation="relu"), Logistic()),
    "network": (_network(), Logistic()),
}


def _sum(
    model: Model, loss: Loss, theta: Tensor, records: Sequence[Record], clipping: Clipping
) -> Tensor:
    x = torch.stack([record[0] for record in records])
    y = torch.stack([record[1] for record in records])
    batch = RecordBatch(features=x, labels=y)
    return clipped_gradient_sums(model, loss, theta, batch, clipping).value[0]


def _draw(rng: np.random.Generator, model: Model, loss: Loss) -> Record:
    """A record of any size, now and then one that is not finite."""
    scale = 10.0 ** rng.uniform(-4, 8)
    x = torch.from_numpy(rng.normal(0, scale, model.features)).float()
    if rng.random() < 0.05:
        x[0] = rng.choice([np.nan, np.inf, 3e38])
    if loss.outputs > 1:
        return x, torch.tensor(int(rng.integers(loss.outputs)))
    return x, torch.tensor(float(rng.choice([-1, 1])))


def largest_difference(
    model: Model, loss: Loss, clipping: Clipping, *, replace: bool, seed: int, trials: int = 150
) -> float:
    """Climb: keep a change of parameters, records or the exchanged record if it moves the sum."""
    rng = np.random.default_rng(seed)

    def draw() -> tuple[Tensor, list[Record]]:
        theta = torch.from_numpy(rng.normal(0, 10.0 ** rng.uniform(-2, 1), model.dimension))
        return theta, [_draw(rng, model, loss) for _ in range(OTHERS + 2)]

    def difference(theta: Tensor, records: list[Record]) -> float:
        *others, old, new = records
        there = _sum(model, loss, theta, [*others, old], clipping)
        gone = _sum(model, loss, theta, [*others, new] if replace else others, clipping)
        return float((there - gone).norm())

    theta, records = draw()
    best = difference(theta, records)
    for _ in range(trials):
        candidate_theta, candidate = draw()
        if rng.random() < 0.7:  # else start afresh
            candidate_theta = theta
            keep = rng.integers(len(records))
            candidate = [*records]
            candidate[keep] = _draw(rng, model, loss)
        moved = difference(candidate_theta, candidate)
        if moved >= best:
            best, theta, records = moved, candidate_theta, candidate
    return best


def _bound(*, replace: bool) -> float:
    slack = rounding_sensitivity(
        clip_norm=C, records=OTHERS + 1, dtype=torch.float32, replace_one=replace
    )
    return (2 * C if replace else C) + slack


@pytest.mark.parametrize("replace", [False, True], ids=["add-remove", "replace-one"])
@pytest.mark.parametrize("case", CASES)
def test_no_neighbours_found_by_search_differ_by_more_than_the_bound(
    case: str, replace: bool
) -> None:
    model, loss = CASES[case]
    moved = largest_difference(model, loss, Clipping(clip_norm=C), replace=replace, seed=1)
    assert 0.6 * _bound(replace=replace) <= moved <= _bound(replace=replace)


def test_scaled_coordinates_keep_the_bound() -> None:
    model, loss = CASES["mlp"]
    rng = np.random.default_rng(0)
    clipping = Clipping(
        clip_norm=C,
        centre=torch.from_numpy(rng.normal(size=model.dimension)),
        scale=torch.from_numpy(rng.uniform(0.01, 100, model.dimension)),
    )
    for replace in (False, True):
        moved = largest_difference(model, loss, clipping, replace=replace, seed=2)
        assert 0.6 * _bound(replace=replace) <= moved <= _bound(replace=replace)


@pytest.mark.parametrize("case", [name for name in CASES if name != "classes"])
def test_a_crafted_pair_reaches_the_bound(case: str) -> None:
    """The same large record with opposite labels: both gradients are clipped, and opposed."""
    model, loss = CASES[case]
    rng = np.random.default_rng(3)
    theta = 0.01 * torch.from_numpy(rng.normal(size=model.dimension))
    x = torch.from_numpy(rng.uniform(5, 6, model.features)).float()
    clipping = Clipping(clip_norm=0.3)
    one = _sum(model, loss, theta, [(x, torch.tensor(1.0))], clipping)
    other = _sum(model, loss, theta, [(x, torch.tensor(-1.0))], clipping)
    assert 2 * 0.3 * 0.999 < float((one - other).norm()) <= 2 * 0.3
    assert 0.3 * 0.999 < float(one.norm()) <= 0.3


def test_the_search_has_teeth(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model whose gradients are centred on the batch is caught far beyond the bound."""

    def centred(_: Clipping, factors: tuple[Factor, ...]) -> tuple[Factor, ...]:
        gradients = torch.cat([factor.rows() for factor in factors], dim=1)
        return (Rows(gradients - gradients.mean(0)),)

    monkeypatch.setattr(Clipping, "in_coordinates", centred)
    moved = largest_difference(
        _network(), Logistic(), Clipping(clip_norm=C), replace=True, seed=1, trials=60
    )
    assert moved > 1.2 * _bound(replace=True)


def test_a_doubled_contribution_would_be_found() -> None:
    model, loss = CASES["linear"]
    moved = largest_difference(model, loss, Clipping(clip_norm=2 * C), replace=True, seed=1)
    assert moved > 1.2 * _bound(replace=True)
