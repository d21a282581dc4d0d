"""Losses, models, clipped gradient sums, certified minimisers and server optimisers.

A party's records are used in three ways: for a clipped gradient sum (`ClippedGradient` in
`clipping`), which turns a `RecordBatch`, a `Model`, a `Loss` and a `Clipping` into one bounded
vector per party; for the certified minimiser of a strongly convex problem (`solve` in `erm`); and
for the update of local training (`LocalTrainer` in `training`). All three take the records of one
party, or of many parties stacked in one process. Start with `losses`, `models` and `batch`;
`network` and `record_wise` are for networks, `loss_checks` for constants declared by users,
`protector` for learned protection. A few more modules than elsewhere: packages here share them.
"""

from fedpriv.learning.batch import RecordBatch
from fedpriv.learning.clipping.clipped_sum import (
    ClippedGradient,
    ClippedSums,
    Clipping,
    clipped_gradient_sums,
)
from fedpriv.learning.erm.certificate import Certificate, ToleranceNotReachedError
from fedpriv.learning.erm.problem import ErmProblem
from fedpriv.learning.erm.sensitivity import minimiser_sensitivity
from fedpriv.learning.erm.solver import Solution, solve
from fedpriv.learning.losses import (
    HuberHinge,
    HuberRegression,
    Logistic,
    Loss,
    Softmax,
    Squared,
)
from fedpriv.learning.models import LinearModel, MlpModel, Model
from fedpriv.learning.network import NetworkModel, small_cnn
from fedpriv.learning.optimisers import (
    AdaGrad,
    Adam,
    Averaged,
    DebiasedMomentum,
    Momentum,
    Optimiser,
    Sgd,
)
from fedpriv.learning.rounding_error import rounding_sensitivity
from fedpriv.learning.sampling import poisson_sample

__all__ = [
    "AdaGrad",
    "Adam",
    "Averaged",
    "Certificate",
    "ClippedGradient",
    "ClippedSums",
    "Clipping",
    "DebiasedMomentum",
    "ErmProblem",
    "HuberHinge",
    "HuberRegression",
    "LinearModel",
    "Logistic",
    "Loss",
    "MlpModel",
    "Model",
    "Momentum",
    "NetworkModel",
    "Optimiser",
    "RecordBatch",
    "Sgd",
    "Softmax",
    "Solution",
    "Squared",
    "ToleranceNotReachedError",
    "clipped_gradient_sums",
    "minimiser_sensitivity",
    "poisson_sample",
    "rounding_sensitivity",
    "small_cnn",
    "solve",
]
