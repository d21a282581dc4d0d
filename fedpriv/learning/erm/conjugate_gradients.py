"""Conjugate gradients for many symmetric positive definite systems at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor


def conjugate_gradients(
    product: Callable[[Tensor], Tensor], right: Tensor, *, goal: Tensor, max_steps: int
) -> Tensor:
    """Solve A_j u_j = r_j from u = 0 to ‖A_j u_j - r_j‖₂ ≤ goal_j, or for ``max_steps`` steps.

    Wherever it stops, uᵀAu = uᵀr ≤ rᵀA⁻¹r: a truncated solution is a shorter step, not a wrong one.
    A system that meets its goal is left as it is while others go on.

    Args:
        product: u ↦ Au for all systems, (m, …) to (m, …).
        right: (m, k, …): r.
        goal: (m,).
        max_steps: The most products to ask for.
    """

    def dot(a: Tensor, b: Tensor) -> Tensor:
        return (a * b).sum((1, 2))

    def times(a: Tensor, b: Tensor) -> Tensor:
        return a.view(-1, 1, 1) * b

    solution, residual, search = torch.zeros_like(right), right, right
    square, goal_square = dot(right, right), goal.square()
    for _ in range(max_steps):
        running = square > goal_square
        if not bool(running.any()):
            break
        image = product(search)
        length = torch.where(running, square / dot(search, image), 0.0)
        solution = solution + times(length, search)
        residual = residual - times(length, image)
        last, square = square, dot(residual, residual)
        # A system that is done may divide 0 by 0; its search direction no longer matters.
        search = residual + times(torch.where(running, square / last, 0.0), search)
    return solution
