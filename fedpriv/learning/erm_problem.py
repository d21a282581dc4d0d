"""Regularised empirical risk minimisation at m parties: the problems, and what they promise.

Party j holds n_j records (x, y) and wants the minimiser of

    J_j(θ) = (1/n_j) Σ f(θ; x, y) + (λ/2)‖θ‖² [+ bⱼᵀθ/n_j + (Δ_j/2)‖θ‖²],

where the bracket serves objective perturbation. J_j is Λ_j-strongly convex, Λ_j = λ + Δ_j.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from fedpriv._validate import require_non_negative, require_positive
from fedpriv.learning.losses import Loss, Squared

Number = TypeVar("Number", float, Tensor)

_UNIT_ROUNDOFF = 2.0**-53


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ErmProblem:
    """The problems of m parties, their records stacked: party j owns offsets[j] … offsets[j+1]-1.

    Refused here, because the sensitivity of the minimiser rests on it: a record with
    ‖x‖₂ > ``feature_bound`` (the intercept counts as a feature, and is regularised like one),
    a label outside the loss's domain, a party without records.

    Attributes:
        features: (N, d), float32 or float64; solved in float64.
        labels: (N,).
        offsets: (m+1,) integers from 0 to N, strictly increasing; [0, N] for one party.
        loss: Any `Loss`.
        regulariser: λ > 0.
        feature_bound: B, the public bound on ‖x‖₂.
        linear: bⱼ as rows (m, d), or (m, k, d) for k classes; None means zero.
        extra_regulariser: Δ_j ≥ 0, shape (m,); None means zero.
    """

    features: Tensor
    labels: Tensor
    offsets: Tensor
    loss: Loss
    regulariser: float
    feature_bound: float = 1.0
    linear: Tensor | None = None
    extra_regulariser: Tensor | None = None

    def __post_init__(self) -> None:
        require_positive(regulariser=self.regulariser, feature_bound=self.feature_bound)
        _check_records(self.features, self.labels, self.feature_bound)
        self.loss.check_labels(self.labels)
        _check_offsets(self.offsets, len(self.labels))
        _check_optional("extra_regulariser", self.extra_regulariser, (self.parties,))
        if self.extra_regulariser is not None and bool((self.extra_regulariser < 0).any()):
            raise ValueError("extra_regulariser must be at least 0 for every party.")
        shape = (self.parties, self.loss.outputs, self.features.shape[1])
        _check_optional("linear", self.linear, shape if self.loss.outputs > 1 else shape[::2])
        self._check_domain()

    @property
    def parties(self) -> int:
        """The number m of parties."""
        return len(self.offsets) - 1

    @property
    def sizes(self) -> Tensor:
        """The number n_j of records of every party."""
        return self.offsets.diff()

    @property
    def strong_convexity(self) -> Tensor:
        """Λ_j = λ + Δ_j, shape (m,)."""
        base = torch.full((self.parties,), self.regulariser, dtype=torch.float64)
        return base if self.extra_regulariser is None else base + self.extra_regulariser

    @property
    def lipschitz(self) -> float:
        """G for this loss and feature bound."""
        return self.loss.lipschitz_for(self.feature_bound)

    @property
    def radius(self) -> Tensor:
        """G/Λ_j: no minimiser of an unperturbed problem is longer, since Λθ* = -mean gradient."""
        return self.lipschitz / self.strong_convexity

    def sensitivity(self, tolerance: float) -> Tensor:
        """`minimiser_sensitivity` of every party, (m,)."""
        return minimiser_sensitivity(
            lipschitz=self.lipschitz,
            records=self.sizes.to(torch.float64),
            strong_convexity=self.strong_convexity,
            tolerance=tolerance,
        )

    def _check_domain(self) -> None:
        """Refuse the squared loss where a minimiser could leave the domain its G is stated for."""
        if not isinstance(self.loss, Squared):
            return
        if self.linear is not None:
            raise ValueError(
                "linear must be None for the squared loss, whose minimiser a linear term can "
                "push out of the bounded domain; use HuberRegression."
            )
        needed = self.loss.label_bound / self.strong_convexity.min().sqrt().item()
        if self.loss.radius < needed:
            raise ValueError(
                f"radius must be at least label_bound/√regulariser = {needed:g} for the "
                f"minimiser to lie in the squared loss's domain, got {self.loss.radius:g}."
            )


def minimiser_sensitivity(
    *, lipschitz: float, records: Number, strong_convexity: Number, tolerance: float
) -> Number:
    """How far replacing one record moves a minimiser known to a gradient norm of ``tolerance``.

    2G/(nΛ) + 2·tolerance/Λ in L2: the gradients of the two objectives differ by at most 2G/n at
    any point, so by strong convexity their minimisers lie within 2G/(nΛ) of one another, and
    each computed point within tolerance/Λ of its own (Chaudhuri, Monteleoni and Sarwate 2011,
    and the triangle inequality). Assumes the same n and the same linear term on both sides.
    """
    require_positive(lipschitz=lipschitz)
    require_non_negative(tolerance=tolerance)
    for name, value in (("records", records), ("strong_convexity", strong_convexity)):
        if not bool(torch.all(torch.as_tensor(value) > 0)):
            raise ValueError(f"{name} must be positive, got {value!r}.")
    return 2 * (lipschitz / records + tolerance) / strong_convexity


def _check_records(features: Tensor, labels: Tensor, feature_bound: float) -> None:
    if features.ndim != 2 or features.dtype not in (torch.float32, torch.float64):
        raise ValueError(
            "features must be a float32 or float64 matrix (records, coordinates), "
            f"got {features.dtype} of shape {tuple(features.shape)}."
        )
    if labels.shape != features.shape[:1]:
        raise ValueError(
            f"labels must have one entry a record, shape {tuple(features.shape[:1])}, "
            f"got {tuple(labels.shape)}."
        )
    norms = torch.linalg.vector_norm(features, dim=1, dtype=torch.float64)
    slack = 1 + (features.shape[1] + 4) * _UNIT_ROUNDOFF
    if not bool((norms <= feature_bound * slack).all()):
        raise ValueError(
            f"features must be finite with row norms of at most feature_bound = {feature_bound:g}; "
            "append the intercept first, then scale rows down by max(1, norm / feature_bound), "
            "the norm taken in float64."
        )


def _check_offsets(offsets: Tensor, records: int) -> None:
    if offsets.ndim != 1 or offsets.is_floating_point() or len(offsets) < 2:
        raise ValueError("offsets must be a vector of at least two integers.")
    if int(offsets[0]) != 0 or int(offsets[-1]) != records:
        raise ValueError(
            f"offsets must run from 0 to the number of records, {records}, "
            f"got {int(offsets[0])} to {int(offsets[-1])}."
        )
    if not bool((offsets.diff() > 0).all()):
        raise ValueError("offsets must strictly increase: a party without records has no problem.")


def _check_optional(name: str, value: Tensor | None, shape: tuple[int, ...]) -> None:
    if value is None:
        return
    if tuple(value.shape) != shape or not bool(torch.isfinite(value).all()):
        raise ValueError(f"{name} must be finite, of shape {shape}, got {tuple(value.shape)}.")
