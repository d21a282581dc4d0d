"""Clipped gradient sums of a linear model with one score, in closed form: one pass, or two.

The gradient of a record is slope·x, of norm |slope|·‖x‖. Clipping it to norm t therefore means
clamping the slope to ±t/‖x‖: no gradient is formed, and only the norms of the features are needed.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch

from fedpriv.learning.clipping.dense import filled_slopes
from fedpriv.learning.losses import Logistic

if TYPE_CHECKING:
    from torch import Tensor

    from fedpriv.learning.batch import RecordBatch
    from fedpriv.learning.crew import Crew
    from fedpriv.learning.losses import Loss


def clipped_linear_sums(
    theta: Tensor, batch: RecordBatch, loss: Loss, threshold: float, crew: Crew
) -> tuple[Tensor, Tensor]:
    """The clipped sum of every party, (m, d), and the slopes before clipping, (n,).

    A slope depends on its record alone. In a matrix product its position would affect the last bit,
    which decides the slope where a loss bends sharply. A slope that is not finite counts as zero.
    The crew shares the parties of one pass; the result does not depend on its size.
    """
    caps = batch.slope_caps(threshold)
    if in_one_pass(loss):
        return _one_pass(theta, batch, caps[1], crew)
    from fedpriv.learning.row_scores import row_scores  # it loads a compiler

    scores = row_scores(batch.features, theta.unsqueeze(0))
    slopes = filled_slopes(loss, scores, batch.labels).squeeze(1)
    weights = slopes.nan_to_num(0.0, posinf=0.0, neginf=0.0).clamp_(*caps)
    return batch.segments.weighted_sums(weights, batch.features), slopes


def in_one_pass(loss: Loss) -> bool:
    """Whether this loss needs a single pass over the records: small parts then gain nothing."""
    return type(loss) is Logistic


def _one_pass(theta: Tensor, batch: RecordBatch, caps: Tensor, crew: Crew) -> tuple[Tensor, Tensor]:
    """The same for the logistic loss, compiled."""
    from fedpriv.learning.clipping.logistic import clipped_logistic_sums  # it loads a compiler

    features, labels, offsets = batch.arrays
    point, bounds = theta.numpy(), caps.numpy()
    sums = np.empty((len(offsets) - 1, features.shape[1]))
    slopes = np.empty_like(labels)

    if crew.size == 1:
        clipped_logistic_sums(features, labels, point, bounds, offsets, sums, slopes)
    else:
        # Whole parties, about as many records to everyone.
        shares = np.arange(1, crew.size) * (len(labels) / crew.size)
        cuts = [0, *np.searchsorted(offsets, shares).tolist(), len(sums)]

        def fill(parties: tuple[int, int]) -> None:
            first, last = parties
            own = offsets[first : last + 1]
            clipped_logistic_sums(features, labels, point, bounds, own, sums[first:last], slopes)

        crew.each(fill, list(pairwise(cuts)))
    return torch.from_numpy(sums), torch.from_numpy(slopes)
