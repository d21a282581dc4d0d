"""Synthetic problems whose optimum, curvature and heterogeneity are known.

A record is x = V·Λ^½·s with V a random rotation, s random signs and tr Λ = 1. Hence every record
has ‖x‖₂ = 1, the bound it will be held to, and E[x·xᵀ] = V·Λ·Vᵀ has exactly the spectrum Λ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from scipy.special import expit

from fedpriv._validate import require_choice, require_count, require_non_negative, require_positive
from fedpriv.data.bounds import Bounds, enforce
from fedpriv.data.dataset import Dataset, Records, signs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Vector = NDArray[np.float64]

Loss = Literal["logistic", "squared"]
LOSSES: tuple[Loss, ...] = ("logistic", "squared")

_NEWTON_STEPS = 100


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SyntheticProblem:
    """A data set with what is known about J(θ) = (1/N)Σ f(θ; x, y) + (λ/2)‖θ‖² on its records.

    The loss f is log(1 + e^{−y·xᵀθ}), or (xᵀθ − y)²/2.

    Attributes:
        dataset: The records, with equally large natural parties, and no intercept: they already
            satisfy ``Bounds(norm=1, intercept=0)``.
        regularisation: λ.
        truth: The θ° that labels follow on average over the parties.
        optimum: The minimiser of J: in closed form for the squared loss, by Newton's method to
            the accuracy of float64 for the logistic one.
        strong_convexity: μ ≤ the least eigenvalue of ∇²J, with equality for the squared loss.
        smoothness: M ≥ the largest eigenvalue of ∇²J, with equality for the squared loss.
    """

    dataset: Dataset
    regularisation: float
    truth: Vector
    optimum: Vector
    strong_convexity: float
    smoothness: float


def synthetic(
    *,
    loss: Loss,
    parties: int,
    records: int,
    features: int,
    rng: np.random.Generator,
    condition: float = 10.0,
    heterogeneity: float = 0.0,
    regularisation: float = 1e-2,
    radius: float = 5.0,
    noise: float = 0.1,
) -> SyntheticProblem:
    """Draw a problem.

    Args:
        loss: ``logistic`` (labels −1 and +1) or ``squared`` (real labels).
        parties: How many parties.
        records: Training records of each party; a quarter as many more are for testing.
        features: d.
        rng: The source of randomness.
        condition: Largest over least eigenvalue of E[x·xᵀ]; they fall geometrically.
        heterogeneity: h: party j's labels follow θ° + h·radius·u_j, u_j uniform on the sphere.
        regularisation: λ.
        radius: ‖θ°‖.
        noise: Standard deviation of the noise on real labels.
    """
    require_choice(LOSSES, loss=loss)
    require_count(parties=parties, records=records, features=features)
    require_positive(regularisation=regularisation, radius=radius)
    require_non_negative(heterogeneity=heterogeneity, noise=noise)
    if not 1 <= condition < np.inf:
        raise ValueError(f"condition must be finite and at least 1, got {condition!r}.")
    eigenvalues = np.geomspace(1, 1 / condition, features)
    eigenvalues /= eigenvalues.sum()
    rotation, _ = np.linalg.qr(rng.standard_normal((features, features)))
    root = (rotation * np.sqrt(eigenvalues)).T
    truth = radius * unit_vectors(1, features, rng)[0]
    local = truth + heterogeneity * radius * unit_vectors(parties, features, rng)

    def draw(count: int) -> Records:
        party = np.repeat(np.arange(parties), count)
        exact = rng.choice([-1.0, 1.0], (len(party), features)) @ root
        X = enforce(exact.astype(np.float32), Bounds(norm=1.0, intercept=0.0))
        scores = np.einsum("ij,ij->i", X, local[party])
        if loss == "squared":
            y = (scores + noise * rng.standard_normal(len(party))).astype(np.float32)
        else:
            y = signs(rng.random(len(party)) < expit(scores))
        return Records(X=X, y=y, party=party)

    train, test = draw(records), draw(max(1, records // 4))
    dataset = Dataset(
        name=f"synthetic:{loss}",
        task="regression" if loss == "squared" else "binary",
        train=train,
        test=test,
        feature_names=tuple(f"x{i}" for i in range(features)),
        max_norm=1.0,
        party_names=tuple(f"party-{j}" for j in range(parties)),
        classes=() if loss == "squared" else ("-1", "+1"),
    )
    X, y = train.X.astype(np.float64), train.y.astype(np.float64)
    covariance = X.T @ X / len(X)
    spectrum = np.linalg.eigvalsh(covariance)
    if loss == "squared":
        hessian = covariance + regularisation * np.eye(features)
        optimum: Vector = np.linalg.solve(hessian, X.T @ y / len(X)).astype(np.float64)
        curvature = spectrum[0], spectrum[-1]
    else:
        optimum = _logistic_minimiser(X, y, regularisation)
        curvature = 0.0, spectrum[-1] / 4
    return SyntheticProblem(
        dataset=dataset,
        regularisation=regularisation,
        truth=truth,
        optimum=optimum,
        strong_convexity=float(curvature[0]) + regularisation,
        smoothness=float(curvature[1]) + regularisation,
    )


def unit_vectors(count: int, dimension: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Independent vectors, (count, dimension), uniform on the unit sphere."""
    vectors = rng.standard_normal((count, dimension))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


def _logistic_minimiser(X: NDArray[np.float64], y: Vector, regularisation: float) -> Vector:
    """Newton's method with halved steps, until no step lowers the objective any more."""
    signed = X * y[:, None]

    def objective(theta: Vector) -> float:
        losses = np.logaddexp(0, -signed @ theta)
        return float(losses.mean() + regularisation / 2 * theta @ theta)

    theta = np.zeros(X.shape[1])
    value = objective(theta)
    for _ in range(_NEWTON_STEPS):
        wrong = expit(-signed @ theta)
        gradient = regularisation * theta - signed.T @ wrong / len(X)
        weights = wrong * (1 - wrong)
        hessian = (X * weights[:, None]).T @ X / len(X) + regularisation * np.eye(len(theta))
        step = np.linalg.solve(hessian, gradient)
        while (lower := objective(theta - step)) > value and np.any(theta - step != theta):
            step /= 2
        if np.all(theta - step == theta):
            break
        theta, value = theta - step, lower
    return theta
