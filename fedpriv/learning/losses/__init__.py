"""Losses ℓ(score, y) of linear models, with the two constants that privacy needs.

A record's loss is f(θ; x, y) = ℓ(⟨θ, x⟩, y), so its gradient is ``slope · x`` and its Hessian
``curvature · x xᵀ``. Every loss is convex in the score and states, for ‖x‖₂ ≤ 1,

- ``lipschitz``: G with ‖∇f‖₂ ≤ G, the clip norm that clips nothing, and the G of 2G/(nλ);
- ``domain_radius``: for ‖θ‖₂ up to which that G holds; infinite if for all θ;
- ``smoothness``: c with ∇²f ≼ c·I, the c of objective perturbation and of the step size 1/(c + λ);
- ``outputs``: the rank that a record's Hessian can have, in units of ``x xᵀ``;
- ``one_sided``: whether a record's slope keeps its sign, which saves objective perturbation noise.

A theorem about minimisers asks for some of these, and its own function refuses a loss without them
(`fedpriv.learning.erm.problem`, `fedpriv.privacy.planning.objective.objective_rules`). The
constants have no default: a new loss must say what it can promise.

Methods are elementwise over tensors of any shape, keep the dtype of the score, and neither overflow
nor lose accuracy for large scores. Classification labels are -1 and +1.
"""

from fedpriv.learning.losses.loss import Loss
from fedpriv.learning.losses.margin import HuberHinge, Logistic, MarginLoss
from fedpriv.learning.losses.regression import HuberRegression, Squared
from fedpriv.learning.losses.softmax import Softmax

PROVED = (HuberHinge, HuberRegression, Logistic, Softmax, Squared)
"""fedpriv's own: what they compute is element by element, however many records there are."""

__all__ = [
    "PROVED",
    "HuberHinge",
    "HuberRegression",
    "Logistic",
    "Loss",
    "MarginLoss",
    "Softmax",
    "Squared",
]
