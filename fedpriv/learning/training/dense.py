"""Local training of linear models and perceptrons: on Gram matrices where they are small."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.learning.training.compiled import CompiledTraining
from fedpriv.learning.training.kernels.direct import train_directly
from fedpriv.learning.training.kernels.gram import LANES, fill_grams, train_on_grams
from fedpriv.learning.training.kernels.slopes import ACTIVATION_CODES, loss_code
from fedpriv.learning.training.stacks import dense_stack

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedpriv.learning.losses import Loss
    from fedpriv.learning.models import Model
    from fedpriv.learning.training.parties import Parties
    from fedpriv.learning.training.settings import LocalSgd
    from fedpriv.learning.training.stacks import DenseStack


class DenseTraining(CompiledTraining):
    """Local training of a dense stack: on Gram matrices, or on the weights of large parties.

    Gram matrices are built in the first round. A party has one if it has no more records than
    features, so together they are no larger than the records.
    """

    def __init__(
        self, stack: DenseStack, code: tuple[int, float], parties: Parties, settings: LocalSgd
    ) -> None:
        super().__init__(stack.dimension, code, parties, settings)
        self._widths = np.array(stack.widths[1:], np.int64)
        self._activation, self._bias = ACTIVATION_CODES[stack.activation], stack.bias

    @classmethod
    def of(
        cls, model: Model, loss: Loss, parties: Parties, settings: LocalSgd
    ) -> DenseTraining | None:
        """The training of a model and a loss that compiled code knows; None for others."""
        stack, code = dense_stack(model), loss_code(loss)
        return None if stack is None or code is None else cls(stack, code, parties, settings)

    def _alike(self, chosen: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
        small = self._small[chosen]
        return chosen[small], chosen[~small]

    def _train(
        self,
        key: np.uint64,
        group: NDArray[np.int64],
        theta: NDArray[Any],
        shift: NDArray[Any],
        rows: NDArray[Any],
    ) -> None:
        parties, records = self._group(group), self._records
        how = (theta, shift, self._widths, self._activation, self._bias, self._rules, rows)
        if self._small[group[0]]:
            places, grams = self._grams
            train_on_grams(key, parties, places[group], grams, records, *how)
        else:
            train_directly(key, parties, records, *how)

    @cached_property
    def _small(self) -> NDArray[np.bool_]:
        """(m,): which parties are trained on Gram matrices."""
        small: NDArray[np.bool_] = self._parties.sizes <= self._records.features.shape[1]
        return small

    @cached_property
    def _grams(self) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Where the Gram matrix of a party begins, (m,), and all of them."""
        sizes, starts = self._parties.sizes, self._parties.offsets[:-1]
        lengths = np.where(self._small, sizes * (-(-sizes // LANES) * LANES), 0)
        ends = np.cumsum(lengths)
        places, small = ends - lengths, self._small
        grams = np.empty(int(ends[-1]), self._records.features.dtype)
        constant = float(self._bias)
        fill_grams(
            self._records.features, starts[small], sizes[small], places[small], constant, grams
        )
        return places, grams
