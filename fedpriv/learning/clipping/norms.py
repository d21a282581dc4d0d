"""Squared row norms for clipping: never too small by more than a known factor; the range of C."""

from __future__ import annotations

import torch
from torch import Tensor

from fedpriv._validate import require_positive

LARGEST_SQUARE = 2.0**200
"""Gradients and features longer than 2¹⁰⁰ count as not finite: float32 weights end there."""

NORM_SLACK = 2.0**-14
"""A product of two norms is at most 1 + NORM_SLACK times the product computed here."""

SMALLEST_CLIP, LARGEST_CLIP = 2.0**-20, 2.0**30
"""The ends of the range of C in which clipping is proved to keep its bound."""

_NARROW, _PIECE = 64, 1000  # columns


def require_clip(clip_norm: float) -> None:
    """Refuse a C outside the range in which clipping is proved accurate."""
    require_positive(clip_norm=clip_norm)
    if not SMALLEST_CLIP <= clip_norm <= LARGEST_CLIP:
        raise ValueError(
            f"clip_norm must lie in [2^-20, 2^30], got {clip_norm!r}; "
            "scale the loss or the features instead."
        )


def squared_norms(rows: Tensor, *, extra: float = 0.0) -> Tensor:
    """‖rowᵢ‖₂² + extra, (n,): float64 for wide rows, in the precision of the rows for narrow ones.

    Rows are contiguous in memory: sums along columns would add up the last rows in another order,
    and the number of records would decide which gradients need clipping.

    Guarantee. Whatever the order in which the hardware adds, p squares and p - 1 sums give ‖row‖²
    within a factor 1 ± pu to first order (Higham 2002, §3.1), hence the norm within pu/2. At most
    p = 1000 columns are added in the precision of the rows, u ≤ 2⁻²⁴; fewer than 10 roundings
    follow until a weight is known: a product of two norms is within (p + 10)u < `NORM_SLACK`.
    Squares that underflow hide at most p·2⁻¹²⁶ (in float32), which is added: it shows only next to
    factors beyond 2⁵⁰.

    Squares overflow float32 from 2⁶⁴ on, so an infinite result asks for a second look in float64.
    NaN stays NaN.
    """
    rows, width = rows.contiguous(), rows.shape[1]
    if width <= _NARROW:
        squares = rows.square().sum(1)
    else:
        pieces = torch.split(rows, _PIECE, dim=1)
        squares = _wide(pieces[0])
        for piece in pieces[1:]:
            squares.add_(_wide(piece))
    return squares.add_(extra + width * torch.finfo(rows.dtype).tiny)


def absolute_norms(rows: Tensor) -> Tensor:
    """‖rowᵢ‖₁ in float64, (n,): relative error at most p·2⁻⁵³, far less than `NORM_SLACK`."""
    return rows.contiguous().abs().to(torch.float64).sum(1)


def _wide(rows: Tensor) -> Tensor:
    """In one pass, without writing the squares out."""
    norms: Tensor = torch.linalg.vector_norm(rows, dim=1)
    return norms.to(torch.float64).square_()
