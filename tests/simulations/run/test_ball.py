"""A run whose models stay in a ball: what is released, who refuses, and the squared loss in it."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.optimize import brentq, minimize
from scipy.special import expit

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
        ({**STEPS, "schedule": "dynamic"}, "schedule must not be derived from a theorem"),
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


class Ridge:
    """A small logistic problem, and its minimiser in a ball by the multiplier of the constraint."""

    def __init__(self, signed: np.ndarray, regulariser: float) -> None:
        self.signed, self.regulariser = signed, regulariser

    def value(self, theta: np.ndarray, more: float = 0.0) -> float:
        losses = np.logaddexp(0, -self.signed @ theta)
        return float(losses.mean() + (self.regulariser + more) / 2 * theta @ theta)

    def slope(self, theta: np.ndarray, more: float = 0.0) -> np.ndarray:
        along = self.signed.T @ expit(-self.signed @ theta) / len(self.signed)
        return np.asarray((self.regulariser + more) * theta - along)

    def free(self, more: float = 0.0) -> np.ndarray:
        start = np.zeros(self.signed.shape[1])
        found = minimize(
            self.value, start, args=(more,), jac=self.slope, method="BFGS", options={"gtol": 1e-9}
        )
        return np.asarray(found.x)

    def inside(self, radius: float) -> np.ndarray:
        if np.linalg.norm(self.free()) <= radius:
            return self.free()
        multiplier = brentq(lambda t: np.linalg.norm(self.free(t)) - radius, 0, 2 / radius)
        return self.free(multiplier)


def test_a_minimiser_in_a_ball_moves_no_further_than_a_free_one_may() -> None:
    """Strong convexity is all that 2G/(nλ) needs, and a ball is convex. Pairs come close to it."""
    rng, count, regulariser, farthest = np.random.default_rng(0), 6, 0.3, 0.0
    limit = 2 / (count * regulariser)
    for _ in range(60):
        signed = rng.normal(size=(count, 2))
        signed /= np.linalg.norm(signed, axis=1, keepdims=True)
        other = signed.copy()
        other[0] = -signed[0]
        for radius in (0.2, 0.5, 5.0):
            one, two = (Ridge(each, regulariser).inside(radius) for each in (signed, other))
            farthest = max(farthest, float(np.linalg.norm(one - two)))
    assert 0.3 * limit < farthest <= limit


def test_under_the_noise_of_output_perturbation_it_is_the_worse_one() -> None:
    """It is shorter, and the same noise is then more of it: the page has the numbers."""
    rng, count, regulariser = np.random.default_rng(1), 400, 0.01
    signed = rng.normal(size=(count, 5)) + np.array([1.0, 0.5, 0, 0, 0])
    signed /= np.linalg.norm(signed, axis=1, keepdims=True)
    problem = Ridge(signed, regulariser)
    free = problem.free()
    radius = 0.3 * float(np.linalg.norm(free))
    constrained = problem.inside(radius)

    def projected(theta: np.ndarray) -> float:
        return problem.value(theta * min(1.0, radius / float(np.linalg.norm(theta))))

    assert problem.value(constrained) < projected(free)  # without noise it is the better one
    noise = rng.normal(0, 2 / (count * regulariser), (400, 5))
    gains = [projected(constrained + b) - projected(free + b) for b in noise]
    assert np.mean(gains) > 5 * np.std(gains) / sqrt(len(gains))
