"""Certificates of minimisers: a bound on ‖∇J‖₂ that counts its own rounding errors.

The privacy of output perturbation relies on ‖∇J(θ)‖ ≤ tolerance for the θ that is returned. So the
norm is evaluated afresh at θ in float64, and a bound on all float64 rounding is added: the
certificate holds in exact arithmetic for the records as given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from fedpriv.learning.erm.batch import ErmBatch
    from fedpriv.learning.erm.sensitivity import Number
    from fedpriv.learning.losses import Loss

_U = 2.0**-53
# More than squares and products that vanish can hide in a norm of 2⁷⁰ coordinates: √(2⁷⁰·2⁻¹⁰⁷⁴).
_VANISHING = 2.0**-500
# Roundings of a slope beside those of its evaluation and of the sum, with some to spare.
_SINGLE = 10


class ToleranceNotReachedError(RuntimeError):
    """No minimiser could be certified, so nothing is returned, not even an approximation.

    Attributes:
        parties: The indices of the parties concerned; empty for a joint problem.
    """

    def __init__(self, tolerance: float, parties: tuple[int, ...] = ()) -> None:
        self.parties = parties
        self._arguments = tolerance, parties
        shown = ", ".join(map(str, parties[:5])) + (", …" if len(parties) > 5 else "")
        where = f" for {len(parties)} parties (index {shown})" if parties else ""
        super().__init__(
            f"no minimiser with a gradient norm of at most tolerance = {tolerance:g} was "
            f"certified{where}; nothing is returned. Use a larger tolerance or regulariser, or "
            "more iterations."
        )

    def __reduce__(self) -> tuple[type[ToleranceNotReachedError], tuple[float, tuple[int, ...]]]:
        return type(self), self._arguments  # it can cross from one process to another


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Certificate:
    """A certificate: proof of accuracy for every party.

    Attributes:
        gradient_norm: (m,): an upper bound on ‖∇J_j(θ_j)‖₂ in exact arithmetic, ≤ ``tolerance``.
            θ_j is the point found, before the projection onto the ball of ``radius``.
        tolerance: What was asked for.
        iterations: (m,): Newton steps used.
        sensitivity: (m,): 2G/(n_jΛ_j) + 2·tolerance/Λ_j, the L2 sensitivity of the *projected*
            point under replace-one adjacency, n_j the divisor: the projection is 1-Lipschitz, so
            the bound for the point found survives it.
        radius: (m,): G/Λ_j.
    """

    gradient_norm: Tensor
    tolerance: float
    iterations: Tensor
    sensitivity: Tensor
    radius: Tensor


def gradient_norm_bound(batch: ErmBatch, theta: Tensor) -> Tensor:
    """An upper bound on ‖∇J_j(θ_j)‖₂ in exact arithmetic, (m,).

    With γ_k = ku/(1 - ku), u = 2⁻⁵³, and sums in any order (Higham 2002, ch. 3): a score is off by
    at most γ_d‖x‖‖θ‖, hence a slope by c·γ_d‖x‖‖θ‖ plus its own evaluation error; a sum of n terms
    slope·x by γ_n Σ|slope|‖x‖; the rest are single operations, a weight and its product among
    them. What underflows is less than `_VANISHING`. Assumes ‖x‖ ≤ B and elementary functions to 2
    ulp. The number of terms is the true one, the divisor the public one.
    """
    loss, bound = batch.loss, batch.feature_bound
    slopes = batch.slopes(batch.scores(theta))
    gradient = batch.gradient(theta, slopes)
    norm = torch.linalg.vector_norm(gradient, dim=(1, 2))
    theta_norm = torch.linalg.vector_norm(theta, dim=(1, 2))
    pull = batch.strong_convexity * theta_norm
    if batch.linear is not None:
        pull = pull + torch.linalg.vector_norm(batch.linear, dim=(1, 2))
    _, k, d = batch.shape
    # Filling has slopes as well, but no part in the sum: the bound must not grow with it.
    steepness = torch.linalg.vector_norm(slopes, dim=1).where(batch.real(), 0.0)
    slope = batch.mean(steepness.unsqueeze(1))
    each = loss.smoothness * _gamma(d) * bound * theta_norm + loss.slope_rounding
    slope_error = each * (batch.members / batch.counts) + _SINGLE * _U * slope
    error = bound * (slope_error + _gamma(batch.sizes + 8) * slope) + 8 * _U * pull + _VANISHING
    total: Tensor = (norm * (1 + _gamma(k * d + 8)) + error) * (1 + 64 * _U)
    return total


def certain_tolerance(
    loss: Loss,
    *,
    feature_bound: float,
    strong_convexity: float,
    records: int,
    features: int,
    linear: float = 0.0,
    headroom: float = 1.0,
) -> float:
    """A tolerance that is certified for all records; below it, success depends on the records.

    Four times the largest error that `gradient_norm_bound` adds, at ‖θ‖ = (rG + ‖b‖/n)/Λ, which no
    minimiser of r·n records exceeds, and at the steepest slopes. The solver stops at a computed
    gradient norm of half the tolerance; that is then above the errors of its own computation, and
    the certificate is below the tolerance. There Λ‖θ‖ + ‖b‖/n, whose rounding counts too, is at
    most rG + 2‖b‖/n.

    Args:
        loss: Of a record.
        feature_bound: B.
        strong_convexity: Λ.
        records: n, the divisor of the objective, or more: r·n of them are added up at most.
        features: d.
        linear: A bound on ‖b‖/n, of the linear term of the objective.
        headroom: r ≥ 1: there are at most r·n records.

    Assumes that the solver gets there within its iteration limit, which no theorem promises: it
    needs a few iterations for smooth losses, hundreds for a loss with a sharp bend and unfavourable
    records.
    """
    reach = headroom * loss.lipschitz_for(feature_bound)
    slope = reach / feature_bound
    theta_norm = (reach + linear) / strong_convexity
    slope_error = (
        headroom
        * (loss.smoothness * _gamma(features) * feature_bound * theta_norm + loss.slope_rounding)
        + _SINGLE * _U * slope
    )
    error = feature_bound * (slope_error + _gamma(headroom * records + 8) * slope)
    error += 8 * _U * (reach + 2 * linear) + _VANISHING
    return 4 * error


def project(theta: Tensor, radius: Tensor) -> Tensor:
    """Project every θ_j of (m, k, d) onto a ball, so that ‖θ_j‖₂ in float64 is at most radius_j.

    The ball is smaller than ``radius`` by a few ulp, for all θ alike, so this is a projection onto
    a fixed convex set, and 1-Lipschitz, up to the rounding of its result.
    """
    norm = torch.linalg.vector_norm(theta, dim=(1, 2))
    inner = radius * (1 - 2 * _gamma(theta[0].numel() + 8))
    factor = torch.where(norm > inner, inner / norm, 1.0)
    return theta * factor.view(-1, 1, 1)


def _gamma(k: Number) -> Number:
    """γ_k = ku/(1 - ku), the relative error of k roundings in a row, bounded for k ≤ 0.009/u."""
    return k * (1.01 * _U)
