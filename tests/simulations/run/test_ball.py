"""A run whose models stay in a ball: what is released, who refuses, and the squared loss in it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import fedpriv
from fedpriv.simulations.experiment.file import read_experiment
from fedpriv.simulations.run.prepare import build_federation, build_strategy, prepare, train

if TYPE_CHECKING:
    from pathlib import Path

    from fedpriv.federation.strategy.base import SumStrategy

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


MINIMISERS: list[dict[str, Any]] = [
    {"name": "output-perturbation"},
    {"name": "output-perturbation", "fit": "joint"},
    {"name": "objective-perturbation"},
    {"name": "local-objective-perturbation"},
    {"name": "pathak"},
    {"name": "pooled"},
    {"name": "non-private"},
]


def _released(strategy: dict[str, Any], **model: Any) -> SumStrategy:
    values = {"data": {"name": "synthetic"}, "model": {"l2": 0.01, **model}, "strategy": strategy}
    prepared = prepare(read_experiment(values), keep=True)
    built = build_strategy(prepared, run="one")
    assert train(built, build_federation(prepared, run="one"), lambda _query, _sum: True)
    return built


@pytest.mark.parametrize("strategy", MINIMISERS, ids=lambda each: "-".join(each.values()))
def test_what_a_minimiser_releases_is_projected_and_its_noise_is_the_same(
    strategy: dict[str, Any],
) -> None:
    """The ball is post-processing: noise, and the point that it is added to, know nothing of it."""
    inside, free = _released(strategy, radius=0.3), _released(strategy)
    nearest = free.theta * (0.3 / np.linalg.norm(free.theta))
    assert np.linalg.norm(free.theta) > 0.4
    assert inside.theta == pytest.approx(nearest, rel=1e-12)
    if free.plan is None or inside.plan is None:
        assert inside.plan is None
        return
    assert inside.plan.mechanisms == free.plan.mechanisms


def test_the_squared_loss_has_its_bound_where_minimisers_are_and_not_in_the_ball() -> None:
    """G = B(B·√r·Y/√λ + Y) with r = 2 under add-remove adjacency: minimisers know no ball."""
    for adjacency, most in (("replace-one", 1), ("add-remove", 2)):
        for radius in ({}, {"radius": 0.5}):
            values = {
                "data": {"name": "synthetic:squared"},
                "model": {"name": "squared", "l2": 0.25, "label_bound": 8.0, **radius},
                "strategy": {"name": "output-perturbation", "fit": "joint"},
                "privacy": {"adjacency": adjacency},
            }
            prepared = prepare(read_experiment(values))
            lipschitz = 8.0 / 0.5 * most**0.5 + 8.0
            assert prepared.task.lipschitz == pytest.approx(lipschitz)
            plan: Any = build_strategy(prepared, run="one").plan
            moved = (3 - most) * lipschitz / (prepared.task.records * 0.25)
            assert moved <= plan.mechanisms[0].sensitivity <= 1.03 * moved


def test_a_comparison_has_its_frame_in_the_ball() -> None:
    study = {
        "data": {"name": "synthetic"},
        "model": {"radius": 0.2},
        "strategy": {"name": "gradient-perturbation", "rounds": 2},
        "compare": {"strategies": ["gradient-perturbation"], "epsilons": [1.0], "seeds": 1},
    }
    assert {row.label for row in fedpriv.compare(study, workers=1).rows} == {
        "gradient-perturbation",
        "non-private",
        "party-alone",
    }


@pytest.mark.parametrize(
    ("strategy", "reason"),
    [
        ({"name": "inference"}, "coefficients without a constraint"),
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
