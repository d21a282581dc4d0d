"""Augmented Lagrangian for the budget constraint, and a soft indicator of where a budget ends."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from fedpriv._validate import require_non_negative, require_positive

if TYPE_CHECKING:
    from torch import Tensor


def tent(spent: Tensor, budget: Tensor) -> Tensor:
    """The weight of each step: 1 where the budget is just spent, 0 at nothing and at twice it.

    A run ends with the model after the last step that it can pay for. Which step that is depends
    discontinuously on the noise; the tent is a differentiable stand-in.

    Args:
        spent: After each step of a batch, (steps, runs).
        budget: Of the batch, (runs,).
    """
    return (1 - (spent / budget - 1).abs()).clamp(min=0)


def expected_loss(losses: Tensor, spent: Tensor, budget: Tensor) -> Tensor:
    """The mean over runs of the loss where the budget of the batch ends."""
    weights = tent(spent, budget)
    weighted = (weights * losses).sum(0) / weights.sum(0).clamp(min=1e-6)
    return weighted.mean()


@dataclass(frozen=True, slots=True, kw_only=True)
class AugmentedLagrangian:
    """min f subject to c ≤ 0, by f + (max(0, λ + κc)² − λ²)/(2κ), λ ← max(0, λ + κc).

    Bertsekas 1982, §3.1. Here c is how far a batch overspends, relative to its budget.

    Attributes:
        multiplier: λ.
        penalty: κ.
    """

    multiplier: float = 0.0
    penalty: float = 1.0

    def __post_init__(self) -> None:
        require_non_negative(multiplier=self.multiplier)
        require_positive(penalty=self.penalty)

    def term(self, excess: Tensor) -> Tensor:
        """The term added to the objective."""
        pushed = (self.multiplier + self.penalty * excess).clamp(min=0)
        return (pushed.square() - self.multiplier**2) / (2 * self.penalty)

    def after(self, excess: float) -> Self:
        """The multiplier after a batch with this excess."""
        return replace(self, multiplier=max(0.0, self.multiplier + self.penalty * excess))
