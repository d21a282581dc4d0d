"""Inference: coefficients of a linear or logistic regression, with intervals you may publish.

Squared loss, one exchange: least squares needs only the second moments of features and label.

    S ← Σ over all records of zzᵀ, z = (x, s·y), by a secure sum; + N(0, σ²) on its scaled triangle

Logistic loss: objective perturbation, and the Hessian at the minimiser.

    b ← noise;  θ ← argmin (1/N)Σ f(θ; x, y) + ((λ + Δ)/2)‖θ‖² + bᵀθ/N,  + a little noise
    H ← Σ over all records of p(1-p)xxᵀ at θ, by a secure sum; + N(0, σ²) on its scaled triangle

Everything that follows (`fedpriv.inference`) is post-processing: estimates, standard errors that
cover sampling *and* noise, intervals, and the decision to withhold them.

Wang 2018 (AdaSSP; here with one release for all moments and exact Gaussian accounting); Kifer,
Smith and Thakurta 2012 with the exact rule of `fedpriv.privacy.objective_profile`. The model for
predictions is the ridge estimate for the squared loss, and θ for the logistic one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedpriv.learning.losses import Logistic, Squared
from fedpriv.privacy.unit import Unit
from fedpriv.strategies.common.building import StrategyInfo
from fedpriv.strategies.common.inference.linear_inference import NAME, LinearInference, plan_linear
from fedpriv.strategies.common.inference.logistic_inference import (
    InferenceOptions,
    LogisticInference,
    plan_logistic,
)

if TYPE_CHECKING:
    from fedpriv.strategies.common.building import Setup

INFO = StrategyInfo(
    name=NAME,
    summary="linear or logistic regression, with intervals for its coefficients",
    noise_by="server",
    asks=("moments with labels",),
    convex_only=True,
    one_draw=True,  # for the logistic loss, as in objective perturbation
    options=InferenceOptions,
    shares=True,
    because={
        Unit.PERSON: (
            "standard errors are those of records that are drawn one by one, and the records of "
            "one person are alike"
        ),
    },
)


def build(setup: Setup, options: InferenceOptions) -> LinearInference | LogisticInference:
    """The strategy, planned within its budget: linear or logistic, by the loss of the task."""
    setup.task.require_strongly_convex(NAME)
    match setup.task.loss:
        case Squared():
            return plan_linear(setup)
        case Logistic():
            return plan_logistic(setup, options)
    raise ValueError(
        f"inference needs the squared or the logistic loss, got {type(setup.task.loss).__name__}: "
        "no interval is known to hold for others. Use model.name = 'squared' or 'logistic'."
    )
