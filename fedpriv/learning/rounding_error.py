"""Rounding error: what floating-point summation adds to the sensitivity of a sum."""

from __future__ import annotations

import torch

from fedpriv._validate import require_count, require_positive
from fedpriv.learning.segments import BLOCK


def rounding_sensitivity(
    *, clip_norm: float, records: int, dtype: torch.dtype, replace_one: bool
) -> float:
    """What rounding adds to the sensitivity of a computed sum of at most ``records`` records.

    Add it to C (add-remove) or 2C (replace-one) for the sensitivity of the floating-point answer,
    under the assumption stated in `fedpriv.learning.clipping.clipped_sum`.

    A block of at most B = 128 records is summed in the precision of the data: error at most
    γ·Σ‖vᵢ‖, γ = (B+1)u/(1 - (B+1)u), whatever the order (Higham 2002, §3.1). Blocks are added in
    float64. Between replace-one neighbours a single block differs, so only its error counts
    twice; between add-remove neighbours all may. The errors are bounded by coordinate, hence in L1
    as in L2, C being the bound of every vᵢ in the same norm. Underflow adds less than 10⁻³⁵.

    Args:
        clip_norm: C.
        records: A public upper bound on the number of records in the sum.
        dtype: The precision of the features.
        replace_one: Whether neighbours replace a record, in place, rather than add or remove one.
    """
    require_positive(clip_norm=clip_norm)
    require_count(records=records)
    touched = min(records, BLOCK) if replace_one else records
    in_blocks = touched * _gamma(BLOCK + 1, torch.finfo(dtype).eps / 2)
    of_blocks = records * _gamma(records, torch.finfo(torch.float64).eps / 2)
    return 2 * clip_norm * (in_blocks + 2 * of_blocks)


def _gamma(operations: int, unit_roundoff: float) -> float:
    return operations * unit_roundoff / (1 - operations * unit_roundoff)
