"""Regularised empirical risk minimisation at m parties: the problems and their guarantees.

Party j holds records (x, y) and wants the minimiser of

    J_j(θ) = (1/n_j) Σ f(θ; x, y) + (λ/2)‖θ‖² [+ bⱼᵀθ/n_j + (Δ_j/2)‖θ‖²],

where the bracket serves objective perturbation. J_j is Λ_j-strongly convex, Λ_j = λ + Δ_j. The
divisor n_j is a *public constant*: the number of records where that is public, and otherwise a
declared number, while the sum may have more records, fewer, or none. J_j is then (r_j·c +
Λ_j)-smooth, where r_j is the true number over n_j.

Where records come in groups, those of one person each, a group counts as one: f is then the *mean*
over its records, the sum runs over groups, and n_j and r_j count them. A group's gradient is no
longer than G, however many records it has, and whatever is proved of one record holds of a group.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isinf
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fedpriv._validate import require_positive
from fedpriv.learning.erm.sensitivity import minimiser_sensitivity, require_lipschitz_minimiser

if TYPE_CHECKING:
    from fedpriv.learning.losses import Loss

_UNIT_ROUNDOFF = 2.0**-53


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ErmProblem:
    """The problems of m parties, their records stacked: party j owns offsets[j] … offsets[j+1]-1.

    Refused here, because the sensitivity of the minimiser rests on it: a record with
    ‖x‖₂ > ``feature_bound`` (the intercept counts as a feature, and is regularised like one),
    a label outside the loss's domain, a loss whose G may fail at the minimiser.

    Attributes:
        features: (N, d), float32 or float64; solved in float64.
        labels: (N,).
        offsets: (m+1,) integers from 0 to N, not decreasing; [0, N] for one party.
        loss: Any `Loss`.
        regulariser: λ > 0.
        feature_bound: B, the public bound on ‖x‖₂.
        counts: (m,) integers of at least 1: n_j; None if the true numbers are public, and n_j.
        groups: (P+1,) integers from 0 to N, increasing: group i owns records groups[i] …
            groups[i+1]-1, all of one party. None means that every record is one.
        linear: bⱼ as rows (m, d), or (m, k, d) for k classes; None means zero.
        extra_regulariser: Δ_j ≥ 0, shape (m,); None means zero.
    """

    features: Tensor
    labels: Tensor
    offsets: Tensor
    loss: Loss
    regulariser: float
    feature_bound: float = 1.0
    counts: Tensor | None = None
    groups: Tensor | None = None
    linear: Tensor | None = None
    extra_regulariser: Tensor | None = None

    def __post_init__(self) -> None:
        require_positive(regulariser=self.regulariser, feature_bound=self.feature_bound)
        _check_records(self.features, self.labels, self.feature_bound)
        self.loss.check_labels(self.labels)
        _check_offsets(self.offsets, len(self.labels))
        if self.groups is not None:
            _check_groups(self.groups, self.offsets)
        _check_counts(self.divisors, self.parties)
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
        """How many records every party has. Private, unless they are the divisors."""
        return self.offsets.diff()

    @property
    def members(self) -> Tensor:
        """How many records, or groups of them, every party has: what its sum runs over."""
        if self.groups is None:
            return self.sizes
        return torch.searchsorted(self.groups, self.offsets).diff()

    @property
    def weights(self) -> Tensor | None:
        """One over the number of records of its group, for every record; None means 1."""
        if self.groups is None:
            return None
        sizes = self.groups.diff()
        return (1 / sizes.to(torch.float64)).repeat_interleave(sizes)

    @property
    def divisors(self) -> Tensor:
        """n_j of every party: public."""
        return self.members if self.counts is None else self.counts

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
        """G/Λ_j: no minimiser of at most n_j records is longer, since Λθ* = -(1/n_j)Σ∇f(θ*)."""
        return self.lipschitz / self.strong_convexity

    def sensitivity(self, tolerance: float) -> Tensor:
        """`minimiser_sensitivity` of every party, (m,)."""
        return minimiser_sensitivity(
            self.loss,
            feature_bound=self.feature_bound,
            records=self.divisors.to(torch.float64),
            strong_convexity=self.strong_convexity,
            tolerance=tolerance,
        )

    def _check_domain(self) -> None:
        """Refuse a loss where a minimiser could leave the domain that its G is stated for."""
        if isinf(self.loss.domain_radius):
            return
        if self.linear is not None:
            raise ValueError(
                f"linear must be None for {type(self.loss).__name__}, whose minimiser a linear "
                "term can push out of the bounded domain; use HuberRegression."
            )
        # In float64: a quotient of integers is a float32, and may be more than the headroom.
        excess = max(1.0, float((self.members.to(torch.float64) / self.divisors).max()))
        require_lipschitz_minimiser(self.loss, self.strong_convexity.min().item(), headroom=excess)


def _check_records(features: Tensor, labels: Tensor, feature_bound: float) -> None:
    if features.ndim != 2 or features.dtype not in (torch.float32, torch.float64):
        raise ValueError(
            "features must be a float32 or float64 matrix (records, coordinates), "
            f"got {features.dtype} of shape {tuple(features.shape)}."
        )
    if labels.shape != features.shape[:1]:
        raise ValueError(
            f"labels must have one entry per record, shape {tuple(features.shape[:1])}, "
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
    if bool((offsets.diff() < 0).any()):
        raise ValueError("offsets must not decrease.")


def _check_groups(groups: Tensor, offsets: Tensor) -> None:
    if groups.ndim != 1 or groups.is_floating_point() or len(groups) < 1:
        raise ValueError("groups must be a vector of integers.")
    if int(groups[0]) != 0 or groups[-1] != offsets[-1] or bool((groups.diff() < 1).any()):
        raise ValueError(
            f"groups must increase from 0 to the number of records, {int(offsets[-1])}: each has "
            "one at least."
        )
    if not bool(torch.isin(offsets, groups).all()):
        raise ValueError("groups must begin and end with parties: a group is at one of them.")


def _check_counts(counts: Tensor, parties: int) -> None:
    if counts.shape != (parties,) or counts.is_floating_point() or bool((counts < 1).any()):
        raise ValueError(
            f"counts must be integers of at least 1, shape {(parties,)}: a party without records "
            "has a problem only where a number was declared for it."
        )


def _check_optional(name: str, value: Tensor | None, shape: tuple[int, ...]) -> None:
    if value is None:
        return
    if tuple(value.shape) != shape or not bool(torch.isfinite(value).all()):
        raise ValueError(f"{name} must be finite, of shape {shape}, got {tuple(value.shape)}.")
