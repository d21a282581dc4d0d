"""Local training of linear models and perceptrons, by compiled loops over parties and steps."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.learning.training.direct import train_directly
from fedpriv.learning.training.gram import LANES, fill_grams, train_on_grams
from fedpriv.learning.training.slopes import ACTIVATION_CODES, loss_code
from fedpriv.learning.training.stacks import dense_stack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray
    from torch import Tensor

    from fedpriv.learning.losses import Loss
    from fedpriv.learning.models import Model
    from fedpriv.learning.training.parties import Parties
    from fedpriv.learning.training.settings import LocalSgd

_NEAR = 1 << 19  # bytes of updates that are written before they are added up: they stay in a cache


class DenseTraining:
    """Local training of a dense stack: on Gram matrices, or on the weights of large parties.

    Gram matrices are built in the first round. A party has one if it has no more records than
    features, so together they are no larger than the records.
    """

    def __init__(self, model: Model, loss: Loss, parties: Parties, settings: LocalSgd) -> None:
        stack, code = dense_stack(model), loss_code(loss)
        if stack is None or code is None:
            raise ValueError("model and loss must be known to compiled code; see can_train.")
        self._parties, self._settings = parties, settings
        self._dimension, self._bias = model.dimension, stack.bias
        self._widths = np.array(stack.widths[1:], np.int64)
        self._codes = np.array([code[0], ACTIVATION_CODES[stack.activation]], np.int64)
        rates = (settings.learning_rate, settings.momentum, settings.proximal, settings.regulariser)
        self._numbers = np.array([*rates, code[1]])

    @staticmethod
    def can_train(model: Model, loss: Loss) -> bool:
        """Whether this is a model and a loss that compiled code knows."""
        return dense_stack(model) is not None and loss_code(loss) is not None

    def updates(
        self,
        theta: Tensor,
        *,
        key: np.uint64,
        chosen: NDArray[np.int64],
        shift: Tensor | None,
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[Any]]]:
        """The updates of some parties, a few at a time, with their indices; valid until the next."""
        sizes = self._parties.sizes[chosen]
        small = sizes <= self._parties.features.shape[1]
        number = self._features.dtype
        together = max(1, _NEAR // (number.itemsize * self._dimension))
        rows = np.empty((min(together, len(chosen)), self._dimension), number)
        point = theta.numpy()
        for some, on_grams in ((chosen[small], True), (chosen[~small], False)):
            for first in range(0, len(some), together):
                group = some[first : first + together]
                own = np.zeros((0, 0), number) if shift is None else shift.numpy()[group]
                self._train(key, group, point, own, rows[: len(group)], on_grams=on_grams)
                yield group, rows[: len(group)]

    def _train(
        self,
        key: np.uint64,
        group: NDArray[np.int64],
        theta: NDArray[Any],
        shift: NDArray[Any],
        rows: NDArray[Any],
        *,
        on_grams: bool,
    ) -> None:
        parties, size = self._parties, self._settings.batch_size or 0
        who = (parties.first_party + group, parties.offsets[group], parties.sizes[group])
        steps = self._steps[group]
        records = (self._features, self._labels, self._usable)
        how = (shift, self._widths, self._codes, self._numbers, size, self._bias, rows)
        if on_grams:
            places, grams = self._grams
            train_on_grams(key, *who, steps, places[group], grams, *records, theta, *how)
        else:
            train_directly(key, *who, steps, *records, theta, *how)

    @cached_property
    def _features(self) -> NDArray[Any]:
        return self._parties.features.numpy()

    @cached_property
    def _labels(self) -> NDArray[Any]:
        return self._parties.labels.numpy().astype(self._features.dtype)

    @cached_property
    def _usable(self) -> NDArray[np.bool_]:
        return self._parties.usable.numpy()

    @cached_property
    def _steps(self) -> NDArray[np.int64]:
        """(m,): how many steps a party takes."""
        counts = [self._settings.steps_with(int(size)) for size in self._parties.sizes]
        return np.array(counts, np.int64)

    @cached_property
    def _grams(self) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Where the Gram matrix of a party begins, (m,), and all of them."""
        sizes = self._parties.sizes
        small = (sizes > 0) & (sizes <= self._features.shape[1])
        lengths = np.where(small, sizes * (-(-sizes // LANES) * LANES), 0)
        places = np.concatenate([[0], np.cumsum(lengths)])
        grams = np.empty(int(places[-1]), self._features.dtype)
        starts = self._parties.offsets[:-1]
        constant = float(self._bias)
        fill_grams(self._features, starts[small], sizes[small], places[:-1][small], constant, grams)
        return places[:-1], grams
