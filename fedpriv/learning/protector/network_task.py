"""Auxiliary tasks of a perceptron: public records for a network with one score.

A protector treats all coordinates alike and in units of their own, so one trained only on convex
problems runs on a network, too. But the steps that it learned there do not suit layers whose
gradients differ by orders of magnitude.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from fedpriv.learning.batch import RecordBatch
from fedpriv.learning.clipping.factors import weighted_sums
from fedpriv.learning.protector.auxiliary import AuxiliaryTask, Look

if TYPE_CHECKING:
    from fedpriv.learning.models import MlpModel


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NetworkTask(AuxiliaryTask):
    """An auxiliary task: public records for a multi-layer perceptron with one score.

    Every run starts from random weights of its own. The clip norm bounds the gradient of a record
    over all layers together, as it will where the protector is used.

    Attributes:
        model: From the features to one score.
    """

    model: MlpModel

    def __post_init__(self) -> None:
        super(NetworkTask, self).__post_init__()  # slots: the short form has lost its class
        if (self.model.features, self.model.outputs) != (self.features.shape[1], 1):
            raise ValueError(
                f"model must have {self.features.shape[1]} features, as the records, and one "
                f"score, got widths {self.model.widths}."
            )

    @property
    def dimension(self) -> int:
        """All weights and biases."""
        return self.model.dimension

    def start(self, runs: int, generator: torch.Generator) -> Tensor:
        """Random weights, different for every run."""
        seeds = torch.randint(2**62, (runs,), generator=generator).tolist()
        weights = [self.model.initial(np.random.default_rng(seed)) for seed in seeds]
        return torch.stack(weights).to(self.features.dtype)

    def scores(self, theta: Tensor) -> Tensor:
        """Scores of every record by every network, (n, runs)."""
        return torch.stack([self.model.scores(one, self.features) for one in theta], dim=1)

    def look(self, theta: Tensor) -> Look:
        """Loss and gradients at the models ``theta``, (runs, d), network by network."""
        with torch.no_grad():
            batch = RecordBatch(features=self.features, labels=self.labels)
            exact, clipped = zip(*(self._gradients(one, batch) for one in theta), strict=True)
            pull = self.regulariser * theta
            loss = self.loss.value(self.scores(theta), self.labels[:, None]).mean(0)
            return Look(
                loss + (pull * theta).sum(1) / 2,
                torch.stack(exact) + pull,
                torch.stack(clipped),
                pull / self.clip_norm,
            )

    def _gradients(self, theta: Tensor, batch: RecordBatch) -> tuple[Tensor, Tensor]:
        """Means of the gradients and of the clipped ones over C, from one pass."""
        factors = self.model.gradient_factors(theta, batch, self.loss)
        lengths = torch.stack([factor.squares() for factor in factors]).sum(0).sqrt()
        n = len(batch)

        def mean(weights: Tensor) -> Tensor:
            sums = weighted_sums(factors, weights.to(theta.dtype), batch.segments)
            return sums[0].to(theta.dtype) / n

        return mean(torch.ones_like(lengths)), mean(1 / lengths.clamp(min=self.clip_norm))
