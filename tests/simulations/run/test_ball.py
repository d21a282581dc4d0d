"""A run whose models stay in a ball: what is released, who refuses, and the squared loss in it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import fedpriv
from fedpriv.simulations.experiment.file import read_experiment
from fedpriv.simulations.run.prepare import build_strategy, prepare

if TYPE_CHECKING:
    from pathlib import Path

DATA = {"name": "synthetic:squared"}
STEPS = {"name": "gradient-perturbation", "rounds": 30, "clip": 2.0}


@pytest.mark.parametrize("averaging", ["last", "tail"])
def test_every_released_model_is_in_the_ball(averaging: str, tmp_path: Path) -> None:
    lengths = {}
    for radius in (0.05, None):
        model: dict[str, Any] = {"name": "squared", "l2": 0.01, "label_bound": 8.0}
        model |= {} if radius is None else {"radius": radius}
        study = {"data": DATA, "model": model, "strategy": {**STEPS, "averaging": averaging}}
        fedpriv.run(study, out=tmp_path / str(radius))
        with np.load(tmp_path / str(radius) / "model.npz") as arrays:
            lengths[radius] = float(np.linalg.norm(arrays["theta"]))
    assert lengths[0.05] <= 0.05 * (1 + 1e-12) < 2 * 0.05 < lengths[None]


def test_the_ball_stands_for_the_regulariser_of_the_squared_loss() -> None:
    """G = B(BR + Y) at every model that a gradient is taken at: so long a clip clips nothing."""
    section = {"name": "squared", "l2": 0.0, "radius": 1.5, "label_bound": 8.0}
    study = {"data": DATA, "model": section, "strategy": {**STEPS, "clip": 9.501}}
    assert prepare(read_experiment(study)).task.lipschitz == 9.5
    run = fedpriv.run(study)
    assert run.summary["clip_fraction"] == 0
    assert fedpriv.load_model(run.directory).predict(np.zeros((1, 10))).shape == (1,)
    without = {**study, "model": {"name": "squared", "l2": 0.0}}
    with pytest.raises(ValueError, match=r"model\.radius given"):
        fedpriv.run(without)


@pytest.mark.parametrize(
    ("strategy", "reason"),
    [
        ({"name": "output-perturbation"}, "certified by its gradient"),
        ({"name": "objective-perturbation"}, "certified by its gradient"),
        ({"name": "party-alone"}, "certified by its gradient"),
        ({"name": "agd"}, "projects nothing"),
        ({"name": "learned-protection"}, "projects nothing"),
        ({**STEPS, "schedule": "dynamic"}, "schedule must not be one that a theorem gives"),
    ],
)
def test_who_does_not_stay_in_it_refuses(strategy: dict[str, Any], reason: str) -> None:
    values = {"data": {"name": "synthetic"}, "model": {"radius": 1.0}, "strategy": strategy}
    with pytest.raises(ValueError, match=reason):
        build_strategy(prepare(read_experiment(values)), run="one")


def test_a_run_begins_in_its_ball() -> None:
    section = {"name": "squared", "l2": 0.0, "radius": 1.5, "label_bound": 8.0}
    task = prepare(read_experiment({"data": DATA, "model": section, "strategy": STEPS})).task
    far = replace(task, start=np.full(task.dimension, 10.0))
    assert np.linalg.norm(far.initial(0)) == pytest.approx(1.5)
