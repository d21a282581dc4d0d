from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn

from fedpriv.learning import (
    HuberHinge,
    HuberRegression,
    LinearModel,
    Logistic,
    MlpModel,
    NetworkModel,
    RecordBatch,
    Softmax,
    Squared,
    small_cnn,
)
from fedpriv.learning.network import seeded_module
from fedpriv.learning.training.general import GeneralTraining
from fedpriv.learning.training.networks import SequentialTraining
from fedpriv.learning.training.settings import LocalSgd
from fedpriv.learning.training.trainer import LocalTrainer, place_free
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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", CASES)
def test_an_update_does_not_depend_on_who_is_computed_beside_it(
    case: str, dtype: torch.dtype
) -> None:
    """To the bit: so sums do not depend on chunks or workers, and all engines agree."""
    model, loss = CASES[case]
    batch, theta = records(model, loss, dtype=dtype), start(model)
    whole = LocalTrainer(model=model, loss=loss, batch=batch, settings=RICH, first_party=2)
    assert whole.place_free
    assert place_free(model, loss)
    expected = whole.updates(theta, key=KEY)
    offsets = [0, *np.cumsum(SIZES).tolist()]
    for first, last in ((0, 1), (1, 4), (4, 6), (6, 7)):
        own = slice(offsets[first], offsets[last])
        piece = RecordBatch(
            features=batch.features[own].clone(),
            labels=batch.labels[own],
            offsets=torch.tensor(offsets[first : last + 1]) - offsets[first],
        )
        trainer = replace(whole, batch=piece, first_party=2 + first)
        np.testing.assert_array_equal(trainer.updates(theta, key=KEY), expected[first:last])


class _Unknown(Logistic):
    """A loss that compiled code does not know by its type."""


class _Skip(nn.Module):
    """A network whose layers do not simply follow one another."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.last(x + torch.tanh(self.first(x)))
        return scores


def _network(*layers: nn.Module, shape: tuple[int, ...] = (2, 9, 7)) -> NetworkModel:
    module = seeded_module(lambda: nn.Sequential(*layers), seed=0)
    return NetworkModel(module=module, input_shape=shape, classes=3)


OTHERS: dict[str, tuple[Model, Loss]] = {
    "a loss of one's own": (LinearModel(width=WIDTH), _Unknown()),
    "with a perceptron": (MlpModel(widths=(WIDTH, 4, 1)), _Unknown()),
    "no sequence": (
        NetworkModel(module=_Skip(), input_shape=(WIDTH,), classes=3),
        Softmax(classes=3),
    ),
    "normalisation": (
        _network(nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(140, 3)),
        Softmax(classes=3),
    ),
    "two activations": (
        _network(nn.Linear(WIDTH, 3), nn.Tanh(), nn.Sigmoid(), shape=(WIDTH,)),
        Softmax(classes=3),
    ),
}
NETWORKS: dict[str, NetworkModel] = {
    "strides and padding": _network(
        nn.Conv2d(2, 5, (3, 2), stride=(2, 3), padding=(1, 2)),
        nn.ReLU(),
        nn.Conv2d(5, 3, 2, stride=2, bias=False),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(12, 3),
    ),
    "pooling": _network(
        nn.Conv2d(2, 3, 3, padding=2),
        nn.MaxPool2d((3, 2), stride=(2, 1)),
        nn.Sigmoid(),
        nn.Conv2d(3, 4, 2),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(24, 3, bias=False),
    ),
    "dense": _network(
        nn.Flatten(), nn.Sequential(nn.Linear(126, 5), nn.ReLU()), nn.Linear(5, 3), nn.Identity()
    ),
    "an activation last": _network(nn.Linear(WIDTH, 3), nn.Tanh(), shape=(WIDTH,)),
    "pixels": _network(nn.Conv2d(2, 3, (9, 7)), nn.ReLU(), nn.Flatten(), nn.Linear(3, 3)),
}


@pytest.mark.parametrize("case", OTHERS)
def test_what_compiled_code_does_not_know_is_trained_all_the_same(case: str) -> None:
    model, loss = OTHERS[case]
    batch, theta = records(model, loss), start(model)
    trainer = LocalTrainer(model=model, loss=loss, batch=batch, settings=RICH)
    assert isinstance(trainer._training, GeneralTraining)
    assert not trainer.place_free
    assert not place_free(model, loss)
    expected = reference.updates(model, loss, batch, theta, RICH, key=KEY)
    np.testing.assert_allclose(trainer.updates(theta, key=KEY), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("case", NETWORKS)
@pytest.mark.parametrize("batch_size", [3, 50])
def test_sequential_networks_are_compiled(case: str, batch_size: int) -> None:
    """A batch of 50 goes through the network in pieces."""
    model, loss = NETWORKS[case], Softmax(classes=3)
    batch, theta = records(model, loss, (4, 45, 1)), start(model)
    settings = replace(RICH, batch_size=batch_size)
    trainer = LocalTrainer(model=model, loss=loss, batch=batch, settings=settings)
    assert isinstance(trainer._training, SequentialTraining)
    expected = reference.updates(model, loss, batch, theta, settings, key=KEY)
    np.testing.assert_allclose(trainer.updates(theta, key=KEY), expected, rtol=1e-9, atol=1e-12)


def test_a_layer_with_a_hook_is_not_compiled() -> None:
    layer = nn.Linear(WIDTH, 3)
    layer.register_forward_hook(lambda _, __, output: 2 * output)
    model = NetworkModel(module=nn.Sequential(layer), input_shape=(WIDTH,), classes=3)
    batch = records(model, Softmax(classes=3))
    trainer = LocalTrainer(model=model, loss=Softmax(classes=3), batch=batch, settings=PLAIN)
    assert isinstance(trainer._training, GeneralTraining)


@pytest.mark.parametrize("case", ["perceptron", "deep", "softmax", "cnn", "general"])
def test_records_without_a_gradient_count_as_zero(case: str) -> None:
    """One whose features are not finite, and one whose class is none, in the size of batches."""
    model, loss = OTHERS["no sequence"] if case == "general" else CASES[case]
    batch, theta = records(model, loss, (4, 20)), start(model)
    features, labels = batch.features.clone(), batch.labels.clone()
    features[1, 0], labels[5], labels[6] = torch.nan, 3, -1
    broken = RecordBatch(features=features, labels=labels, offsets=batch.segments.offsets)
    settings = LocalSgd(steps=1, learning_rate=0.5)
    trainer = LocalTrainer(model=model, loss=loss, batch=broken, settings=settings)
    found = trainer.updates(theta, key=KEY)
    for j, (start_, stop, lost) in enumerate(((0, 4, [1]), (4, 24, [5, 6]))):
        kept = [i for i in range(start_, stop) if i not in lost]
        rows, classes = batch.features[kept], batch.labels[kept]
        expected = reference.update(
            model, loss, rows, classes, theta, settings, key=KEY, party=j
        ) * (len(kept) / (stop - start_))
        np.testing.assert_allclose(found[j], expected, rtol=1e-9, atol=1e-12)


def test_threads_may_share_a_trainer() -> None:
    model, loss = CASES["deep"]
    batch, theta = records(model, loss), start(model)
    trainer = LocalTrainer(model=model, loss=loss, batch=batch, settings=PLAIN)
    expected = trainer.updates(theta, key=KEY)
    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(trainer.updates, theta, key=KEY) for _ in range(16)]
    for job in jobs:
        np.testing.assert_array_equal(job.result(), expected)


def test_a_shift_has_a_row_for_every_party() -> None:
    model, loss = CASES["logistic"]
    trainer = LocalTrainer(model=model, loss=loss, batch=records(model, loss), settings=PLAIN)
    with pytest.raises(ValueError, match="shift must have shape"):
        trainer.updates(start(model), key=KEY, shift=torch.zeros(3, model.dimension))
    with pytest.raises(ValueError, match="theta must have shape"):
        trainer.updates(torch.zeros(3), key=KEY)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"learning_rate": 0.1}, "exactly one of epochs and steps"),
        ({"learning_rate": 0.1, "epochs": 1, "steps": 1}, "exactly one of epochs and steps"),
        ({"learning_rate": 0.0, "epochs": 1}, "learning_rate must be positive"),
        ({"learning_rate": 0.1, "epochs": 0}, "epochs must be an integer"),
        ({"learning_rate": 0.1, "steps": 1.5}, "steps must be an integer"),
        ({"learning_rate": 0.1, "steps": 1, "batch_size": 0}, "batch_size must be an integer"),
        ({"learning_rate": 0.1, "steps": 1, "momentum": 1.0}, "momentum must lie in"),
        ({"learning_rate": 0.1, "steps": 1, "proximal": -1.0}, "proximal must be finite"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LocalSgd(**settings)


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        (LocalSgd(epochs=2, batch_size=4, learning_rate=1.0), [0, 2, 2, 4]),
        (LocalSgd(epochs=3, learning_rate=1.0), [0, 3, 3, 3]),
        (LocalSgd(steps=5, batch_size=4, learning_rate=1.0), [0, 5, 5, 5]),
    ],
)
def test_how_many_steps_a_party_takes(settings: LocalSgd, steps: list[int]) -> None:
    assert [settings.steps_with(records) for records in (0, 1, 4, 5)] == steps
