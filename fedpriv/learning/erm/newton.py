"""Damped Newton for many strongly convex problems at once, without a loop over the problems.

Global convergence, deterministically and for every convex loss here. A step p satisfies Hp = -g
(or comes near it, see `fedpriv.learning.erm.spaces`). The full step is taken when it halves the
smallest gradient norm seen so far; that can happen only finitely often before the target is met.
Otherwise the length is searched along φ(t) = J(θ + tp), using φ′ alone, until
-|φ′(0)|/100 ≤ φ′(t) ≤ 0, or t = 1 if φ′(1) ≤ 0. As φ is convex, φ′ ≤ 0 all the way from 0 to t, and
as ∇J is M-Lipschitz, J falls by at least a fixed multiple of φ′(0)²/(M‖p‖²): linear convergence
with Λ ≤ ∇²J ≤ M. M is not used, so records beyond the n of the objective, which increase it, need
no special treatment. Near the minimum of a twice differentiable loss the full step wins and
convergence is quadratic; for Huber losses it ends after finitely many steps. Function values are
never compared: at gradient norms near 1e-8 they no longer differ in float64.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch
from torch import Tensor

if TYPE_CHECKING:
    from fedpriv.learning.erm.batch import ErmBatch

_BISECTIONS = 60
# Allowed remainder of φ′(0). Where losses bend sharply, stopping halfway costs ten times the steps.
_SLOPE_LEFT = 0.01


class Step(NamedTuple):
    """A search direction: how coordinates and scores change, and φ′ beyond the loss: c₀ + c₁t."""

    coordinates: Tensor
    scores: Tensor
    constant: Tensor
    linear: Tensor


class State(NamedTuple):
    """A point: coordinates (m, …), scores (b, k, r), residual (m, …), and ‖∇J‖ (m,)."""

    coordinates: Tensor
    scores: Tensor
    residual: Tensor
    gradient_norm: Tensor


class Space(Protocol):
    """Coordinates in which a batch's problems are solved; see `fedpriv.learning.erm.spaces`."""

    @property
    def batch(self) -> ErmBatch:
        """The problems."""
        ...

    def origin(self) -> State:
        """Where to start."""
        ...

    def at(self, coordinates: Tensor, scores: Tensor) -> State:
        """The state at these coordinates, whose scores are known."""
        ...

    def step(self, state: State) -> Step:
        """The Newton step, or an approximation that is a descent direction."""
        ...

    def theta(self, coordinates: Tensor) -> Tensor:
        """The parameters (m, k, d) that the coordinates stand for."""
        ...


def newton(space: Space, *, target: float, max_iterations: int) -> tuple[Tensor, Tensor]:
    """Drive every ‖∇J_j‖ to ``target``; returns the coordinates and the iterations used.

    A party that meets the target is done: its point is kept while the others go on. The batch does
    not shrink to those others: a matrix product rounds a party's numbers differently at another
    position of another batch, and the time of that change would depend on the records of the
    others. A last digit can decide whether a party takes one more step: a difference of as much as
    the target.

    A party that does not meet the target in ``max_iterations`` steps keeps its last point. The
    certificate, computed afresh elsewhere, decides whether an answer is returned.
    """
    state = space.origin()
    smallest = state.gradient_norm
    solved = state.coordinates.clone()
    iterations = torch.full((space.batch.parties,), max_iterations)
    open_ = torch.ones(space.batch.parties, dtype=torch.bool)
    for iteration in range(max_iterations + 1):
        met = open_ & (state.gradient_norm <= target)
        iterations[met] = iteration
        solved[open_] = state.coordinates[open_]
        open_ = open_ & ~met
        if not bool(open_.any()) or iteration == max_iterations:
            break
        state = _advance(space, state, smallest, open_)
        smallest = torch.minimum(smallest, state.gradient_norm)
    return solved, iterations


def _advance(space: Space, state: State, smallest: Tensor, open_: Tensor) -> State:
    """One step for every party: full if it halves the smallest norm, else of a searched length."""
    step = space.step(state)
    full = space.at(state.coordinates + step.coordinates, state.scores + step.scores)
    halved = full.gradient_norm <= smallest / 2
    if bool((halved | ~open_).all()):
        return full
    length = torch.where(halved, 1.0, _line_search(space.batch, state.scores, step))
    return space.at(
        state.coordinates + _like(length, step.coordinates) * step.coordinates,
        state.scores + _like(space.batch.spread(length), step.scores) * step.scores,
    )


def _line_search(batch: ErmBatch, scores: Tensor, step: Step) -> Tensor:
    """Step lengths t in (0, 1], by bisection on φ′; no record is touched, only scores."""

    def derivative(t: Tensor) -> Tensor:
        moved = torch.addcmul(scores, _like(batch.spread(t), scores), step.scores)
        return batch.mean(batch.slopes(moved) * step.scores) + step.constant + t * step.linear

    one = torch.ones_like(step.constant)
    start = derivative(0 * one)
    low, high = 0 * one, one
    length, slope = one, derivative(one)
    settled = slope <= 0
    for _ in range(_BISECTIONS):
        if bool(settled.all()):
            break
        high = torch.where(slope > 0, length, high)
        low = torch.where(slope > 0, low, length)
        length = torch.where(settled, length, (low + high) / 2)
        slope = derivative(length)
        settled = settled | ((slope <= 0) & (slope >= _SLOPE_LEFT * start))
    return torch.where(settled, length, low)


def _like(values: Tensor, shape_of: Tensor) -> Tensor:
    """One value per leading index, ready to multiply ``shape_of``."""
    return values.view(-1, *[1] * (shape_of.ndim - 1))
