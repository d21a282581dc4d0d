"""Unrolled runs of a protector on a public problem, differentiable step by step."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from fedpriv._validate import require_count, require_open_unit, require_positive
from fedpriv.learning.protector.protector import Protector, State, Surroundings

if TYPE_CHECKING:
    from fedpriv.learning.protector.auxiliary import AuxiliaryTask


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """The allowance of a run, without saying what privacy is: noise, rounds and their shares.

    A release with standard deviation s on the mean, in units of the clip norm, costs (noise/s)²;
    all releases together may cost 1. T rounds alike, each with a share of 1/T, of which
    ``norm_share`` pays for the norm, define the reference noise.

    Attributes:
        noise: Standard deviation of a release that takes the whole budget: for Gaussian noise and
            μ-GDP, the influence of one record on the mean, divided by C and μ.
        horizon: T.
        norm_share: Of a round.
    """

    noise: float
    horizon: int
    norm_share: float

    def __post_init__(self) -> None:
        require_positive(noise=self.noise)
        require_count(horizon=self.horizon)
        require_open_unit(norm_share=self.norm_share)

    def around(self, dimension: int) -> Surroundings:
        """The public numbers of this allowance, for a model of ``dimension`` coordinates."""
        return Surroundings(
            dimension=dimension,
            horizon=self.horizon,
            gradient_noise=self.noise * sqrt(self.horizon / (1 - self.norm_share)),
            norm_noise=self.noise * sqrt(self.horizon / self.norm_share),
        )

    def cost(self, noise: Tensor) -> Tensor:
        """Cost of a round with gradient noise of ``noise`` times the reference; the budget is T.

        In rounds of the reference: 1 for ``noise`` = 1.
        """
        return self.norm_share + (1 - self.norm_share) * noise**-2


class Position(NamedTuple):
    """The position of the runs between two steps.

    Attributes:
        theta: Models, (runs, d).
        state: What the protector remembers.
        spent: In rounds of the reference, (runs,).
        step: How many steps were made.
    """

    theta: Tensor
    state: State
    spent: Tensor
    step: int

    def detached(self) -> Position:
        """Without its past: where an unroll is truncated."""
        return Position(self.theta.detach(), self.state.detached(), self.spent.detach(), self.step)


class Trace(NamedTuple):
    """The trace of a segment, (steps, runs) each; differentiable.

    Attributes:
        loss: Logarithm of the loss after each step.
        cost: Of each step.
    """

    loss: Tensor
    cost: Tensor


def beginning(
    protector: Protector, task: AuxiliaryTask, *, runs: int, generator: torch.Generator
) -> Position:
    """The first position: fresh models, nothing spent."""
    return Position(
        theta=task.start(runs, generator),
        state=protector.start(task.dimension, runs=runs),
        spent=torch.zeros(runs),
        step=0,
    )


def unroll(
    protector: Protector,
    task: AuxiliaryTask,
    allowance: Allowance,
    position: Position,
    *,
    steps: int,
    generator: torch.Generator,
    minibatch: int | None = None,
) -> tuple[Position, Trace]:
    """Unroll ``steps`` steps of learning, on all records of the task or on minibatches.

    With ``minibatch``, every step sees that many records, drawn anew, and its loss is measured on
    the records of the next step, which did not influence it.

    Derivatives reach the protector through its own answers and through the noise that it chose.
    The gradient of the problem is taken as a constant: its own derivative, a second derivative of
    the loss, is dropped (Andrychowicz et al. 2016).
    """
    around = allowance.around(task.dimension)
    theta, state, spent, first = position
    losses, costs = [], []

    def seen() -> AuxiliaryTask:
        return task if minibatch is None else task.sample(minibatch, generator)

    look = seen().look(theta)
    for step in range(first, first + steps):
        elapsed = min(1.0, step / allowance.horizon)
        norm = look.clipped.norm(dim=1)
        norm = norm + around.norm_noise * torch.randn(norm.shape, generator=generator)
        left = (1 - spent.detach() / allowance.horizon).clamp(min=0)
        noise, state = protector.schedule(
            norm, elapsed=elapsed, left=left, around=around, state=state
        )
        drawn = torch.randn(theta.shape, generator=generator)
        noisy = look.clipped + around.gradient_noise * noise[:, None] * drawn
        move, state = protector.project(
            noisy + look.pull, noise=noise, elapsed=elapsed, around=around, state=state
        )
        theta = theta + move
        cost = allowance.cost(noise)
        spent = spent + cost
        look = seen().look(theta)
        losses.append(_log_loss(look.loss, look.slope, theta))
        costs.append(cost)
    trace = Trace(torch.stack(losses), torch.stack(costs))
    return Position(theta, state, spent, first + steps), trace


def _log_loss(loss: Tensor, slope: Tensor, theta: Tensor) -> Tensor:
    """ln f, with the derivative that was computed already: ⟨∇f, dθ⟩/f."""
    through = (slope * theta).sum(1)
    return loss.log() + (through - through.detach()) / loss
