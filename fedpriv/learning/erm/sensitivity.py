"""Sensitivity of a minimiser, 2G/(nλ): how far one record can move it, and for which losses.

The theorem behind output perturbation, stated once; `solver` computes the minimisers.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor

from fedpriv._validate import require_non_negative

if TYPE_CHECKING:
    from fedpriv.learning.losses import Loss

Number = TypeVar("Number", float, Tensor)


def require_lipschitz_minimiser(
    loss: Loss, strong_convexity: float, *, headroom: float = 1.0
) -> None:
    """Refuse a loss whose G is not known to hold at the minimiser of (1/n)Σf + (Λ/2)‖θ‖².

    Either it holds everywhere, or no minimiser of at most ``headroom``·n records lies outside its
    domain: (Λ/2)‖θ*‖² ≤ J(0) grows with their number.
    """
    needed = sqrt(headroom) * loss.minimiser_radius(strong_convexity)
    if not needed <= loss.domain_radius * (1 + 2.0**-40):  # rounding of the two roots
        raise ValueError(
            f"radius must be at least √headroom·label_bound/√regulariser = {needed:g} for it to "
            f"lie in the domain of {type(loss).__name__}, got {loss.domain_radius:g}: beyond it "
            "one record can move the minimiser by more than is accounted for."
        )


def minimiser_sensitivity(
    loss: Loss,
    *,
    feature_bound: float,
    records: Number,
    strong_convexity: Number,
    tolerance: float,
    headroom: float = 1.0,
    changes: int = 2,
) -> Number:
    """How far ``changes`` members of a sum move a minimiser known to a norm of ``tolerance``.

    A member is a record, or a person whose records count as their mean. A replacement is two
    changes (one member leaves, another joins): 2G/(nΛ) + 2·tolerance/Λ in L2. The gradients of the
    two objectives differ by at most 2G/n at either minimiser, so by strong convexity these lie
    within 2G/(nΛ) of one another, and each computed point within tolerance/Λ of its own (Chaudhuri,
    Monteleoni and Sarwate 2011, and the triangle inequality). Each change moves the gradients by
    G/n, hence G/(nΛ) + 2·tolerance/Λ for a member that joins or leaves.

    Assumes the same n and the same linear term on both sides, so that n is a declared number where
    records join and leave; and at most ``headroom``·n records, which matters where G holds inside a
    ball only.

    Raises:
        ValueError: G is not known to hold at the minimisers.
    """
    require_non_negative(tolerance=tolerance)
    for name, value in (("records", records), ("strong_convexity", strong_convexity)):
        # In float64: by default a float becomes a float32 here, and 0.01 less than its value.
        if not bool(torch.all(torch.as_tensor(value, dtype=torch.float64) > 0)):
            raise ValueError(f"{name} must be positive, got {value!r}.")
    least = float(torch.as_tensor(strong_convexity, dtype=torch.float64).min())
    require_lipschitz_minimiser(loss, least, headroom=headroom)
    lipschitz = loss.lipschitz_for(feature_bound)
    return (changes * lipschitz / records + 2 * tolerance) / strong_convexity
