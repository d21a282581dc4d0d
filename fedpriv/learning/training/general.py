"""Local training of any model: parties beside each other, by vectorised autograd.

Parties that are trained together have a row of parameters each; a step is one gradient of all rows.
Few are trained together, so that parameters and activations stay in the cache. The rounding of a
party's sums may depend on its position in the group, so groups depend on the batch alone.
"""

from __future__ import annotations

from contextlib import contextmanager
from math import nan
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.func import vjp, vmap

from fedpriv.learning.clipping.dense import slopes
from fedpriv.learning.clipping.isolation import record_by_record
from fedpriv.learning.clipping.spared import blank_record, spared_places
from fedpriv.learning.network import NetworkModel
from fedpriv.learning.training.kernels.orders import schedule
from fedpriv.learning.training.parties import Parties
from fedpriv.learning.training.stacks import dense_stack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from fedpriv.learning.losses import Loss
    from fedpriv.learning.models import Model
    from fedpriv.learning.training.settings import LocalSgd

    Scores = Callable[[Tensor, Tensor], Tensor]

_MEMORY = 1 << 24  # bytes for parameters and activations of parties that are trained together
_COPIES = 6  # of the parameters: w, v, the gradient and what autograd keeps


class GeneralTraining:
    """Local training by vectorised autograd: for any model and loss."""

    def __init__(self, model: Model, loss: Loss, parties: Parties, settings: LocalSgd) -> None:
        self._model, self._loss = model, loss
        self._parties, self._settings = parties, settings
        self._computable = False

    def updates(
        self,
        theta: Tensor,
        *,
        key: np.uint64,
        chosen: NDArray[np.int64],
        shift: Tensor | None,
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[Any]]]:
        """The updates of some parties, a few at a time, with their indices.

        Not a number for a party on whose records a module or a loss raises an error.
        """
        self._require_computable(theta, key)
        size = self._together(chosen)
        for first in range(0, len(chosen), size):
            group = chosen[first : first + size]
            try:
                rows = self._trained(theta, key, group, shift)
            except Exception:  # it may be about a record
                rows = None
            if rows is None:
                rows = self._spared(theta, key, group, shift)
            yield group, rows.numpy()

    def _trained(
        self, theta: Tensor, key: np.uint64, group: NDArray[np.int64], shift: Tensor | None
    ) -> Tensor:
        """By a copy of the module for each group: it may remember what it computed."""
        own = None if shift is None else shift[torch.from_numpy(group)]
        with _differentiable(self._model) as scores, record_by_record():
            return self._train(scores, theta, key, group, own)

    def _spared(
        self, theta: Tensor, key: np.uint64, group: NDArray[np.int64], shift: Tensor | None
    ) -> Tensor:
        """As `fedpriv.learning.clipping.spared`: the failing stand back for a party that trains."""

        def alone(places: Tensor) -> Tensor:
            return self._trained(theta, key, group[places.numpy()], shift)

        rows, failing = spared_places(alone, len(group))
        if rows is None:
            return theta.new_full((len(group), len(theta)), nan)
        return rows.masked_fill(failing.unsqueeze(1), nan)

    def _require_computable(self, theta: Tensor, key: np.uint64) -> None:
        """Raise the error that a party with a record of zeros causes: it depends on no record."""
        if not self._computable:
            batch = blank_record(self._model, self._loss, theta)
            blank = Parties(batch=batch, loss=self._loss, first_party=0)
            apart = GeneralTraining(self._model, self._loss, blank, self._settings)
            apart._trained(theta, key, np.zeros(1, np.int64), None)
            self._computable = True

    def _together(self, chosen: NDArray[np.int64]) -> int:
        """How many parties are trained together."""
        most = max((self._batch_size(int(n)) for n in self._parties.sizes[chosen]), default=1)
        numbers = _COPIES * self._model.dimension
        numbers += 2 * most * (self._model.features + self._model.working_size(materialised=False))
        return max(1, _MEMORY // (self._parties.features.element_size() * numbers))

    def _batch_size(self, records: int) -> int:
        return min(self._settings.batch_size or records, records)

    def _train(
        self,
        scores: Scores,
        theta: Tensor,
        key: np.uint64,
        group: NDArray[np.int64],
        shift: Tensor | None,
    ) -> Tensor:
        """w - θ of a group of parties, one row each."""
        parties, settings = self._parties, self._settings
        places = self._places(key, group)
        w = theta.repeat(len(group), 1)
        v = torch.zeros_like(w)
        gradient = vmap(_gradient(scores, self._loss))
        for step in range(places.shape[1]):
            batch = places[:, step]
            present = batch >= 0
            counts = present.sum(1, keepdim=True)
            rows = batch.clamp(min=0)
            counted = present & parties.usable[rows]
            shares = counted.to(w.dtype) / counts.clamp(min=1)
            slope = gradient(w, parties.features[rows], parties.labels[rows], shares)
            v = settings.momentum * v + slope
            if settings.regulariser:
                v += settings.regulariser * w
            if settings.proximal:
                v += settings.proximal * (w - theta)
            if shift is not None:
                v += shift
            w = torch.where(counts > 0, w - settings.learning_rate * v, w)
        return w - theta

    def _places(self, key: np.uint64, group: NDArray[np.int64]) -> Tensor:
        """The records of every step, (m, S, B): see `schedule`."""
        parties, settings = self._parties, self._settings
        sizes = parties.sizes[group]
        steps = np.array([settings.steps_with(int(n)) for n in sizes], np.int64)
        width = max((self._batch_size(int(n)) for n in sizes), default=1)
        places = np.empty((len(group), int(steps.max(initial=0)), width), np.int64)
        numbers, starts = parties.first_party + group, parties.offsets[group]
        schedule(key, numbers, starts, sizes, steps, settings.batch_size or 0, places)
        return torch.from_numpy(places)


def _gradient(scores: Scores, loss: Loss) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
    """Σᵢ shareᵢ·∇f(w; xᵢ) of one party, as a function to be vectorised."""

    def gradient(w: Tensor, features: Tensor, labels: Tensor, shares: Tensor) -> Tensor:
        found, pull_back, *_ = vjp(lambda vector: scores(vector, features), w)
        errors = slopes(loss, found.reshape(len(features), -1), labels)
        share = shares.unsqueeze(1)
        errors = torch.where(share > 0, errors * share, 0.0)
        result: Tensor = pull_back(errors.reshape(found.shape))[0]
        return result

    return gradient


@contextmanager
def _differentiable(model: Model) -> Iterator[Scores]:
    """A function from parameters and features to scores that autograd can go through."""
    stack = dense_stack(model)
    if stack is not None:
        yield stack.scores
    elif isinstance(model, NetworkModel):
        with model.differentiable() as scores:
            yield scores
    else:
        yield model.scores
