"""Training objective, excess empirical risk and optimality gap: what theorems on descent speak of.

For a model θ and the training records of a simulation,

    objective        f(θ) = (1/N)·Σ ℓ(θ; x, y) + (λ/2)‖θ‖²,
    excess_risk      f(θ) − f*,
    optimality_gap   ‖θ − θ*‖,

with N the public number of records and λ of the experiment, whatever a strategy itself minimises on
its way. The last two need one minimum that is known: a linear model with λ > 0. For it f is
λ-strongly convex, and the solver of the pooled problem certifies a point θ̂ with ‖∇f(θ̂)‖ ≤ g. So

    f(θ̂) − g²/(2λ) ≤ f* ≤ f(θ̂)   and   ‖θ̂ − θ*‖ ≤ g/λ:

with θ̂ in the place of θ* the excess risk is at most g²/(2λ) too small, and never too large; the gap
is wrong by at most g/λ. g counts its own rounding; that of f itself, in float64, comes on top: a
difference of two objectives below 10⁻¹³ is noise.

For simulations alone: all three are functions of private records that nobody pays for.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.utils.dlpack import from_dlpack

from fedpriv.learning.erm.batch import ErmBatch
from fedpriv.learning.erm.certificate import certain_tolerance, gradient_norm_bound
from fedpriv.learning.erm.problem import ErmProblem
from fedpriv.learning.erm.solver import solve
from fedpriv.learning.threads import one_thread
from fedpriv.simulations.run.metrics.evaluation import WORST

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from fedpriv.federation.task import Task
    from fedpriv.simulations.run.metrics.evaluation import Evaluator
    from fedpriv.simulations.run.prepare import Prepared

_TOLERANCE = 1e-9  # of ‖∇f‖ at the minimum, where so little can be certified


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingScore:
    """Training metrics of one model; None where there is no such metric.

    Attributes:
        objective: f(θ), the regulariser included.
        excess_risk: f(θ) − f(θ̂): the excess empirical risk, or at most g²/(2λ) less.
        optimality_gap: ‖θ − θ̂‖: the distance from the minimum, to within g/λ.
    """

    objective: float | None = None
    excess_risk: float | None = None
    optimality_gap: float | None = None


TRAINING = tuple(field.name for field in fields(TrainingScore))
"""The names of the training metrics."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Minimum:
    """The certified minimum of the pooled problem.

    Attributes:
        batch: The problem, its records in float64.
        theta: θ̂, (1, k, d).
        value: f(θ̂).
        gradient_norm: g, a proved bound on ‖∇f(θ̂)‖₂.
    """

    batch: ErmBatch
    theta: Tensor
    value: float
    gradient_norm: float

    @classmethod
    def of(cls, prepared: Prepared) -> Minimum:
        """Minimise the pooled problem, and certify the very point that is kept."""
        task, records = prepared.task, prepared.data.dataset.train
        problem = ErmProblem(
            features=from_dlpack(records.X),
            labels=from_dlpack(records.y),
            offsets=torch.tensor([0, len(records)]),
            counts=torch.tensor([task.records]),
            loss=task.loss,
            regulariser=task.regulariser,
            feature_bound=task.feature_bound,
        )
        with one_thread():
            theta = solve(problem, tolerance=max(_TOLERANCE, _certain(task, len(records)))).theta
            batch, point = ErmBatch.of(problem), theta.reshape(1, task.loss.outputs, -1)
            return cls(
                batch=batch,
                theta=point,
                value=float(batch.value(point)),
                gradient_norm=float(gradient_norm_bound(batch, point)),
            )

    @property
    def risk_error(self) -> float:
        """g²/(2λ): by so much at most an excess risk is too small."""
        return self.gradient_norm**2 / (2 * self._convexity)

    @property
    def gap_error(self) -> float:
        """g/λ: by so much at most an optimality gap is wrong."""
        return self.gradient_norm / self._convexity

    @property
    def _convexity(self) -> float:
        return float(self.batch.strong_convexity)

    def score(self, theta: NDArray[np.float64]) -> TrainingScore:
        """The metrics of the model ``theta``."""
        point = torch.from_numpy(np.array(theta, np.float64)).reshape(self.theta.shape)
        with one_thread():
            value = _finite(float(self.batch.value(point)))
        return TrainingScore(
            objective=value,
            excess_risk=value - self.value,
            optimality_gap=_finite(float(torch.linalg.vector_norm(point - self.theta))),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainingMetrics:
    """Scores models by the training objective, and against its minimum where that is known.

    Attributes:
        evaluator: On the training records.
        regulariser: λ.
        divisor: N; the true number of records may be another one.
        minimum: None for a network, and without a regulariser.
    """

    evaluator: Evaluator
    regulariser: float
    divisor: int
    minimum: Minimum | None = None

    @classmethod
    def of(cls, prepared: Prepared) -> TrainingMetrics:
        """For the training records of all parties together."""
        task = prepared.task
        if task.persons is not None:
            raise ValueError(
                "run.training_metrics is not for privacy.unit = 'person', where parties decide "
                "which records of a person count: leave it out, or take another unit."
            )
        return cls(
            evaluator=prepared.evaluator.on(prepared.data.dataset.train),
            regulariser=task.regulariser,
            divisor=task.records,
            minimum=Minimum.of(prepared) if task.convex and task.regulariser > 0 else None,
        )

    def score(self, theta: NDArray[np.float64]) -> TrainingScore:
        """The metrics of the model ``theta``; what has left the range of numbers is the worst."""
        if self.minimum is not None:
            return self.minimum.score(theta)
        mean = self.evaluator.score(theta)
        if mean is None:
            return TrainingScore()
        share = len(self.evaluator.labels) / self.divisor
        pull = self.regulariser / 2 * float(np.square(theta).sum())
        return TrainingScore(objective=_finite(mean.loss * share + pull))

    def summary(self, theta: NDArray[np.float64]) -> dict[str, float | None]:
        """The metrics of the last model, with the errors of the certificate; JSON-ready."""
        known = self.minimum
        return {
            **asdict(self.score(theta)),
            "excess_risk_error": None if known is None else known.risk_error,
            "optimality_gap_error": None if known is None else known.gap_error,
        }


def _finite(value: float) -> float:
    return value if value < WORST else WORST  # NaN, too


def _certain(task: Task, records: int) -> float:
    return certain_tolerance(
        task.loss,
        feature_bound=task.feature_bound,
        strong_convexity=task.regulariser,
        records=max(records, task.records),
        features=task.model.features,
        headroom=max(1.0, records / task.records),
    )
