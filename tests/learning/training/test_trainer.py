from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from fedpriv.learning import (
    HuberHinge,
    HuberRegression,
    LinearModel,
    Logistic,
    MlpModel,
    RecordBatch,
    Softmax,
    Squared,
    small_cnn,
)
from fedpriv.learning.training.settings import LocalSgd
from fedpriv.learning.training.trainer import LocalTrainer
from tests.learning.training import reference

if TYPE_CHECKING:
    from fedpriv.learning import Loss, Model

WIDTH = 9
SIZES = (7, 0, 1, 12, 5, 20, 3)  # an empty party, one with a single record, full and cut batches
KEY = 2**63 + 12345
PLAIN = LocalSgd(epochs=2, batch_size=4, learning_rate=0.3)
RICH = replace(PLAIN, momentum=0.6, proximal=0.3, regulariser=0.05)

CASES: dict[str, tuple[Model, Loss]] = {
    "logistic": (LinearModel(width=WIDTH), Logistic()),
    "hinge": (LinearModel(width=WIDTH), HuberHinge(smoothing=0.5)),
    "squared": (LinearModel(width=WIDTH), Squared(radius=9.0, label_bound=2.0)),
    "huber": (LinearModel(width=WIDTH), HuberRegression(threshold=0.4)),
    "softmax": (LinearModel(width=WIDTH, classes=3), Softmax(classes=3)),
    "perceptron": (MlpModel(widths=(WIDTH, 5, 3)), Softmax(classes=3)),
    "deep": (MlpModel(widths=(WIDTH, 6, 4, 3), activation="tanh"), Softmax(classes=3)),
    "relu": (MlpModel(widths=(WIDTH, 6, 1), activation="relu"), Logistic()),
    "wide": (MlpModel(widths=(WIDTH, 33, 17, 1), activation="sigmoid"), HuberHinge(smoothing=0.5)),
    "no hidden layer": (MlpModel(widths=(WIDTH, 2)), Softmax(classes=2)),
    "cnn": (small_cnn(shape=(1, 4, 4), classes=3), Softmax(classes=3)),
}


def records(
    model: Model, loss: Loss, sizes: tuple[int, ...] = SIZES, dtype: torch.dtype = torch.float64
) -> RecordBatch:
    rng = np.random.default_rng(5)
    count = sum(sizes)
    if loss.outputs > 1:
        labels = torch.from_numpy(rng.integers(loss.outputs, size=count))
    else:
        labels = torch.from_numpy(rng.choice([-1.0, 1.0], size=count))
    features = rng.normal(size=(count, model.features)) / model.features**0.5
    return RecordBatch(
        features=torch.from_numpy(features).to(dtype),
        labels=labels,
        offsets=torch.tensor([0, *np.cumsum(sizes).tolist()]),
    )


def start(model: Model) -> torch.Tensor:
    rng = np.random.default_rng(6)
    return torch.from_numpy(rng.normal(scale=0.3, size=model.dimension))


@pytest.mark.parametrize(
    "settings",
    [
        PLAIN,
        RICH,
        LocalSgd(steps=5, batch_size=3, learning_rate=0.3, momentum=0.5),
        LocalSgd(epochs=3, learning_rate=0.5, proximal=0.2),
        LocalSgd(epochs=1, batch_size=100, learning_rate=0.5, regulariser=0.2),
    ],
    ids=["plain", "rich", "steps", "full batch", "batch beyond the party"],
)
@pytest.mark.parametrize("case", CASES)
def test_updates_are_those_of_plain_local_training(case: str, settings: LocalSgd) -> None:
    model, loss = CASES[case]
    batch, theta = records(model, loss), start(model)
    trainer = LocalTrainer(model=model, loss=loss, batch=batch, settings=settings, first_party=3)
    expected = reference.updates(model, loss, batch, theta, settings, key=KEY, first_party=3)
    found = trainer.updates(theta, key=KEY)
    assert found.dtype == np.float64
    assert np.abs(expected).max() > 0.01
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_a_shift_moves_every_step(case: str) -> None:
    model, loss = CASES[case]
    batch, theta = records(model, loss), start(model)
    rng = np.random.default_rng(7)
    shift = torch.from_numpy(rng.normal(scale=0.1, size=(batch.parties, model.dimension)))
    trainer = LocalTrainer(model=model, loss=loss, batch=batch, settings=RICH)
    expected = reference.updates(model, loss, batch, theta, RICH, key=KEY, shift=shift)
    found = trainer.updates(theta, key=KEY, shift=shift)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_in_float32_updates_are_right_to_its_precision(case: str) -> None:
    model, loss = CASES[case]
    batch, theta = records(model, loss, dtype=torch.float32), start(model)
    trainer = LocalTrainer(model=model, loss=loss, batch=batch, settings=PLAIN)
    expected = reference.updates(model, loss, batch, theta, PLAIN, key=KEY)
    found = trainer.updates(theta, key=KEY)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=2e-5)
