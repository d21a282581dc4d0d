"""`run.device`: where it may be set, what it changes, and what it leaves alone."""

from __future__ import annotations

from typing import Any

import pytest

from fedpriv.learning.models import MlpModel
from fedpriv.learning.network import NetworkModel, small_cnn
from fedpriv.simulations.experiment import models
from fedpriv.simulations.experiment.file import read_experiment
from fedpriv.simulations.experiment.models import placed
from fedpriv.simulations.run.prepare import prepare


def study(
    model: str = "cnn", *, strategy: str = "gradient-perturbation", **run: Any
) -> dict[str, Any]:
    shape = {"shape": [1, 8, 8]} if model == "cnn" else {}
    return {
        "data": {"name": "digits", "partition": "iid", "parties": 3, "intercept": 0.0},
        "model": {"name": model, **shape},
        "strategy": {"name": strategy, "rounds": 2},
        "run": run,
    }


def test_the_processor_is_the_default_and_an_experiment_keeps_its_hash() -> None:
    plain = read_experiment(study())
    assert plain.run.device == "cpu"
    assert read_experiment(study(device="cpu")).config_hash == plain.config_hash
    assert read_experiment(study(device="cuda")).config_hash != plain.config_hash


@pytest.mark.parametrize(
    ("run", "message"),
    [
        ({"device": "cuda", "engine": "sharded"}, "device must be 'cpu' for engine = 'sharded'"),
        ({"device": "auto", "engine": "ray"}, "device must be 'cpu' for engine = 'ray'"),
        ({"device": "the fast one"}, "device"),
    ],
)
def test_impossible_devices_are_refused_with_their_key(run: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_experiment(study(**run))


def test_a_device_that_is_not_there_is_refused_before_anything_runs() -> None:
    with pytest.raises(ValueError, match=r"device 'meta' cannot be used here .*Use 'cpu'"):
        prepare(read_experiment(study(device="meta")))


def test_auto_is_the_processor_where_there_is_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    model = prepare(read_experiment(study(device="auto"))).task.model
    assert isinstance(model, NetworkModel)
    assert model.device == "cpu"


def test_a_network_goes_to_the_device_and_compiled_kernels_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(models, "resolve_device", lambda _: "far")
    network, dense = small_cnn(shape=(1, 8, 8)), MlpModel(widths=(4, 3, 1))
    assert placed(network, "cuda", trains=False).device == "far"
    assert placed(network, "cpu", trains=False) is network
    assert placed(network, "auto", trains=True) is network
    assert placed(dense, "auto", trains=False) is dense
    with pytest.raises(ValueError, match="kernels are compiled for the processor"):
        placed(dense, "cuda", trains=False)
    with pytest.raises(ValueError, match="where parties train the model"):
        placed(network, "cuda", trains=True)


def test_a_release_takes_the_processor() -> None:
    from fedpriv.simulations.run.release_rules import _require_one_place

    _require_one_place(read_experiment(study()))
    with pytest.raises(ValueError, match=r"--release needs run\.device = 'cpu', got 'auto'"):
        _require_one_place(read_experiment(study(device="auto")))
