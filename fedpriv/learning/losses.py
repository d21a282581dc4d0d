"""Losses ℓ(score, y) of linear models, with the two constants that privacy needs.

A record's loss is f(θ; x, y) = ℓ(⟨θ, x⟩, y), so its gradient is ``slope · x`` and its Hessian
``curvature · x xᵀ``. Every loss is convex in the score and states, for ‖x‖₂ ≤ 1,

- ``lipschitz``: G with ‖∇f‖₂ ≤ G, the clip norm that clips nothing, and the G of 2G/(nλ);
- ``domain_radius``: for ‖θ‖₂ up to which that G holds; infinite if for all θ;
- ``smoothness``: c with ∇²f ≼ c·I, the c of objective perturbation and of the step size 1/(c + λ);
- ``outputs``: the rank that a record's Hessian can have, in units of ``x xᵀ``.

A theorem about minimisers asks for some of these, and its own function refuses a loss without them
(`fedpriv.learning.erm.problem`, `fedpriv.privacy.planning.objective`). The constants have no
default: a new loss must say what it can promise.

Methods are elementwise over tensors of any shape, keep the dtype of the score, and neither overflow
nor lose accuracy for large scores. Classification labels are -1 and +1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from fedpriv._validate import require_count, require_non_negative, require_positive

_UNIT_ROUNDOFF = torch.finfo(torch.float64).eps / 2


class Loss(ABC):
    """A convex loss of one score a record. Use a subclass."""

    __slots__ = ()

    @property
    def outputs(self) -> int:
        """Scores a record: 1, but for `Softmax`."""
        return 1

    @property
    @abstractmethod
    def lipschitz(self) -> float:
        """G: the largest gradient norm of one record with ‖x‖₂ ≤ 1, on the domain."""

    @property
    @abstractmethod
    def domain_radius(self) -> float:
        """G holds for all ‖θ‖₂ up to this, and infinity says that the loss is Lipschitz."""

    @property
    @abstractmethod
    def smoothness(self) -> float:
        """c: the largest Hessian eigenvalue of one record with ‖x‖₂ ≤ 1."""

    @property
    def slope_rounding(self) -> float:
        """R: a float64 ``slope`` is off by at most R + 8u·|slope| (u = 2⁻⁵³) at its score, in L2.

        Assumes elementary functions accurate to 2 ulp. Zero where no cancellation occurs.
        """
        return 0.0

    def lipschitz_for(self, feature_bound: float) -> float:
        """G when ‖x‖₂ ≤ ``feature_bound``."""
        require_positive(feature_bound=feature_bound)
        return self.lipschitz * feature_bound

    def smoothness_for(self, feature_bound: float) -> float:
        """The smoothness c when ‖x‖₂ ≤ ``feature_bound``."""
        require_positive(feature_bound=feature_bound)
        return self.smoothness * feature_bound**2

    def minimiser_radius(self, strong_convexity: float) -> float:
        """A bound on ‖θ*‖₂, θ* the minimiser of a mean of at most n losses, plus (Λ/2)‖θ‖².

        Infinite where none is known without G, which must not be presumed here. A linear term
        moves the minimiser further.
        """
        require_positive(strong_convexity=strong_convexity)
        return inf

    @abstractmethod
    def check_labels(self, y: Tensor) -> None:
        """Refuse labels outside the domain; the message names the rule, never a label."""

    @abstractmethod
    def value(self, score: Tensor, y: Tensor) -> Tensor:
        """ℓ(score, y)."""

    @abstractmethod
    def slope(self, score: Tensor, y: Tensor) -> Tensor:
        """dℓ/dscore."""

    @abstractmethod
    def curvature(self, score: Tensor, y: Tensor) -> Tensor:
        """d²ℓ/dscore²; at a kink of the slope, one of its one-sided values."""

    def curvature_product(self, score: Tensor, y: Tensor, direction: Tensor) -> Tensor:
        """The second derivative applied to a direction of the scores."""
        return self.curvature(score, y) * direction


class MarginLoss(Loss):
    """A loss of the margin y·score, y in {-1, +1}."""

    __slots__ = ()

    def check_labels(self, y: Tensor) -> None:
        """Refuse labels other than -1 and +1."""
        if not bool((y.abs() == 1).all()):
            raise ValueError("labels must be -1 or +1; map {0, 1} by 2y - 1.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Logistic(MarginLoss):
    """ℓ = ln(1 + exp(-y·score)): G = 1, smoothness 1/4."""

    @property
    def lipschitz(self) -> float:
        """1: the slope is minus a probability."""
        return 1.0

    @property
    def domain_radius(self) -> float:
        """Infinite: G holds for every θ."""
        return inf

    @property
    def smoothness(self) -> float:
        """1/4: p(1 - p) at p = 1/2."""
        return 0.25

    def value(self, score: Tensor, y: Tensor) -> Tensor:
        """-ln σ(y·score)."""
        return -logsigmoid(y.to(score.dtype) * score)

    def slope(self, score: Tensor, y: Tensor) -> Tensor:
        """-y·σ(-y·score)."""
        y = y.to(score.dtype)
        return -y * torch.sigmoid(-y * score)

    def curvature(self, score: Tensor, y: Tensor) -> Tensor:
        """σ(score)·σ(-score), whatever the label."""
        tail = torch.sigmoid(-score.abs())
        return tail * (1 - tail)


@dataclass(frozen=True, slots=True, kw_only=True)
class HuberHinge(MarginLoss):
    """The hinge max(0, 1 - z), z = y·score, with its kink rounded over |1 - z| ≤ h: an SVM.

    ℓ = 0 for z > 1 + h, (1 + h - z)²/(4h) for |1 - z| ≤ h, and 1 - z below: G = 1, smoothness
    1/(2h) (the Huber SVM of Chaudhuri, Monteleoni and Sarwate 2011). One derivative everywhere,
    two everywhere but at z = 1 ± h.
    """

    smoothing: float

    def __post_init__(self) -> None:
        require_positive(smoothing=self.smoothing)

    @property
    def lipschitz(self) -> float:
        """1: the slope of the hinge."""
        return 1.0

    @property
    def domain_radius(self) -> float:
        """Infinite: G holds for every θ."""
        return inf

    @property
    def smoothness(self) -> float:
        """1/(2h)."""
        return 0.5 / self.smoothing

    @property
    def slope_rounding(self) -> float:
        """Cancellation in 1 + h - z, which only matters while |1 - z| ≤ h."""
        return 2 * _UNIT_ROUNDOFF * (2 + (2 + self.smoothing) / self.smoothing)

    def value(self, score: Tensor, y: Tensor) -> Tensor:
        """The rounded hinge at y·score: max over t in [0, 1] of t(1 + h - z) - ht²."""
        margin = y.to(score.dtype) * score
        bend = self._bend(margin)  # the maximising t; so autograd is right at both ends, too
        return bend * (1 + self.smoothing - margin - self.smoothing * bend)

    def slope(self, score: Tensor, y: Tensor) -> Tensor:
        """-y on the straight part, fading to 0 across the bend."""
        y = y.to(score.dtype)
        return -y * self._bend(y * score)

    def curvature(self, score: Tensor, y: Tensor) -> Tensor:
        """1/(2h) on the bend, its ends included, else 0."""
        margin = y.to(score.dtype) * score
        return ((1 - margin).abs() <= self.smoothing).to(score.dtype) * self.smoothness

    def _bend(self, margin: Tensor) -> Tensor:
        """How far into the bend: 0 beyond margin 1 + h, 1 below 1 - h."""
        return ((1 + self.smoothing - margin) / (2 * self.smoothing)).clamp(0, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class HuberRegression(Loss):
    """r²/2 for a residual r = score - y of at most the threshold τ, then τ(|r| - τ/2).

    G = τ, smoothness 1, for any real labels: the outliers are what is bounded.
    """

    threshold: float

    def __post_init__(self) -> None:
        require_positive(threshold=self.threshold)

    @property
    def lipschitz(self) -> float:
        """τ: residuals pull no harder."""
        return self.threshold

    @property
    def domain_radius(self) -> float:
        """Infinite: G holds for every θ."""
        return inf

    @property
    def smoothness(self) -> float:
        """1: inside the threshold it is the squared loss."""
        return 1.0

    def check_labels(self, y: Tensor) -> None:
        """Refuse labels that are not finite."""
        _require_finite_labels(y)

    def value(self, score: Tensor, y: Tensor) -> Tensor:
        """The Huber function of the residual."""
        size = (score - y.to(score.dtype)).abs()
        inner = size.clamp(max=self.threshold)
        return inner * (size - inner / 2)

    def slope(self, score: Tensor, y: Tensor) -> Tensor:
        """The residual, clamped to ±τ."""
        return (score - y.to(score.dtype)).clamp(-self.threshold, self.threshold)

    def curvature(self, score: Tensor, y: Tensor) -> Tensor:
        """1 for |residual| ≤ τ, else 0."""
        return ((score - y.to(score.dtype)).abs() <= self.threshold).to(score.dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class Squared(Loss):
    """(score - y)²/2, on a bounded domain only: ‖θ‖₂ ≤ ``radius`` and |y| ≤ ``label_bound``.

    Its gradient is unbounded over all θ, so G = radius + label_bound holds *inside the domain* and
    nowhere else. A minimiser with regulariser λ stays inside when radius ≥ label_bound/√λ; with a
    random linear term it stays inside no domain. `HuberRegression` needs no such care.
    """

    radius: float
    label_bound: float

    def __post_init__(self) -> None:
        require_positive(radius=self.radius)
        require_non_negative(label_bound=self.label_bound)

    @property
    def lipschitz(self) -> float:
        """The largest residual of the domain."""
        return self.radius + self.label_bound

    @property
    def domain_radius(self) -> float:
        """The radius: beyond it residuals, and gradients, grow without bound."""
        return self.radius

    def minimiser_radius(self, strong_convexity: float) -> float:
        """label_bound/√Λ, by (Λ/2)‖θ*‖² ≤ J(θ*) ≤ J(0) ≤ label_bound²/2."""
        require_positive(strong_convexity=strong_convexity)
        return float(self.label_bound / strong_convexity**0.5)

    @property
    def smoothness(self) -> float:
        """1 everywhere."""
        return 1.0

    def lipschitz_for(self, feature_bound: float) -> float:
        """B·(radius·B + label_bound): the residual grows with B as well."""
        require_positive(feature_bound=feature_bound)
        return feature_bound * (self.radius * feature_bound + self.label_bound)

    def check_labels(self, y: Tensor) -> None:
        """Refuse labels beyond the bound."""
        if not bool((y.abs() <= self.label_bound).all()):
            raise ValueError(
                f"labels must lie within ±label_bound = ±{self.label_bound:g}; "
                "clamp them to a public bound, or use HuberRegression."
            )

    def value(self, score: Tensor, y: Tensor) -> Tensor:
        """Half the squared residual."""
        return (score - y.to(score.dtype)).square() / 2

    def slope(self, score: Tensor, y: Tensor) -> Tensor:
        """The residual."""
        return score - y.to(score.dtype)

    def curvature(self, score: Tensor, y: Tensor) -> Tensor:
        """1."""
        return torch.ones_like(score)


@dataclass(frozen=True, slots=True, kw_only=True)
class Softmax(Loss):
    """Cross-entropy of k classes: scores (..., k), labels 0 … k-1 of an integer dtype (...).

    With θ of shape (k, d) and scores θx, the gradient is (p - e_y) xᵀ. Hence G = √2, the distance
    between two corners of the simplex, and smoothness 1/2, the largest eigenvalue of
    diag(p) - ppᵀ (its rows have absolute sums 2p(1 - p) ≤ 1/2, Gershgorin).
    """

    classes: int

    def __post_init__(self) -> None:
        require_count(classes=self.classes)
        if self.classes < 2:
            raise ValueError(f"classes must be an integer of at least 2, got {self.classes!r}.")

    @property
    def outputs(self) -> int:
        """One score a class."""
        return self.classes

    @property
    def lipschitz(self) -> float:
        """√2, approached when all the mass is on a wrong class."""
        return float(2**0.5)

    @property
    def domain_radius(self) -> float:
        """Infinite: G holds for every θ."""
        return inf

    @property
    def smoothness(self) -> float:
        """1/2."""
        return 0.5

    @property
    def slope_rounding(self) -> float:
        """Exponentials, their sum, a quotient and a difference."""
        return (self.classes + 10) * _UNIT_ROUNDOFF

    def check_labels(self, y: Tensor) -> None:
        """Refuse what is not a class index."""
        if y.is_floating_point() or not bool(((y >= 0) & (y < self.classes)).all()):
            raise ValueError(f"labels must be integers from 0 to classes - 1 = {self.classes - 1}.")

    def value(self, score: Tensor, y: Tensor) -> Tensor:
        """-ln p_y."""
        log_p = torch.log_softmax(score, dim=-1)
        return -log_p.gather(-1, y.long().unsqueeze(-1)).squeeze(-1)

    def slope(self, score: Tensor, y: Tensor) -> Tensor:
        """The gradient p - e_y, of the shape of the scores."""
        p = torch.softmax(score, dim=-1)
        index = y.long().unsqueeze(-1)
        return p.scatter_add(-1, index, -torch.ones_like(index, dtype=p.dtype))

    def curvature(self, score: Tensor, y: Tensor) -> Tensor:
        """diag(p) - ppᵀ, shape (..., k, k)."""
        p = torch.softmax(score, dim=-1)
        return torch.diag_embed(p) - p.unsqueeze(-1) * p.unsqueeze(-2)

    def curvature_product(self, score: Tensor, y: Tensor, direction: Tensor) -> Tensor:
        """p∘v - p(p·v), without the k × k matrices."""
        p = torch.softmax(score, dim=-1)
        weighted = p * direction
        return weighted - p * weighted.sum(-1, keepdim=True)


def _require_finite_labels(y: Tensor) -> None:
    if not bool(torch.isfinite(y).all()):
        raise ValueError("labels must be finite.")
