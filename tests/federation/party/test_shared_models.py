"""Workers share a model, and records of two chunks never meet in it: sums to the bit, and bounded.

Every test runs at a switch interval of ten microseconds, so that threads meet where they can.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.federation.queries.kinds import GradientQuery, LossQuery
from fedpriv.learning.losses import Softmax
from fedpriv.learning.models import MlpModel, Model
from fedpriv.learning.network import NetworkModel
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import GaussianEvent
from fedpriv.secagg import FixedPoint
from tests.federation.worlds import linear_task, party_data, random_data, streams

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from fedpriv.data.partition import PartitionedDataset
    from fedpriv.federation.queries.kinds import Query

SIZES = (40,) * 8
FINE = FixedPoint(step=2.0**-40, bits=64)
EVENT = GaussianEvent(adjacency=Adjacency.REPLACE_ONE, relative_noise=2.0)
CLIP = 0.2
REPEATS = 12


@pytest.fixture(autouse=True)
def eager_threads() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


class Stashing(nn.Module):
    """Leaves a hidden layer in an attribute and reads it back later, as users' modules do."""

    def __init__(self, *, pause: float = 0.0) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.ones(6, 4) / 8)
        self.second = nn.Parameter(torch.ones(4) / 4)
        self.pause = pause
        self.hidden: Tensor

    def forward(self, x: Tensor) -> Tensor:
        self.hidden = torch.tanh(x @ self.first)
        time.sleep(self.pause)
        return self.hidden @ self.second


def networks() -> dict[str, Model]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        convolutions = nn.Sequential(
            nn.Conv2d(1, 4, 3),
            nn.GroupNorm(2, 4),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2, 1),
            nn.Flatten(),
            nn.Linear(100, 1),
        )
        dense = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 1))
        normed = nn.Sequential(nn.Linear(6, 5), nn.LayerNorm(5), nn.Linear(5, 1))
        tuned = nn.Sequential(nn.Linear(6, 5).requires_grad_(False), nn.Tanh(), nn.Linear(5, 1))
    return {
        "MLP": MlpModel(widths=(6, 5, 1)),
        "convolutions, layer by layer": NetworkModel(module=convolutions, input_shape=(1, 8, 8)),
        "dense layers, layer by layer": NetworkModel(module=dense, input_shape=(6,)),
        "by vectorised autograd": NetworkModel(module=normed, input_shape=(6,)),
        "frozen layers": NetworkModel(module=tuned, input_shape=(6,)),
        "state in attributes": NetworkModel(module=Stashing(), input_shape=(6,)),
    }


NETWORKS = networks()


def world(model: Model, workers: int, data: PartitionedDataset) -> VectorizedFederation:
    task = replace(linear_task(SIZES, model.features), model=model)
    return VectorizedFederation(data, task=task, sampling=streams(1, "parties"), workers=workers)


def query(kind: str, model: Model) -> Query:
    theta = model.initial(np.random.default_rng(0)).numpy()
    if kind == "loss":
        points = np.stack([theta, 2 * theta])
        return LossQuery(run="r", round=0, grid=FINE, event=EVENT, points=points, clip=1.0)
    gradient = GradientQuery(run="r", round=0, grid=FINE, event=EVENT, theta=theta, clip_norm=CLIP)
    return {
        "gradient": gradient,
        "sampled gradient": replace(gradient, sampling_rate=0.5),
        "gradient in scaled coordinates": replace(
            gradient, centre=np.full(len(theta), 0.01), scale=np.linspace(1, 2, len(theta))
        ),
    }[kind]


KINDS = ("gradient", "sampled gradient", "gradient in scaled coordinates", "loss")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NETWORKS)
def test_the_bits_do_not_depend_on_the_number_of_workers(name: str, kind: str) -> None:
    model = NETWORKS[name]
    asked, data = query(kind, model), random_data(SIZES, model.features)
    expected = world(model, 1, data).sum(asked).total
    assert (expected != 0).any()
    for workers in (1, 2, 4):
        shared = world(model, workers, data)
        for _ in range(REPEATS):
            assert (shared.sum(asked).total == expected).all()


def test_nor_do_they_with_several_classes() -> None:
    module = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    model = NetworkModel(module=module, input_shape=(6,), classes=3)
    binary = random_data(SIZES, 6)
    labels = np.arange(sum(SIZES)) % 3
    dataset = replace(
        binary.dataset,
        task="multiclass",
        train=replace(binary.dataset.train, y=labels),
        test=replace(binary.dataset.test, y=labels[:0]),
        classes=("a", "b", "c"),
    )
    data = replace(binary, dataset=dataset)
    task = replace(linear_task(SIZES, 6), model=model, loss=Softmax(classes=3))
    sums = [
        VectorizedFederation(data, task=task, sampling=streams(1, "p"), workers=workers)
        .sum(query("gradient", model))
        .total
        for workers in (1, 2, 4)
        for _ in range(REPEATS)
    ]
    for other in sums[1:]:
        assert (other == sums[0]).all()


def one_per_party(features: NDArray[np.float64]) -> PartitionedDataset:
    """The first feature vector at the first record, the second at all others; labels +1."""
    first, others = features
    X = np.tile(others, (sum(SIZES), 1))
    X[0] = first
    return party_data(X, np.ones(len(X)), SIZES)


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_one_record_moves_a_sum_by_twice_the_bound_and_no_more(workers: int) -> None:
    """The theorem that all noise rests on, for a module in which chunks could meet.

    While one chunk sleeps, another stashes its hidden layer. Were it the same attribute, the first
    would read the records of the second, and a record be counted in both.
    """
    model = NetworkModel(module=Stashing(pause=0.003), input_shape=(6,))
    asked = query("gradient", model)
    ones = np.full(6, 0.4)
    sums = [
        world(model, workers, one_per_party(np.stack([first, ones / 2]))).sum(asked).value
        for first in (ones, -ones)
    ]
    moved = float(np.linalg.norm(sums[0] - sums[1]))
    assert 0.5 * CLIP < moved <= 2 * CLIP
