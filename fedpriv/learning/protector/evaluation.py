"""Evaluation of a protector on a public problem, run as it will be used: until all is spent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fedpriv.learning.protector.unroll import beginning, unroll

if TYPE_CHECKING:
    from torch import Tensor

    from fedpriv.learning.protector.auxiliary import AuxiliaryTask
    from fedpriv.learning.protector.protector import Protector
    from fedpriv.learning.protector.unroll import Allowance

_ROUNDING = 1 + 1e-6  # float32 sums of costs: a last round must not be lost to them


def final_models(
    protector: Protector,
    task: AuxiliaryTask,
    allowance: Allowance,
    *,
    runs: int,
    generator: torch.Generator,
) -> Tensor:
    """The models that ``runs`` runs end with, (runs, d): each after the last step it can pay for.

    Every round costs something, whatever the protector chooses, so that this ends.
    """
    position = beginning(protector, task, runs=runs, generator=generator)
    final, active = position.theta, torch.ones(runs, dtype=torch.bool)
    with torch.no_grad():
        while bool(active.any()):
            position, _ = unroll(protector, task, allowance, position, steps=1, generator=generator)
            active = active & (position.spent <= allowance.horizon * _ROUNDING)
            final = torch.where(active[:, None], position.theta, final)
    return final
