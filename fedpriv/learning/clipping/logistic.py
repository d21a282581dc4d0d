"""Clipped gradient sums of logistic regression in one pass over the records.

What `fedpriv.learning.clipping.linear` computes, with the same bounds on rounding, compiled: a row
is read from memory once, for its score and for the sum. Four rows at a time go through the same
instructions, whatever their place in the batch, so that a score does not depend on its neighbours.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import numpy as np

from fedpriv._compiled import compiled
from fedpriv.learning.segments import BLOCK

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32] | NDArray[np.float64]


# Sums may be regrouped and multiply-adds fused, which the bounds on rounding allow; NaN and
# infinity keep their meaning. The lock is released, so that threads may share the records.
@compiled(relaxed={"reassoc", "contract", "nsz"})
def clipped_logistic_sums(
    features: Floats,
    labels: Floats,
    theta: Floats,
    caps: Floats,
    offsets: NDArray[np.int64],
    sums: NDArray[np.float64],
    slopes: Floats,
) -> None:
    """Write the clipped sum of every party, (m, d), and the slopes before clipping, (n,).

    Blocks of at most `BLOCK` records are summed in the precision of the features, blocks of a party
    in float64. A slope that is not finite counts as zero.

    Args:
        features: (n, d).
        labels: (n,), -1 or +1.
        theta: (d,).
        caps: (n,), how large the slope of a record may be.
        offsets: (m+1,), where parties begin and end.
        sums: Overwritten.
        slopes: Overwritten.
    """
    d = features.shape[1]
    total = np.empty(d, features.dtype)
    weights = np.empty(4, features.dtype)
    zero, one = features.dtype.type(0), features.dtype.type(1)
    for party in range(len(offsets) - 1):
        sums[party] = 0
        for start in range(offsets[party], offsets[party + 1], BLOCK):
            stop = min(start + BLOCK, offsets[party + 1])
            total[:] = 0
            for i in range(start, stop, 4):
                # The last rows of a block are repeated with weight zero.
                a = features[i]
                b = features[min(i + 1, stop - 1)]
                c = features[min(i + 2, stop - 1)]
                e = features[min(i + 3, stop - 1)]
                w = x = y = z = zero
                for k in range(d):
                    w += a[k] * theta[k]
                    x += b[k] * theta[k]
                    y += c[k] * theta[k]
                    z += e[k] * theta[k]
                weights[0], weights[1], weights[2], weights[3] = w, x, y, z
                for lane in range(4):
                    row = i + lane
                    if row >= stop:
                        weights[lane] = 0
                        continue
                    slope = -labels[row] / (one + np.exp(labels[row] * weights[lane]))
                    slopes[row] = slope
                    bounded = min(max(slope, -caps[row]), caps[row])
                    weights[lane] = bounded if abs(slope) < inf else 0
                w, x, y, z = weights[0], weights[1], weights[2], weights[3]
                for k in range(d):
                    total[k] += w * a[k] + x * b[k] + y * c[k] + z * e[k]
            for k in range(d):
                sums[party, k] += total[k]
