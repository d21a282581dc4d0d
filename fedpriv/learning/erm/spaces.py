"""Three coordinate systems for Newton's method; which one pays depends on n, d and k.

With D the diagonal of loss curvatures, H = ΛI + XᵀDX/n, and every step solves Hp = -g. Here n is
the public divisor of the objective; the number of rows of X may be another:

- `PrimalSpace`: coordinates θ, a d × d Cholesky factor per party. For n ≥ d.
- `DualSpace`: θ = Xᵀα - b/(nΛ), coordinates α, n × n systems in the Gram matrix K = XXᵀ. For n < d.
  Once K is computed, no iteration touches the records.
- `KrylovSpace`: coordinates θ, conjugate gradients on Hp = -g. For many coordinates or classes.

The method for a party depends on public numbers and on its own number of records; it must not
depend on another party's records.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor

from fedpriv.learning.erm.conjugate_gradients import conjugate_gradients
from fedpriv.learning.erm.newton import State, Step

if TYPE_CHECKING:
    from fedpriv.learning.erm.batch import ErmBatch

_MAX_CG_STEPS = 250
# Beyond this condition number, Cholesky factors are faster than conjugate gradients.
_MAX_CG_CONDITION = 1e3


@dataclass(frozen=True, slots=True, eq=False)
class PrimalSpace:
    """Newton in θ with Cholesky factors of the Hessians."""

    batch: ErmBatch

    @classmethod
    def of(cls, batch: ErmBatch) -> Self:
        return cls(batch)

    def origin(self) -> State:
        """θ = 0."""
        theta = torch.zeros(self.batch.shape, dtype=torch.float64)
        blocks, length, _ = self.batch.features.shape
        return self.at(theta, theta.new_zeros((blocks, self.batch.loss.outputs, length)))

    def at(self, coordinates: Tensor, scores: Tensor) -> State:
        """The residual is the gradient."""
        gradient = self.batch.gradient(coordinates, self.batch.slopes(scores))
        norm = torch.linalg.vector_norm(gradient, dim=(1, 2))
        return State(coordinates, scores, gradient, norm)

    def step(self, state: State) -> Step:
        """The exact Newton step."""
        weights = self.batch.curved(state.scores, torch.ones_like(state.scores))
        weighted = self.batch.features * weights.transpose(1, 2)
        hessian = self.batch.gather(torch.bmm(weighted.transpose(1, 2), self.batch.features))
        hessian /= self.batch.counts.view(-1, 1, 1)
        hessian.diagonal(dim1=1, dim2=2).add_(self.batch.strong_convexity.view(-1, 1))
        factor, _ = torch.linalg.cholesky_ex(hessian)
        direction = torch.cholesky_solve(-state.residual.transpose(1, 2), factor).transpose(1, 2)
        return self._step(state, direction, self.batch.scores(direction))

    def theta(self, coordinates: Tensor) -> Tensor:
        """The coordinates themselves."""
        return coordinates

    def _step(self, state: State, direction: Tensor, scores: Tensor) -> Step:
        return Step(
            direction,
            scores,
            constant=(self.batch.pull(state.coordinates) * direction).sum((1, 2)),
            linear=self.batch.strong_convexity * direction.square().sum((1, 2)),
        )


class KrylovSpace(PrimalSpace):
    """Newton in θ with conjugate gradients, to a relative residual that falls with the gradient.

    Every truncation of conjugate gradients started at zero is a descent direction p, with
    φ′(0) = -pᵀHp, so the argument for global convergence stands.
    """

    __slots__ = ()

    def step(self, state: State) -> Step:
        """An inexact Newton step: ‖Hp + g‖ ≤ min(‖g‖, 1/20)·‖g‖, or the step limit."""

        def product(direction: Tensor) -> Tensor:
            return self.batch.hessian_product(state.scores, direction)

        direction = conjugate_gradients(
            product,
            -state.residual,
            goal=_forcing(state) * state.gradient_norm,
            max_steps=min(_MAX_CG_STEPS, state.residual[0].numel()),
        )
        return self._step(state, direction, self.batch.scores(direction))


@dataclass(frozen=True, slots=True, eq=False)
class DualSpace:
    """Newton in α, for one block per party and one score per record.

    ∇J = Xᵀq with q = slopes/n + Λα, so the step solves (ΛI + DK/n)β = -q. With S = √D, by the
    Woodbury identity β = -(q - S(nΛI + SKS)⁻¹SKq)/Λ, which stays defined where curvature vanishes.
    The matrix has a condition number of at most 1 + cB²/Λ, times the rows over n; if 1 + cB²/Λ is
    small, conjugate gradients take its place. Truncated, they still give a descent direction:
    gᵀp = (rᵀu - qᵀKq)/Λ with r = SKq, and rᵀu approaches its limit from below.

    Attributes:
        batch: The problems, one block per party.
        gram: (m, r, r): K.
        offset: (m, 1, r): the scores of -b/(nΛ).
        iterative: Whether to use conjugate gradients.
    """

    batch: ErmBatch
    gram: Tensor
    offset: Tensor
    iterative: bool

    @classmethod
    def of(cls, batch: ErmBatch) -> DualSpace:
        """Compute the Gram matrices, and the scores of -b/(nΛ)."""
        gram = torch.bmm(batch.features, batch.features.transpose(1, 2))
        offset = gram.new_zeros((batch.parties, 1, gram.shape[1]))
        if batch.linear is not None:
            offset = batch.scores(_shift(batch, batch.linear))
        largest = batch.loss.smoothness_for(batch.feature_bound)
        iterative = largest <= _MAX_CG_CONDITION * batch.strong_convexity.min().item()
        return cls(batch, gram, offset, iterative)

    def origin(self) -> State:
        """α = 0, that is θ = -b/(nΛ)."""
        return self.at(torch.zeros_like(self.offset), self.offset)

    def at(self, coordinates: Tensor, scores: Tensor) -> State:
        """The residual is q, and ‖Xᵀq‖ ≤ Σ|qᵢ|‖xᵢ‖, free of cancellation, stands for ‖∇J‖."""
        residual = self.batch.slopes(scores) / self.batch.counts.view(-1, 1, 1)
        residual += self.batch.strong_convexity.view(-1, 1, 1) * coordinates
        lengths = self.gram.diagonal(dim1=1, dim2=2).sqrt()
        norm = (residual.squeeze(1).abs() * lengths).sum(1)
        return State(coordinates, scores, residual, norm)

    def step(self, state: State) -> Step:
        """The Newton step, exact or by conjugate gradients."""
        root = self.batch.curved(state.scores, torch.ones_like(state.scores)).sqrt()
        right = root * torch.bmm(state.residual, self.gram)
        if self.iterative:
            inner = self._iterate(root, right, state)
        else:
            inner = self._factorise(root, right)
        direction = root * inner - state.residual
        direction /= self.batch.strong_convexity.view(-1, 1, 1)
        scores = torch.bmm(direction, self.gram)
        return Step(
            direction,
            scores,
            constant=self.batch.strong_convexity * (state.coordinates * scores).sum((1, 2)),
            linear=self.batch.strong_convexity * (direction * scores).sum((1, 2)),
        )

    def _factorise(self, root: Tensor, right: Tensor) -> Tensor:
        """(nΛI + SKS)⁻¹ right, by Cholesky."""
        system = self.gram * root
        system *= root.transpose(1, 2)
        ridge = self.batch.counts * self.batch.strong_convexity
        system.diagonal(dim1=1, dim2=2).add_(ridge.view(-1, 1))
        factor, _ = torch.linalg.cholesky_ex(system)
        return torch.cholesky_solve(right.transpose(1, 2), factor).transpose(1, 2)

    def _iterate(self, root: Tensor, right: Tensor, state: State) -> Tensor:
        """The same by conjugate gradients: a residual ρ leaves at most ‖ρ‖√c/(nΛ) of q."""
        ridge = (self.batch.counts * self.batch.strong_convexity).view(-1, 1, 1)
        size = torch.linalg.vector_norm(state.residual, dim=(1, 2)) * ridge.view(-1)

        def product(direction: Tensor) -> Tensor:
            return ridge * direction + root * torch.bmm(root * direction, self.gram)

        return conjugate_gradients(
            product,
            right,
            goal=_forcing(state) * size / self.batch.loss.smoothness**0.5,
            max_steps=_MAX_CG_STEPS,
        )

    def theta(self, coordinates: Tensor) -> Tensor:
        """Xᵀα - b/(nΛ)."""
        theta = self.batch.combine(coordinates)
        return theta if self.batch.linear is None else theta + _shift(self.batch, self.batch.linear)


def _forcing(state: State) -> Tensor:
    """The relative accuracy that a step needs: no more digits than the gradient has."""
    return state.gradient_norm.clamp(max=0.05)


def _shift(batch: ErmBatch, linear: Tensor) -> Tensor:
    """-b/(nΛ): the minimiser without records."""
    return -linear / batch.strong_convexity.view(-1, 1, 1)
