"""Losses of two classes, -1 and +1: logistic, and the hinge with a rounded kink."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from fedpriv._validate import require_positive
from fedpriv.learning.losses.loss import UNIT_ROUNDOFF, Loss


class MarginLoss(Loss):
    """A loss of the margin y·score, y in {-1, +1}."""

    __slots__ = ()

    def check_labels(self, y: Tensor) -> None:
        """Refuse labels other than -1 and +1."""
        if not bool((y.abs() == 1).all()):
            raise ValueError("labels must be -1 or +1; map {0, 1} by 2y - 1.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Logistic(MarginLoss):
    """ℓ = ln(1 + exp(-y·score)): G = 1, smoothness 1/4."""

    @property
    def lipschitz(self) -> float:
        """1: the slope is minus a probability."""
        return 1.0

    @property
    def domain_radius(self) -> float:
        """Infinite: G holds for every θ."""
        return inf

    @property
    def one_sided(self) -> bool:
        """True: it falls with the margin, at every score."""
        return True

    @property
    def smoothness(self) -> float:
        """1/4: p(1 - p) at p = 1/2."""
        return 0.25

    def value(self, score: Tensor, y: Tensor) -> Tensor:
        """-ln σ(y·score)."""
        return -logsigmoid(y.to(score.dtype) * score)

    def slope(self, score: Tensor, y: Tensor) -> Tensor:
        """-y·σ(-y·score)."""
        y = y.to(score.dtype)
        return -y * torch.sigmoid(-y * score)

    def curvature(self, score: Tensor, y: Tensor) -> Tensor:
        """σ(score)·σ(-score), whatever the label."""
        tail = torch.sigmoid(-score.abs())
        return tail * (1 - tail)


@dataclass(frozen=True, slots=True, kw_only=True)
class HuberHinge(MarginLoss):
    """The hinge max(0, 1 - z), z = y·score, with its kink rounded over |1 - z| ≤ h: an SVM.

    ℓ = 0 for z > 1 + h, (1 + h - z)²/(4h) for |1 - z| ≤ h, and 1 - z below: G = 1, smoothness
    1/(2h) (the Huber SVM of Chaudhuri, Monteleoni and Sarwate 2011). One derivative everywhere,
    two everywhere but at z = 1 ± h.
    """

    smoothing: float

    def __post_init__(self) -> None:
        require_positive(smoothing=self.smoothing)

    @property
    def lipschitz(self) -> float:
        """1: the slope of the hinge."""
        return 1.0

    @property
    def domain_radius(self) -> float:
        """Infinite: G holds for every θ."""
        return inf

    @property
    def one_sided(self) -> bool:
        """True: the hinge falls with the margin, and is then zero."""
        return True

    @property
    def smoothness(self) -> float:
        """1/(2h)."""
        return 0.5 / self.smoothing

    @property
    def slope_rounding(self) -> float:
        """Cancellation in 1 + h - z, which only matters while |1 - z| ≤ h."""
        return 2 * UNIT_ROUNDOFF * (2 + (2 + self.smoothing) / self.smoothing)

    def value(self, score: Tensor, y: Tensor) -> Tensor:
        """The rounded hinge at y·score: max over t in [0, 1] of t(1 + h - z) - ht²."""
        margin = y.to(score.dtype) * score
        bend = self._bend(margin)  # the maximising t; so autograd is right at both ends, too
        return bend * (1 + self.smoothing - margin - self.smoothing * bend)

    def slope(self, score: Tensor, y: Tensor) -> Tensor:
        """-y on the straight part, fading to 0 across the bend."""
        y = y.to(score.dtype)
        return -y * self._bend(y * score)

    def curvature(self, score: Tensor, y: Tensor) -> Tensor:
        """1/(2h) on the bend, its ends included, else 0."""
        margin = y.to(score.dtype) * score
        return ((1 - margin).abs() <= self.smoothing).to(score.dtype) * self.smoothness

    def _bend(self, margin: Tensor) -> Tensor:
        """How far into the bend: 0 beyond margin 1 + h, 1 below 1 - h."""
        return ((1 + self.smoothing - margin) / (2 * self.smoothing)).clamp(0, 1)
