"""Losses of regression: Huber's, for any labels, and the squared one on a bounded domain."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

from fedpriv._validate import require_non_negative, require_positive
from fedpriv.learning.losses.loss import Loss


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
        if not bool(torch.isfinite(y).all()):
            raise ValueError("labels must be finite.")

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
