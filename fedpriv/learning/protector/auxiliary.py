"""Auxiliary tasks: public problems to train a protector on, in units of ‖x‖ ≤ 1 and of C."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from fedpriv._validate import require_non_negative, require_positive

if TYPE_CHECKING:
    from fedpriv.learning.losses import Loss


class Look(NamedTuple):
    """Loss and gradients of a problem at the models of several runs.

    Attributes:
        loss: Mean loss of each run, with the regulariser, (runs,).
        slope: Its exact gradient, (runs, d).
        clipped: Mean clipped gradient over the clip norm, (runs, d): at most one long.
        pull: Gradient of the regulariser over the clip norm, (runs, d): neither clipped nor noised.
    """

    loss: Tensor
    slope: Tensor
    clipped: Tensor
    pull: Tensor


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AuxiliaryTask:
    """An auxiliary task: public records for a linear model with one score.

    With `Logistic` it is logistic regression, with `HuberHinge` a support vector machine, and with
    `Squared` a quadratic problem; `NetworkTask` is a perceptron.

    Attributes:
        features: (n, d), each row at most one long.
        labels: (n,).
        loss: Of a score.
        clip_norm: C, for features of at most one.
        regulariser: λ of (λ/2)‖θ‖², for features of at most one.
    """

    features: Tensor
    labels: Tensor
    loss: Loss
    clip_norm: float
    regulariser: float = 0.0

    def __post_init__(self) -> None:
        require_positive(clip_norm=self.clip_norm)
        require_non_negative(regulariser=self.regulariser)
        if self.loss.outputs != 1:
            raise ValueError(
                f"loss must have one score per record, got {type(self.loss).__name__} with "
                f"{self.loss.outputs}."
            )
        if not float(torch.linalg.vector_norm(self.features, dim=1).max()) <= 1 + 1e-6:
            raise ValueError("features must be at most one long: divide them by their bound.")

    @property
    def dimension(self) -> int:
        """d."""
        return self.features.shape[1]

    def sample(self, records: int, generator: torch.Generator) -> AuxiliaryTask:
        """The problem of ``records`` of the records, or of all if there are no more."""
        n = len(self.labels)
        if records >= n:
            return self
        chosen = torch.randperm(n, generator=generator)[:records]
        return replace(self, features=self.features[chosen], labels=self.labels[chosen])

    def start(self, runs: int, generator: torch.Generator) -> Tensor:
        """Models to start from, (runs, d): zero, as a linear model does."""
        return torch.zeros(runs, self.dimension)

    def scores(self, theta: Tensor) -> Tensor:
        """Scores of every record by every model, (n, runs)."""
        return self.features @ theta.T

    def look(self, theta: Tensor) -> Look:
        """Loss and gradients at the models ``theta``, (runs, d)."""
        with torch.no_grad():
            n, runs = len(self.labels), len(theta)
            scores = self.scores(theta)
            labels = self.labels[:, None]
            slopes = self.loss.slope(scores, labels)
            lengths = torch.linalg.vector_norm(self.features, dim=1)[:, None] * slopes.abs()
            clipped = slopes / lengths.clamp(min=self.clip_norm)
            both = (torch.cat((slopes, clipped), dim=1).T @ self.features) / n
            pull = self.regulariser * theta
            loss = self.loss.value(scores, labels).mean(0) + (pull * theta).sum(1) / 2
            return Look(loss, both[:runs] + pull, both[runs:], pull / self.clip_norm)

    def accuracy(self, theta: Tensor) -> Tensor:
        """Share of right signs, (runs,)."""
        with torch.no_grad():
            right = torch.sign(self.scores(theta)) == self.labels[:, None]
            return right.to(torch.float32).mean(0)
