"""Compiled kernels loaded in advance, for a process that hands work to copies of itself."""

from __future__ import annotations

import numpy as np
import torch

from fedpriv.learning.batch import RecordBatch
from fedpriv.learning.clipping.linear import clipped_linear_sums
from fedpriv.learning.crew import Crew
from fedpriv.learning.losses import Logistic
from fedpriv.secagg import FixedPoint


def load_kernels() -> None:
    """Load every kernel in both precisions; a new installation compiles them now.

    Otherwise a process loads the compiler and the kernel with its first answer. One record of one
    feature starts no thread.
    """
    from fedpriv.learning.row_products import row_products
    from fedpriv.learning.row_scores import row_scores

    sums = torch.zeros((1, 2), dtype=torch.float64)
    FixedPoint(step=1.0).encode(np.zeros(1))
    for precision in (torch.float32, torch.float64):
        one = torch.ones(1, dtype=precision)
        batch = RecordBatch(features=one[:, None], labels=one)
        clipped_linear_sums(one, batch, Logistic(), 1.0, Crew(1))
        row_scores(batch.features, one[:, None])
        row_products(batch.features, one[:, None])
        batch.segments.add_outer_sums(one[:, None], batch.features, sums, first=0, bias=True)
