"""Shrinking a published model by the noise in its scores: free, for it is computed from the plan.

A linear model with noise scores a record with noise of variance τ². Multiplied by a > 0, it names
the same classes, in the same order of confidence, but the noise made its probabilities too bold:

    a = 1/√(1 + τ²)

keeps them calibrated under an assumption: if scores without noise vary about as much as they do at
a margin of one, with noise they vary by 1 + τ². Where they vary more, a shrinks too much. A probit,
which knows the noise but not that it also inflates scores, would have πτ²/8 for τ².

Noise is heavy ball's: a coordinate with curvature h + λ undoes what it had before. Curvature is not
public, but bounded: a direction of which records have the mean square ℓ has at most c·ℓ, and those
of all p features add up to at most B². With the variance v(h) of a coordinate,

    τ² = p·max_{ℓ ≤ B²/p} ℓ·v(c·ℓ),

as if all directions were as bad as that. Curvature is less where a model is sure of its records, so
that this is no bound.

Of a perceptron only the last layer is multiplied, which does the same to its scores, and noise is
taken to move them as it moves those of a linear model without curvature: τ² = B²·v(0).

Which records there are plays no part: σ, η, β, λ, the schedule, B, p and the declared number of
records are all in the plan or the task. So nothing is paid for it, as for no function of releases
and public numbers (post-processing). Descent goes on from the iterate, which is not shrunk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.learning.losses import Logistic, Softmax
from fedpriv.learning.models import MlpModel
from fedpriv.privacy.mechanisms.shares import SharedNoise

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedpriv.federation.task import Task, Weights
    from fedpriv.privacy.planning.noise_free import NoiseFree
    from fedpriv.privacy.planning.plan import Plan
    from fedpriv.strategies.common.optimiser import OptimiserOptions

    Vector = NDArray[np.float64]

_HALVINGS = 24  # of ℓ, from B²/p: further down, noise in scores falls with ℓ, up to 10⁷ steps


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shrink:
    """What a published model is multiplied by.

    Attributes:
        factors: By round.
        first: The coordinate from which on it is multiplied: 0, or where the last layer begins.
    """

    factors: Vector
    first: int = 0

    def __post_init__(self) -> None:
        if not ((self.factors > 0) & (self.factors <= 1)).all():
            raise ValueError("factors must be above 0, and 1 at most.")
        if self.first < 0:
            raise ValueError(f"first must be at least 0, got {self.first!r}.")

    def published(self, theta: Vector, index: int) -> Vector:
        """The model to publish after the round of that index."""
        shrunk = theta.copy()
        shrunk[self.first :] *= self.factors[index]
        return shrunk


def shrinkable(task: Task) -> bool:
    """Whether the rule shrinks: where scores become probabilities, and no start is stated.

    For the Huber hinge it was tried and gains nothing: its loss wants scores of about one.
    """
    return (
        (task.convex or isinstance(task.model, MlpModel))
        and task.persons is None
        and task.start is None
        and isinstance(task.loss, Logistic | Softmax)
    )


def gradient_noise(
    plan: Plan | NoiseFree, task: Task, *, weights: Weights = "proportional", draws: int = 1
) -> Vector:
    """The standard deviation of the noise on a coordinate of every noisy mean gradient.

    ``draws`` is how many draws of noise each sum carries, where every party adds its own.
    """
    count = task.records if weights == "proportional" else task.parties * task.smallest
    found = []
    for index, mechanism in enumerate(plan.mechanisms):
        if mechanism is None:
            deviation = 0.0
        elif isinstance(mechanism, SharedNoise):
            deviation = mechanism.stddev_of(task.parties)
        else:
            deviation = mechanism.noise_stddev * draws**0.5
        found.append(deviation / (plan.rate(index) * count))
    return np.array(found)


def shrink_by_noise(options: OptimiserOptions, task: Task, noise: Vector) -> Shrink:
    """a of the model after every round.

    Args:
        options: Settled options of heavy ball.
        task: The public facts.
        noise: By round, the standard deviation on a coordinate of the mean gradient.
    """
    if isinstance(task.model, MlpModel):
        inputs, outputs = task.model.widths[-2:]
        flat = np.array([task.regulariser])
        variance: Vector = task.feature_bound**2 * published_noise(options, noise, flat)[:, 0]
        return Shrink(
            factors=1 / np.sqrt(1 + variance), first=task.dimension - (inputs + 1) * outputs
        )
    features = task.dimension // task.loss.outputs
    halves = np.exp2(-np.arange(_HALVINGS, dtype=np.float64))
    squares: Vector = task.feature_bound**2 / features * halves
    variances = published_noise(options, noise, task.loss.smoothness * squares + task.regulariser)
    variance = features * (squares * variances).max(axis=1)
    return Shrink(factors=1 / np.sqrt(1 + variance))


def published_noise(options: OptimiserOptions, noise: Vector, curvature: Vector) -> Vector:
    """The variance of a coordinate of the published model after every round, of noise alone.

    Exact on a quadratic: (rounds, curvatures).
    """
    if options.learning_rate == "auto" or options.optimiser not in ("momentum", "sgd"):
        raise ValueError(
            "options must have a learning_rate and be of 'momentum' or 'sgd', got "
            f"{options.learning_rate!r} and {options.optimiser!r}."
        )
    beta = options.momentum if options.optimiser == "momentum" else 0.0
    skip = {"mean": 0, "tail": len(noise) // 2}.get(options.averaging, len(noise))
    # Of the velocity, the iterate and the published model.
    covariance = np.zeros((len(curvature), 3, 3))
    found = np.empty((len(noise), len(curvature)))
    for index, deviation in enumerate(noise):
        rate = options.learning_rate * min(1.0, (index + 1) / (options.warm_up or 1))
        step = np.zeros_like(covariance)
        step[:, 0, 0], step[:, 0, 1] = beta, curvature
        step[:, 1, 0], step[:, 1, 1] = -rate * beta, 1 - rate * curvature
        weight = 1 / max(1, index + 1 - skip)
        step[:, 2] = weight * step[:, 1]
        step[:, 2, 2] = 1 - weight
        added = deviation * np.array([1.0, -rate, -weight * rate])
        covariance = step @ covariance @ step.transpose(0, 2, 1) + np.outer(added, added)
        found[index] = covariance[:, 2, 2]
    return found
