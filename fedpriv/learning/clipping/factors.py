"""Factors: per-record gradients, in the form in which they are cheapest to measure and add up.

The gradient of a record with respect to one layer is seldom needed as numbers. For a dense layer
with input a and back-propagated error δ it is the outer product δ ⊗ a, of norm ‖δ‖·‖a‖ (Goodfellow
2015, arXiv:1510.01799), and a weighted sum over records is one matrix product. A *factor* is such a
representation for n records.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Protocol

import torch

from fedpriv.learning.clipping.norms import LARGEST_SQUARE, absolute_norms, squared_norms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from fedpriv.learning.segments import Segments


class Factor(Protocol):
    """Gradients of n records with respect to d consecutive parameters."""

    def squares(self) -> Tensor:
        """‖gᵢ‖², (n,): norms too low by at most `NORM_SLACK`; possibly not finite."""

    @property
    def dimension(self) -> int:
        """d."""

    def add_weighted_sums(
        self, weights: Tensor, segments: Segments, sums: Tensor, *, first: int
    ) -> None:
        """Add Σ wᵢ·gᵢ over each of m parties to d columns of ``sums``, float64 (m, ·)."""

    def rows(self) -> Tensor:
        """The gradients themselves, (n, d)."""

    def lengths(self) -> Tensor:
        """‖gᵢ‖₁, float64 (n,); possibly not finite."""

    def careful_squares(self) -> Tensor:
        """``squares`` in float64 throughout; infinite where a part of a gradient is too long."""

    def without(self, rejected: Tensor, *, value: float = 0.0) -> Factor:
        """The same, with gradients of zero, or nan, for the records marked in a mask (n,)."""

    def first(self, count: int) -> Factor:
        """The gradients of the first records alone."""


@dataclass(frozen=True, slots=True, eq=False)
class Dense:
    """A dense layer: gradient δᵢ ⊗ aᵢ of its weights (k, p), then δᵢ of its bias if it has one.

    Attributes:
        inputs: a, (n, p).
        errors: δ, (n, k), of the same dtype.
        bias: Whether the layer has a bias.
        input_squares: `squared_norms` of the inputs, where they are known already.
    """

    inputs: Tensor
    errors: Tensor
    bias: bool
    input_squares: Tensor | None = None

    def squares(self) -> Tensor:
        """‖δ‖²·‖a‖², or ‖δ‖²·(‖a‖² + 1) with a bias."""
        if self.input_squares is None:
            squares = squared_norms(self.inputs, extra=float(self.bias))
        else:
            squares = self.input_squares + 1.0 if self.bias else self.input_squares
        return squared_norms(self.errors).mul(squares)

    @property
    def dimension(self) -> int:
        """k·p, and k for a bias."""
        return self.errors.shape[1] * (self.inputs.shape[1] + self.bias)

    def add_weighted_sums(
        self, weights: Tensor, segments: Segments, sums: Tensor, *, first: int
    ) -> None:
        """One matrix product per block of records."""
        errors = weights.unsqueeze(1) * self.errors
        segments.add_outer_sums(errors, self.inputs, sums, first=first, bias=self.bias)

    def rows(self) -> Tensor:
        """The outer products, and the errors for a bias."""
        outer = (self.errors.unsqueeze(2) * self.inputs.unsqueeze(1)).flatten(1)
        return torch.cat([outer, self.errors], dim=1) if self.bias else outer

    def lengths(self) -> Tensor:
        """‖δ‖₁·‖a‖₁, or ‖δ‖₁·(‖a‖₁ + 1) with a bias."""
        return absolute_norms(self.errors) * (absolute_norms(self.inputs) + float(self.bias))

    def careful_squares(self) -> Tensor:
        """Long inputs count as not finite even when errors are tiny: see `LARGEST_SQUARE`."""
        inputs = squared_norms(self.inputs.double())
        squares = (inputs + float(self.bias)) * squared_norms(self.errors.double())
        return squares.masked_fill_(inputs > LARGEST_SQUARE, inf)

    def without(self, rejected: Tensor, *, value: float = 0.0) -> Dense:
        """Zero inputs and errors, since 0 times infinity is not 0."""
        inputs, errors = (_set(each, rejected, value) for each in (self.inputs, self.errors))
        return Dense(inputs, errors, self.bias)

    def first(self, count: int) -> Dense:
        """The factors of the first records' inputs and errors."""
        squares = None if self.input_squares is None else self.input_squares[:count]
        return Dense(self.inputs[:count], self.errors[:count], self.bias, squares)


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Gradients that had to be computed as numbers, (n, d)."""

    gradients: Tensor

    def squares(self) -> Tensor:
        return squared_norms(self.gradients)

    @property
    def dimension(self) -> int:
        return self.gradients.shape[1]

    def add_weighted_sums(
        self, weights: Tensor, segments: Segments, sums: Tensor, *, first: int
    ) -> None:
        own = segments.weighted_sums(weights, self.gradients)
        sums[:, first : first + self.dimension] += own

    def rows(self) -> Tensor:
        return self.gradients

    def lengths(self) -> Tensor:
        return absolute_norms(self.gradients)

    def careful_squares(self) -> Tensor:
        return squared_norms(self.gradients.double())

    def without(self, rejected: Tensor, *, value: float = 0.0) -> Rows:
        return Rows(_set(self.gradients, rejected, value))

    def first(self, count: int) -> Rows:
        return Rows(self.gradients[:count])


def weighted_sums(factors: Sequence[Factor], weights: Tensor, segments: Segments) -> Tensor:
    """Σ wᵢ·gᵢ over the records of each of m parties, float64 (m, d), of all factors together."""
    first = 0
    width = sum(factor.dimension for factor in factors)
    sums = weights.new_zeros((segments.parties, width), dtype=torch.float64)
    for factor in factors:
        factor.add_weighted_sums(weights, segments, sums, first=first)
        first += factor.dimension
    return sums


def _set(rows: Tensor, rejected: Tensor, value: float) -> Tensor:
    """A copy in the same layout, so that products round the other rows as before."""
    return rows.clone().masked_fill_(rejected.unsqueeze(1), value)
