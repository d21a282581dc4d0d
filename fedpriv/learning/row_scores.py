"""Linear scores that do not depend on the position of a record in a batch.

A matrix product may round a row differently in another place. Where a score decides an integer, as
in a sum of losses counted in steps, one more or one fewer record could then move many integers.
Here every score is one dot product by the same instructions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fedpriv._compiled import compiled

if TYPE_CHECKING:
    from fedpriv.learning.clipping.logistic import Floats


def row_scores(features: torch.Tensor, points: torch.Tensor) -> torch.Tensor:
    """x·θ of every record, (n, d), at every point, (k, d), as (n, k) in one precision."""
    scores = torch.empty(len(features), len(points), dtype=features.dtype)
    _fill(features.numpy(), points.to(features.dtype).contiguous().numpy(), scores.numpy())
    return scores


@compiled(relaxed={"reassoc", "contract", "nsz"})
def _fill(features: Floats, points: Floats, scores: Floats) -> None:
    zero = features.dtype.type(0)
    for i in range(len(features)):
        row = features[i]
        for j in range(len(points)):
            point, total = points[j], zero
            for k in range(len(row)):
                total += row[k] * point[k]
            scores[i, j] = total
