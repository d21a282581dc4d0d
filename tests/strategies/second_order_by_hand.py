"""Second-order steps in plain numpy, as one would write them down."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.learning.losses import HuberHinge, HuberRegression, Logistic, Squared

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedpriv.learning.losses import Loss


def slopes(loss: Loss, scores: NDArray[Any], y: NDArray[Any]) -> Any:
    """The derivative of each loss, by hand."""
    match loss:
        case Logistic():
            return -y / (1 + np.exp(y * scores))
        case HuberHinge(smoothing=h):
            margin = y * scores
            return -y * np.clip((1 + h - margin) / (2 * h), 0, 1)
        case HuberRegression(threshold=t):
            return np.clip(scores - y, -t, t)
        case Squared():
            return scores - y
    raise AssertionError(loss)


def by_hand(
    loss: Loss, beta: float, X: NDArray[Any], y: NDArray[Any], ridge: float, rounds: int
) -> Any:
    """The algorithm in plain numpy, where nothing is clipped."""
    X = X.astype(np.float64)
    curvature = beta * X.T @ X / len(X) + ridge * np.eye(X.shape[1])
    theta, iterates = np.zeros(X.shape[1]), []
    for _ in range(rounds):
        gradient = slopes(loss, X @ theta, y) @ X / len(X) + ridge * theta
        theta = theta - np.linalg.solve(curvature, gradient)
        iterates.append(theta)
    return np.mean(iterates[rounds // 2 :], axis=0)
