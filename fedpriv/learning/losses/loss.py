"""What every loss states: its derivatives, and the constants G and c that privacy needs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import inf

import torch
from torch import Tensor

from fedpriv._validate import require_positive

UNIT_ROUNDOFF = torch.finfo(torch.float64).eps / 2


class Loss(ABC):
    """A convex loss of one score a record. Use a subclass."""

    __slots__ = ()

    @property
    def outputs(self) -> int:
        """Scores a record: 1, but for `Softmax`."""
        return 1

    @property
    @abstractmethod
    def lipschitz(self) -> float:
        """G: the largest gradient norm of one record with ‖x‖₂ ≤ 1, on the domain."""

    @property
    @abstractmethod
    def domain_radius(self) -> float:
        """G holds for all ‖θ‖₂ up to this; infinity means that the loss is Lipschitz everywhere."""

    @property
    @abstractmethod
    def smoothness(self) -> float:
        """c: the largest Hessian eigenvalue of one record with ‖x‖₂ ≤ 1."""

    @property
    def one_sided(self) -> bool:
        """Whether the slope of a record has one sign, whatever its score is: it may be zero.

        True for a decreasing loss of the margin y·score; objective perturbation then needs less
        noise. The default is False, which is always safe.
        """
        return False

    @property
    def slope_rounding(self) -> float:
        """R: a float64 ``slope`` is off by at most R + 8u·|slope| (u = 2⁻⁵³) at its score, in L2.

        Assumes elementary functions accurate to 2 ulp. Zero where no cancellation occurs.
        """
        return 0.0

    def lipschitz_for(self, feature_bound: float) -> float:
        """G when ‖x‖₂ ≤ ``feature_bound``."""
        require_positive(feature_bound=feature_bound)
        return self.lipschitz * feature_bound

    def smoothness_for(self, feature_bound: float) -> float:
        """The smoothness c when ‖x‖₂ ≤ ``feature_bound``."""
        require_positive(feature_bound=feature_bound)
        return self.smoothness * feature_bound**2

    def minimiser_radius(self, strong_convexity: float) -> float:
        """A bound on ‖θ*‖₂, θ* the minimiser of a mean of at most n losses, plus (Λ/2)‖θ‖².

        Infinite where no bound is known without assuming G, which would be circular. A linear term
        moves the minimiser further.
        """
        require_positive(strong_convexity=strong_convexity)
        return inf

    @abstractmethod
    def check_labels(self, y: Tensor) -> None:
        """Refuse labels outside the domain; the message names the rule, never a label."""

    @abstractmethod
    def value(self, score: Tensor, y: Tensor) -> Tensor:
        """ℓ(score, y)."""

    @abstractmethod
    def slope(self, score: Tensor, y: Tensor) -> Tensor:
        """dℓ/dscore."""

    @abstractmethod
    def curvature(self, score: Tensor, y: Tensor) -> Tensor:
        """d²ℓ/dscore²; at a kink of the slope, one of its one-sided values."""

    def curvature_product(self, score: Tensor, y: Tensor, direction: Tensor) -> Tensor:
        """The second derivative applied to a direction of the scores."""
        return self.curvature(score, y) * direction
