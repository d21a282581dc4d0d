"""Problems to solve, and their gradients in exact arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mpmath
import numpy as np
import pytest
import torch
from torch import Tensor

from fedpriv.learning.erm.batch import ErmBatch
from fedpriv.learning.erm.newton import newton
from fedpriv.learning.erm.problem import ErmProblem
from fedpriv.learning.erm.spaces import DualSpace, KrylovSpace, PrimalSpace
from fedpriv.learning.losses import (
    HuberHinge,
    HuberRegression,
    Logistic,
    Loss,
    Softmax,
    Squared,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedpriv.learning.erm.solver import Form

TOLERANCE = 1e-8
LOSSES = [
    Logistic(),
    HuberHinge(smoothing=0.5),
    HuberHinge(smoothing=0.001),
    HuberRegression(threshold=0.3),
    Squared(radius=2000.0, label_bound=1.0),
    Softmax(classes=3),
]
SQUARED = LOSSES[4]
every_loss = pytest.mark.parametrize("loss", LOSSES, ids=repr)
# A linear term is refused for the squared loss.
with_and_without_noise = pytest.mark.parametrize(
    ("loss", "perturbed"),
    [
        (loss, noisy)
        for loss in LOSSES
        for noisy in (False, True)
        if not (noisy and loss == SQUARED)
    ],
)


def labels_of(loss: Loss, n: int, rng: np.random.Generator) -> Tensor:
    if isinstance(loss, Softmax):
        return torch.from_numpy(rng.integers(0, loss.classes, n))
    return torch.from_numpy(np.where(rng.random(n) < 0.4, -1.0, 1.0))


def features_of(kind: str, n: int, d: int, rng: np.random.Generator) -> NDArray[np.float64]:
    X: NDArray[np.float64] = rng.normal(size=(n, d))
    match kind:
        case "ill-conditioned":
            X *= np.logspace(0, -8, d)
        case "duplicates":
            X = X[rng.integers(0, max(1, n // 4), n)]
        case "constant":
            X = np.ones((n, d))
        case "zero":
            X = np.zeros((n, d))
        case "tiny":
            X *= 1e-9
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True) * (1 + 1e-12))
    return X


def make_problem(
    loss: Loss,
    sizes: list[int],
    d: int,
    *,
    kind: str = "random",
    regulariser: float = 1e-2,
    seed: int = 0,
    perturbed: bool = False,
) -> ErmProblem:
    rng = np.random.default_rng(seed)
    n, m = sum(sizes), len(sizes)
    y = labels_of(loss, n, rng)
    X = features_of(kind, n, d, rng)
    if kind == "separable":
        X = np.abs(X) * (1 if loss.outputs > 1 else y.numpy()[:, None])
    shape = (m, loss.outputs, d) if loss.outputs > 1 else (m, d)
    return ErmProblem(
        features=torch.from_numpy(X),
        labels=y,
        offsets=torch.from_numpy(np.concatenate([[0], np.cumsum(sizes)])),
        loss=loss,
        regulariser=regulariser,
        linear=torch.from_numpy(rng.normal(size=shape)) if perturbed else None,
        extra_regulariser=torch.from_numpy(rng.random(m)) if perturbed else None,
    )


def only(problem: ErmProblem, j: int) -> ErmProblem:
    rows = slice(int(problem.offsets[j]), int(problem.offsets[j + 1]))
    linear, extra = problem.linear, problem.extra_regulariser
    return ErmProblem(
        features=problem.features[rows],
        labels=problem.labels[rows],
        offsets=torch.tensor([0, rows.stop - rows.start]),
        loss=problem.loss,
        regulariser=problem.regulariser,
        feature_bound=problem.feature_bound,
        linear=None if linear is None else linear[j : j + 1],
        extra_regulariser=None if extra is None else extra[j : j + 1],
    )


def exact_gradient_norm(problem: ErmProblem, theta: Tensor, j: int) -> mpmath.mpf:
    """‖∇J_j(θ)‖₂ from the definition, in 40 digits, sharing no code with the solver."""
    with mpmath.workdps(40):
        rows = range(int(problem.offsets[j]), int(problem.offsets[j + 1]))
        k = problem.loss.outputs
        weights = [[mpmath.mpf(v) for v in row] for row in theta.reshape(k, -1).tolist()]
        lam = mpmath.mpf(problem.regulariser)
        if problem.extra_regulariser is not None:
            lam += mpmath.mpf(problem.extra_regulariser[j].item())
        total = [[lam * v for v in row] for row in weights]
        if problem.linear is not None:
            shift = problem.linear[j].reshape(k, -1).tolist()
            total = [
                [t + mpmath.mpf(b) / len(rows) for t, b in zip(row, more, strict=True)]
                for row, more in zip(total, shift, strict=True)
            ]
        for i in rows:
            x = [mpmath.mpf(v) for v in problem.features[i].tolist()]
            scores = [mpmath.fdot(row, x) for row in weights]
            slopes = exact_slope(problem.loss, scores, problem.labels[i].item())
            for row, slope in zip(total, slopes, strict=True):
                for c, value in enumerate(x):
                    row[c] += slope * value / len(rows)
        return mpmath.sqrt(sum(v**2 for row in total for v in row))


def exact_slope(loss: Loss, scores: list[mpmath.mpf], y: float) -> list[mpmath.mpf]:
    s = scores[0]
    match loss:
        case Logistic():
            return [-y / (1 + mpmath.exp(y * s))]
        case HuberHinge():
            h = mpmath.mpf(loss.smoothing)
            return [-y * min(1, max(0, (1 + h - y * s) / (2 * h)))]
        case HuberRegression():
            tau = mpmath.mpf(loss.threshold)
            return [min(tau, max(-tau, s - mpmath.mpf(y)))]
        case Squared():
            return [s - mpmath.mpf(y)]
        case _:
            exps = [mpmath.exp(v) for v in scores]
            return [e / sum(exps) - (c == y) for c, e in enumerate(exps)]


def forms_of(loss: Loss) -> list[Form]:
    return [PrimalSpace, KrylovSpace, DualSpace] if loss.outputs == 1 else [KrylovSpace]


def solve_in(form: Form, problem: ErmProblem) -> Tensor:
    batch = ErmBatch.of(problem, whole=form is DualSpace)
    space = form.of(batch)
    coordinates, _ = newton(space, target=TOLERANCE / 2, max_iterations=200)
    return space.theta(coordinates)
