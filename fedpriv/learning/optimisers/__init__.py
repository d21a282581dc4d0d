"""Server optimisers, and wrappers around them: start with `steps`."""

from fedpriv.learning.optimisers.steps import (
    AdaGrad,
    Adam,
    DebiasedMomentum,
    Momentum,
    Nesterov,
    Optimiser,
    Sgd,
    Yogi,
)
from fedpriv.learning.optimisers.wrappers import Averaged, Projected, WarmUp, project

__all__ = [
    "AdaGrad",
    "Adam",
    "Averaged",
    "DebiasedMomentum",
    "Momentum",
    "Nesterov",
    "Optimiser",
    "Projected",
    "Sgd",
    "WarmUp",
    "Yogi",
    "project",
]
