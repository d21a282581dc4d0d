"""Clipped gradient sums of a linear model with one score, in closed form and two passes.

The gradient of a record is slope·x, of norm |slope|·‖x‖. Clipping it to a length t is therefore to
clamp the slope to ±t/‖x‖: no gradient is formed, and no norm but that of the features is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from fedpriv.learning.batch import RecordBatch
    from fedpriv.learning.losses import Loss


def clipped_linear_sums(
    theta: Tensor, batch: RecordBatch, loss: Loss, threshold: float
) -> tuple[Tensor, Tensor]:
    """The clipped sum of every party, (m, d), and the slopes before clipping, (n,).

    A slope that is not finite counts as zero.
    """
    slopes = loss.slope(torch.mv(batch.features, theta), batch.labels)
    weights = slopes.nan_to_num(0.0, posinf=0.0, neginf=0.0).clamp_(*batch.slope_caps(threshold))
    return batch.segments.weighted_sums(weights, batch.features), slopes
