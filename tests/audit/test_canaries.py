"""Canaries: what they are said to reach, by a minimiser of our own."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from fedpriv.audit.canaries import Scene, clipped_scenes, minimiser_scene


def _minimiser(scene: Scene, canary: np.ndarray, regulariser: float) -> np.ndarray:
    signs = np.where(scene.positive, 1.0, -1.0)
    rows = np.vstack([scene.rows * signs[:, None], canary])

    def objective(theta: np.ndarray) -> tuple[float, np.ndarray]:
        margins = rows @ theta
        value = np.logaddexp(0, -margins).mean() + regulariser / 2 * theta @ theta
        slopes = -1 / (1 + np.exp(margins))
        return value, rows.T @ slopes / len(rows) + regulariser * theta

    start = np.zeros(rows.shape[1])
    found = minimize(objective, start, jac=True, method="BFGS", options={"gtol": 1e-11})
    return np.asarray(found.x)


@pytest.mark.parametrize(("regulariser", "share"), [(0.01, 0.80), (0.001, 0.92)])
def test_nearly_opposite_canaries_reach_most_of_the_bound(regulariser: float, share: float) -> None:
    """2G/(nλ), with n so large that the canary's own curvature is no matter."""
    n = round(200 / regulariser)
    length, angle = (0.24, 25.0) if regulariser == 0.01 else (0.075, 12.0)
    scene = minimiser_scene(2, n - 1, length=length, angle=angle)
    assert scene.label == scene.other_label
    moved = _minimiser(scene, scene.canary, regulariser)
    moved -= _minimiser(scene, scene.instead, regulariser)
    reached = np.linalg.norm(moved) * n * regulariser / 2
    assert share < reached < 1


def test_a_flipped_label_reaches_far_less() -> None:
    """The twin: without the others' pull, half of the slope; and along data, next to nothing."""
    n, regulariser = 20_000, 0.01
    scene = minimiser_scene(2, n - 1, length=0.24, angle=25.0)
    along = np.array([1.0, 0.0])
    moved = _minimiser(scene, along, regulariser) - _minimiser(scene, -along, regulariser)
    assert np.linalg.norm(moved) * n * regulariser / 2 < 0.3


@pytest.mark.parametrize("features", [1, 2, 5])
def test_no_row_is_longer_than_one(features: int) -> None:
    scenes = [
        *clipped_scenes(features, 10),
        minimiser_scene(features, 10, length=0.5, angle=20.0),
    ]
    for scene in scenes:
        rows = np.vstack([scene.rows, scene.canary, scene.instead])
        assert (np.linalg.norm(rows, axis=1) <= 1 + 1e-12).all()
        assert scene.rows.shape == (10, features)
