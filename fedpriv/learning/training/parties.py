"""The parties that are trained in one process, and their records as plain arrays."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray
    from torch import Tensor

    from fedpriv.learning.batch import RecordBatch
    from fedpriv.learning.losses import Loss


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Parties:
    """Parties whose records are stacked in a batch.

    Attributes:
        batch: The records.
        loss: Says which labels there are.
        first_party: The index of the first of these parties among all of the federation.
    """

    batch: RecordBatch
    loss: Loss
    first_party: int

    @property
    def features(self) -> Tensor:
        """(n, p)."""
        return self.batch.features

    @property
    def labels(self) -> Tensor:
        """(n,)."""
        return self.batch.labels

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the features, in which parties are trained."""
        return self.batch.features.dtype

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """(m+1,): party j owns records offsets[j] … offsets[j+1] - 1."""
        offsets: NDArray[np.int64] = self.batch.segments.offsets.numpy()
        return offsets

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """(m,): the number of records of every party."""
        return np.diff(self.offsets)

    @cached_property
    def usable(self) -> Tensor:
        """(n,): whether a record has a gradient at all; one that has none counts as zero.

        Unusable records of the batch (see `RecordBatch`) have no gradient, nor do records whose
        class the loss does not have.
        """
        usable = self.batch.squares.isfinite()
        if self.loss.outputs > 1:
            usable &= (self.labels >= 0) & (self.labels < self.loss.outputs)
        return usable
