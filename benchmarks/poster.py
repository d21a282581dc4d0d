"""The poster of Jayaraman et al. 2018: its curves, from the noise that its program seems to add.

    FEDPRIV_DATA=… python -m benchmarks poster

The curves of the poster over "T" are of one run of 1400 rounds, and not of runs of T rounds:

- gradients, local and aggregated, have in every round the noise of Theorem 3 for all 1400, with the
  √(4·ln(1/δ)) that the printed table of noise drops: σ² = 8·G²·T·ln(1/δ)/(n₍₁₎²·ε²), averaged over
  m parties, or divided by m² for the aggregated form;
- Rajkumar and Agarwal have that of one round, σ² = 8·G²·ln(1/δ)/(n₍₁₎²·ε²), from each party;
- local objectives have one b for all parties, Laplace by coordinate with the scale 2/ε′, and Δ =
  β/(n₍₁₎·(e^(ε/4) − 1)) − λ beside λ, for which ε′ is ε/2.

With equal parties the average of their gradients is that of all records. So a run is one descent on
all of them with Gaussian noise, and an average of objectives with one b is one objective with it.
Without the file of records nothing is measured. For study: what these numbers promise is less than
it says, which is why no strategy offers them.
"""

from __future__ import annotations

from math import expm1, log, sqrt
from os import environ
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from fedpriv.simulations.experiment.file import read_experiment
from fedpriv.simulations.run.prepare import prepare

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Vector = NDArray[np.float64]

EPSILON, DELTA, PARTIES, SMALLEST, L2 = 0.5, 1e-3, 1000, 50, 1e-3
ROUNDS, LOOKS, SEEDS = 1400, (100, 400, 1400), 5
EXPERIMENT = Path(__file__).parents[1] / "simulations" / "experiments" / "jayaraman2018.toml"
PUBLISHED = {
    "local gradient": ((1.18, 2.54, 4.15), (0.0596, 0.0325, 0.0356)),
    "gradient": ((0.0275, 0.00442, 0.00387), (0.00507, 0.00036, 0.000657)),
    "Rajkumar and Agarwal": ((0.025, 0.00234, 0.00273), (0.00258, 0.000241, 0.000962)),
    "local objective": ((2.58, 2.61, 2.61), (0.047, 0.047, 0.047)),
}
"""Optimality gaps and lost accuracies after LOOKS rounds, read off the curves."""


class Pooled:
    """All records: the objective, its gradient, and how far a model is from the best."""

    def __init__(self) -> None:
        dataset = prepare(read_experiment(EXPERIMENT)).data.dataset
        train, test = dataset.train, dataset.test
        self.signed = np.asarray(train.X * train.y[:, None], np.float32)
        self.test = test.X.astype(np.float64) * test.y[:, None]
        self.dimension = self.signed.shape[1]
        self.best = self.minimiser(np.zeros(self.dimension), 0.0)
        self.least, self.right = self.objective(self.best), self.accuracy(self.best)

    def objective(self, theta: Vector) -> float:
        """The mean logistic loss, and λ/2·‖θ‖²."""
        losses = np.logaddexp(0, -(self.signed @ theta.astype(np.float32)).astype(np.float64))
        return float(losses.mean() + L2 / 2 * theta @ theta)

    def gradient(self, theta: Vector) -> Vector:
        """Its gradient."""
        slopes = expit(-(self.signed @ theta.astype(np.float32)))
        along = (self.signed.T @ slopes).astype(np.float64) / len(self.signed)
        return np.asarray(L2 * theta - along)

    def accuracy(self, theta: Vector) -> float:
        """Of the test records."""
        return float((self.test @ theta > 0).mean())

    def minimiser(self, linear: Vector, more: float) -> Vector:
        """Of the objective with bᵀθ and ``more``/2·‖θ‖² beside it."""
        found = minimize(
            lambda t: self.objective(t) + float(linear @ t) + more / 2 * float(t @ t),
            np.zeros(self.dimension),
            jac=lambda t: self.gradient(t) + linear + more * t,
            method="L-BFGS-B",
            options={"maxiter": 2000, "ftol": 1e-14},
        )
        return np.asarray(found.x)

    def look(self, theta: Vector) -> tuple[float, float]:
        """The optimality gap, and the accuracy that is lost."""
        return self.objective(theta) - self.least, self.right - self.accuracy(theta)


def descent(pooled: Pooled, stddev: float, rng: np.random.Generator) -> Vector:
    """One run of steps of 1 with the same noise in every round; what is seen after LOOKS."""
    theta, seen = np.zeros(pooled.dimension), []
    for number in range(1, ROUNDS + 1):
        theta = theta - pooled.gradient(theta) - rng.normal(0, stddev, pooled.dimension)
        if number in LOOKS:
            seen.append(pooled.look(theta))
    return np.array(seen)


def one_term(pooled: Pooled, rng: np.random.Generator) -> Vector:
    """The minimiser with one b for all parties, whatever the number of rounds."""
    more = 0.25 / (SMALLEST * expm1(EPSILON / 4)) - L2
    b = np.asarray(rng.laplace(0, 2 / (EPSILON / 2), pooled.dimension))
    return np.array([pooled.look(pooled.minimiser(b / SMALLEST, more))] * len(LOOKS))


def main() -> None:
    if "FEDPRIV_DATA" not in environ:
        print("skipped: it needs kddcup99.npz in the folder that FEDPRIV_DATA names")
        return
    pooled = Pooled()
    a_round = 2 / SMALLEST * sqrt(2 * log(1 / DELTA)) / EPSILON
    made: dict[str, Callable[[np.random.Generator], Vector]] = {
        "local gradient": lambda g: descent(pooled, a_round * sqrt(ROUNDS / PARTIES), g),
        "gradient": lambda g: descent(pooled, a_round * sqrt(ROUNDS) / PARTIES, g),
        "Rajkumar and Agarwal": lambda g: descent(pooled, a_round / sqrt(PARTIES), g),
        "local objective": lambda g: one_term(pooled, g),
    }
    for name, make in made.items():
        found = np.array([make(np.random.default_rng(seed)) for seed in range(SEEDS)])
        for index, what in enumerate(("gap", "accuracy lost")):
            values = found[:, :, index]
            told = ", ".join(
                f"{mean:.3g} ({low:.3g} to {high:.3g})"
                for mean, low, high in zip(
                    values.mean(axis=0), values.min(axis=0), values.max(axis=0), strict=True
                )
            )
            print(f"{name}, {what} after {LOOKS}: {told}; published {PUBLISHED[name][index]}")


if __name__ == "__main__":
    main()
