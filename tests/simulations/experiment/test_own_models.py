"""A PyTorch module of a user's own: trained with clipping per record, alike wherever it is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from fedpriv.learning.batch import RecordBatch
from fedpriv.learning.clipping.clipped_sum import Clipping, clipped_gradient_sums
from fedpriv.learning.network import NetworkModel, small_cnn
from fedpriv.simulations.experiment.file import parse_experiment
from fedpriv.simulations.run.prepare import Prepared, build_strategy, prepare
from fedpriv.simulations.run.summary import simulate

if TYPE_CHECKING:
    from pathlib import Path

    from tests.simulations.conftest import Command

pytest.importorskip("sklearn", reason="the digits come with the extra 'data'")

MODULES = """
import numpy as np
import torch
from torch import nn

class Mlp(nn.Module):
    def __init__(self, features, classes, width=16):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(features, width), nn.ReLU(), nn.Linear(width, classes)
        )
    def forward(self, x):
        return self.layers(x)

class Cnn(nn.Module):
    input_shape = (1, 8, 8)
    def __init__(self, features, classes):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(), nn.Flatten(), nn.Linear(288, classes)
        )
    def forward(self, x):
        return self.layers(x)

class Lstm(nn.Module):
    input_shape = (8, 8)
    def __init__(self, features, classes):
        super().__init__()
        self.lstm = nn.LSTM(8, 6, batch_first=True)
        self.head = nn.Linear(6, classes)
    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])

class Frozen(nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(features, 32), nn.Tanh()).requires_grad_(False)
        self.head = nn.Linear(32, classes)
    def forward(self, x):
        return self.head(self.encoder(x))

def bare():
    return nn.Linear(64, 10)

def plain(features, classes):
    return nn.Linear(features, classes)

def batchy(features, classes):
    return nn.Sequential(nn.Linear(features, 8), nn.BatchNorm1d(8), nn.Linear(8, classes))

def moody(features, classes):
    module = nn.Linear(features, classes)
    module.bias.data = torch.from_numpy(np.random.default_rng().normal(size=classes)).float()
    return module

def nothing(features, classes):
    return None
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "nets.py"
    path.write_text(MODULES)
    return path


def experiment(model: dict[str, Any], **data: Any) -> Any:
    return parse_experiment(
        {
            "data": {
                "name": "digits", "partition": "iid", "parties": 3, "intercept": 0.0, **data,
            },
            "model": model,
            "strategy": {"name": "gradient-perturbation", "rounds": 3, "learning_rate": 1.0},
            "privacy": {"epsilon": 8.0},
        }
    )  # fmt: skip


def prepared(file: Path, name: str, **model: Any) -> Prepared:
    return prepare(experiment({"name": f"{file}:{name}", **model}))


@pytest.mark.parametrize("name", ["Mlp", "Cnn", "Lstm", "Frozen", "plain"])
def test_a_module_trains_with_every_record_clipped(file: Path, name: str) -> None:
    found = prepared(file, name)
    task, records = found.task, found.data.dataset.train.take(slice(0, 40))
    assert isinstance(task.model, NetworkModel)
    theta = torch.from_numpy(build_strategy(found, run="r").theta.copy())

    def total(rows: slice) -> np.ndarray[Any, Any]:
        batch = RecordBatch(
            features=torch.from_numpy(records.X[rows].copy()),
            labels=torch.from_numpy(records.y[rows].copy()),
        )
        sums = clipped_gradient_sums(task.model, task.loss, theta, batch, Clipping(clip_norm=0.1))
        return np.asarray(sums.value.numpy()).reshape(-1)

    assert np.linalg.norm(total(slice(0, 40)) - total(slice(1, 40))) <= 0.1 * (1 + 1e-4)
    assert np.linalg.norm(total(slice(0, 1))) <= 0.1 * (1 + 1e-6)


@pytest.mark.parametrize("name", ["Mlp", "Cnn", "Frozen"])
def test_a_run_with_a_module_learns(file: Path, name: str) -> None:
    changed = experiment({"name": f"{file}:{name}"}).replaced(
        strategy={"rounds": 30, "learning_rate": 4.0}, privacy={"epsilon": 100.0}
    )
    result = simulate(changed)
    assert result["model"] == f"nets.py:{name}"
    assert result["accuracy"] > 0.3  # of ten classes


def test_frozen_weights_stay_out_of_the_model_and_are_the_same_everywhere(file: Path) -> None:
    one, other = prepared(file, "Frozen").task.model, prepared(file, "Frozen").task.model
    assert isinstance(one, NetworkModel)
    assert isinstance(other, NetworkModel)
    assert one.dimension == 32 * 10 + 10
    state, again = one.module.state_dict(), other.module.state_dict()
    assert all(torch.equal(state[key], again[key]) for key in state)
    moved = prepare(experiment({"name": f"{file}:Frozen"}).replaced(run={"seed": 1})).task.model
    assert isinstance(moved, NetworkModel)
    assert not torch.equal(moved.module.state_dict()["encoder.0.weight"], state["encoder.0.weight"])


def test_initial_weights_follow_from_the_seed_of_the_run(file: Path) -> None:
    def start(seed: int) -> np.ndarray[Any, Any]:
        chosen = experiment({"name": f"{file}:Mlp"}).replaced(run={"seed": seed})
        return build_strategy(prepare(chosen), run="r").theta

    assert (start(0) == start(0)).all()
    assert (start(0) != start(1)).any()


def test_making_a_module_leaves_the_global_generator_alone(file: Path) -> None:
    torch.manual_seed(7)
    expected = torch.get_rng_state()
    prepared(file, "Mlp")
    assert torch.equal(torch.get_rng_state(), expected)


def test_options_and_shape_of_the_file_reach_the_module(file: Path) -> None:
    assert prepared(file, "Mlp", options={"width": 3}).task.dimension == 64 * 3 + 3 + 3 * 10 + 10
    model = prepared(file, "Cnn", shape=[1, 8, 8]).task.model
    assert isinstance(model, NetworkModel)
    assert model.input_shape == (1, 8, 8)


@pytest.mark.parametrize(
    ("name", "model", "message"),
    [
        ("batchy", {}, "BatchNorm1d.*Use torch.nn.GroupNorm"),
        ("moody", {}, r"must make the same module whenever it is called, and \['bias'\]"),
        ("nothing", {}, "must make a torch.nn.Module, got None"),
        ("np", {}, "must be a class or function"),
        (
            "Mlp",
            {"options": {"widht": 3}},
            "must take features, .* Did you mean 'width' by 'widht'",
        ),
        ("bare", {}, r"and takes \(\) \(got an unexpected .* model.options has: nothing\."),
        ("Cnn", {"shape": [2, 8, 8]}, r"\(2, 8, 8\), must have as many numbers .* 64; got 128"),
    ],
)
def test_what_does_not_fit_is_refused(
    file: Path, name: str, model: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        prepared(file, name, **model)


def test_a_convex_strategy_refuses_a_module(file: Path) -> None:
    chosen = experiment({"name": f"{file}:plain"}).with_strategy({"name": "output-perturbation"})
    with pytest.raises(ValueError, match="needs a convex problem"):
        prepare(chosen)


def test_the_cnn_takes_the_shape_of_the_images_from_the_data() -> None:
    found = prepare(experiment({"name": "cnn"}))
    assert isinstance(found.task.model, NetworkModel)
    assert found.task.model.input_shape == (1, 8, 8)
    assert simulate(experiment({"name": "cnn"}))["dimension"] == found.task.dimension
    with pytest.raises(ValueError, match=r"set data.intercept = 0"):
        prepare(experiment({"name": "cnn"}, intercept=1.0))
    with pytest.raises(ValueError, match=r"model.shape must be given for 'cnn'"):
        prepare(experiment({"name": "cnn"}, name="breast_cancer"))
    with pytest.raises(ValueError, match="at least 4 pixels"):
        small_cnn(shape=(1, 3, 3))


def test_the_cnn_of_the_tutorials_is_what_it_was() -> None:
    assert small_cnn().dimension == 26_010


def test_two_engines_agree_on_a_module(fedpriv: Command, file: Path, tmp_path: Path) -> None:
    (tmp_path / "net.toml").write_text(
        '[data]\nname = "digits:3v5"\npartition = "iid"\nparties = 3\nintercept = 0\n'
        '[model]\nname = "nets.py:Frozen"\n'
        '[strategy]\nname = "gradient-perturbation"\nrounds = 2\nlearning_rate = 1.0\n'
    )
    losses = [
        fedpriv(
            "run", tmp_path / "net.toml", "--engine", engine, "--out", tmp_path / engine, "--json"
        ).json()["loss"]
        for engine in ("vectorized", "local")
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    text = " ".join((tmp_path / "local" / "statement.txt").read_text().split())
    assert "weights that it brings itself are taken to be public" in text
