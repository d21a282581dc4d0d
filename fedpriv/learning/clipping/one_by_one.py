"""Sums of clipped gradients one by one: any number of records at the rounding of a few.

Blocks of records are summed in the precision of the features. The error grows with the number of
blocks, and a party may have more records than its declared number allows for. In that case each
gradient is formed and rounded on its own, and the gradients are added up in float64. Every number
depends only on its own record: the clipping, and the side of a kink on which a record lies, are the
same as in a block. Computing the gradients in float64 instead would not help: one more record would
change the precision of all others, and so their values at a kink or at the clipping norm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedpriv.learning.clipping.clipped_sum import ClippedGradient

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from fedpriv.learning.batch import RecordBatch
    from fedpriv.learning.clipping.clipped_sum import Clipping
    from fedpriv.learning.losses import Loss
    from fedpriv.learning.models import Model

_NUMBERS = 1 << 21  # of gradients that are written out at a time


def sum_one_by_one(
    model: Model, loss: Loss, theta: Tensor, batch: RecordBatch, clipping: Clipping, *, party: int
) -> NDArray[np.float64]:
    """The clipped sum of one of the parties of ``batch`` at ``theta``, (d,)."""
    first, last = batch.segments.offsets[party : party + 2].tolist()
    size = max(1, _NUMBERS // model.dimension)
    total = np.zeros(model.dimension)
    for start in range(first, last, size):
        alone = batch.singly(start, min(start + size, last))
        gradient = ClippedGradient(model=model, loss=loss, batch=alone, clipping=clipping)
        total += gradient(theta).value.numpy().sum(axis=0)
    return total
