"""The cross-entropy of several classes."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

from fedpriv._validate import require_count
from fedpriv.learning.losses.loss import UNIT_ROUNDOFF, Loss


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
        return (self.classes + 10) * UNIT_ROUNDOFF

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
