"""The protector: a scheduler that chooses noise, and a projector that turns it into a step.

Both see releases only: noisy norms, noisy gradients, and public numbers. Nothing here knows what
privacy is; whoever uses a protector charges for what it chooses.

Units, so that one protector serves many problems. Gradients are means over records, divided by the
clip norm C. Parameters are in units of 1/B, B being the bound on features. Noise is relative to the
reference: that of T rounds alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, sqrt
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from fedpriv._validate import require_count, require_positive
from fedpriv.learning.protector.network import CoordinateLstm, Memory, seeded

LEAST_NOISE, MOST_NOISE = 0.25, 2.0
"""The range of a scheduler, relative to the reference."""

OUTPUT_SCALE = 0.05
"""How far a projector output of 1 moves a parameter."""

FIRST_GATE = 1.0
"""The factor on a gradient, over its root mean square, that a gated projector starts with."""

Number = TypeVar("Number", float, Tensor)
_WIDEST = 5.0  # a coordinate of a gradient, in its own root mean squares: the rest is an outlier


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Public facts that a protector receives once, in the units of this module.

    Attributes:
        dimension: Coordinates of the model.
        horizon: T, for how many rounds the budget is meant to last.
        gradient_noise: Standard deviation on a coordinate of the mean gradient at the reference.
        norm_noise: Standard deviation on the norm of the mean gradient.
    """

    dimension: int
    horizon: int
    gradient_noise: float
    norm_noise: float

    def __post_init__(self) -> None:
        require_count(dimension=self.dimension, horizon=self.horizon)
        require_positive(gradient_noise=self.gradient_noise, norm_noise=self.norm_noise)


class State(NamedTuple):
    """The state of a protector between rounds: functions of releases alone."""

    scheduler: Memory
    projector: Memory

    def detached(self) -> State:
        """The same numbers without their past."""
        return State(self.scheduler.detached(), self.projector.detached())


class Protector(torch.nn.Module):
    """Scheduler σ(·) and projector π(·) of L2P (Hong, Wang, Wang and Zhou 2021).

    A *gated* projector answers twice: a step of its own, and a factor on the noisy gradient, which
    is added to it. The networks squash what they see, and a squashed sum of noisy gradients has
    more noise than the sum; through the gate it passes as it is. It starts as plain gradient
    descent, at `FIRST_GATE`, where one without a gate starts from not moving at all.
    """

    def __init__(self, *, gated: bool = False) -> None:
        super().__init__()
        self.scheduler = CoordinateLstm(features=5, outputs=1)
        self.projector = CoordinateLstm(features=5, outputs=2 if gated else 1)

    @property
    def gated(self) -> bool:
        """Whether the projector answers with a factor on the gradient, too."""
        return self.projector.readout.out_features == 2

    def seeded(self, generator: torch.Generator) -> Protector:
        """Itself, as a training starts with it."""
        seeded(self.scheduler, generator)
        seeded(self.projector, generator)
        if self.gated:
            with torch.no_grad():
                self.projector.readout.bias[1] = FIRST_GATE
        return self

    def start(self, dimension: int, *, runs: int = 1) -> State:
        """Before the first round of ``runs`` runs at once."""
        return State(self.scheduler.start(runs), self.projector.start(runs * dimension))

    def schedule(
        self, norm: Tensor, *, elapsed: float, left: Tensor, around: Surroundings, state: State
    ) -> tuple[Tensor, State]:
        """The noise of a round, relative to the reference, within (0.25, 2).

        Args:
            norm: Noisy norm of the mean gradient of every run, (runs,).
            elapsed: Share of the horizon that is over.
            left: Share of the budget that is left, (runs,).
            around: The public numbers.
            state: From the round before.
        """
        seen = norm.clamp(0.0, 1.0)  # clipped gradients have a mean of at most one
        rows = torch.stack(
            (
                seen / (seen + around.norm_noise),
                _logarithm(seen + around.norm_noise),
                torch.full_like(seen, elapsed),
                left,
                torch.full_like(seen, _scaled(log(around.gradient_noise))),
            ),
            dim=1,
        )
        answer, memory = self.scheduler(rows, state.scheduler)
        noise = LEAST_NOISE + (MOST_NOISE - LEAST_NOISE) * torch.sigmoid(answer[:, 0])
        return noise, state._replace(scheduler=memory)

    def project(
        self,
        gradient: Tensor,
        *,
        noise: Tensor,
        elapsed: float,
        around: Surroundings,
        state: State,
    ) -> tuple[Tensor, State]:
        """How to move the model, (runs, dimension).

        Args:
            gradient: Noisy mean gradient of every run, (runs, dimension).
            noise: What `schedule` chose for it, (runs,).
            elapsed: Share of the horizon that is over.
            around: The public numbers.
            state: As `schedule` left it.
        """
        size = gradient.norm(dim=1, keepdim=True) / sqrt(around.dimension) + 1e-12
        relative = (gradient / size).clamp(-_WIDEST, _WIDEST)
        rows = torch.stack(
            (
                relative,
                _logarithm(size).expand_as(gradient),
                torch.full_like(gradient, elapsed),
                noise.log()[:, None].expand_as(gradient),
                torch.full_like(gradient, _scaled(log(around.gradient_noise))),
            ),
            dim=2,
        )
        answer, memory = self.projector(rows.flatten(0, 1), state.projector)
        step = answer[:, 0].reshape(gradient.shape)
        if self.gated:
            step = step + answer[:, 1].reshape(gradient.shape) * relative
        return -OUTPUT_SCALE * step, state._replace(projector=memory)


def _logarithm(value: Tensor) -> Tensor:
    return _scaled(value.log())


def _scaled(logarithm: Number) -> Number:
    """Order one for noise between 1/1000 and 1."""
    return logarithm / 4 + 1
