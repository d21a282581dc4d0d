"""Sums of clipped per-person gradients: Σ_i clip_C(Σ_{r of i} g_r), party by party.

The person unit of privacy. A person's gradients are summed first and the sum is clipped to C: the
party's sum then moves by at most C when all records of a person join or leave, however many there
are. Clipped one by one and then summed, k records would move it by k·C.

**What a person contributes.** A vector v_i with ‖v_i‖₂ ≤ C that depends, to the bit, on that
person's records alone: gradients are added in float64 in the order of the records, the norm is that
of the float64 vector, and the threshold is C(1 − 2⁻¹³), a margin far larger than the rounding of a
norm and a product in float64 (d + 10 units of 2⁻⁵³). A person whose sum is not finite, or longer
than 2¹⁰⁰, contributes zero and is counted. Under add-remove, this assumes as
`fedpriv.learning.clipping.clipped_sum` does: the gradient of a record does not depend on its
position.

**What a sum reveals of a person.** The v_i of a party are added in float64;
`fedpriv.learning.rounding_error` bounds what rounding adds to the sensitivity, as for records in
float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from fedpriv._compiled import compiled
from fedpriv.learning.clipping.clipped_sum import CLIP_MARGIN, DEFAULT_MEMORY, ClippedSums
from fedpriv.learning.clipping.dense import ROWS, filled_slopes
from fedpriv.learning.clipping.norms import LARGEST_SQUARE
from fedpriv.learning.clipping.spared import blank_record, require_computable, spared_factors
from fedpriv.learning.models import LinearModel, Model
from fedpriv.learning.row_scores import row_scores

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray
    from torch import Tensor

    from fedpriv.learning.batch import RecordBatch
    from fedpriv.learning.clipping.clipped_sum import Clipping
    from fedpriv.learning.clipping.logistic import Floats
    from fedpriv.learning.losses import Loss

# Slopes of a linear model at a time: fewer numbers than PyTorch shares between threads, whose
# shares would end at other records in another batch.
_SLOPES = 64 * ROWS


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class PersonGroups:
    """Persons among stacked records, each person's side by side.

    Attributes:
        bounds: int64 (P + 1): person i owns records bounds[i] … bounds[i + 1] - 1, at least one.
        parties: int64 (m + 1): party j has persons parties[j] … parties[j + 1] - 1.
    """

    bounds: NDArray[np.int64]
    parties: NDArray[np.int64]

    def __post_init__(self) -> None:
        if self.bounds[0] != 0 or (np.diff(self.bounds) < 1).any():
            raise ValueError("bounds must begin at 0 and increase: a person has a record.")
        if self.parties[0] != 0 or self.parties[-1] != len(self):
            raise ValueError(f"parties must run from 0 to the number of persons, {len(self)}.")

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @property
    def counts(self) -> NDArray[np.int64]:
        """How many persons every party has. Private."""
        return np.diff(self.parties)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """How many records every person has. Private."""
        return np.diff(self.bounds)

    def select(self, persons: NDArray[np.int64]) -> tuple[PersonGroups, NDArray[np.int64]]:
        """A subset of the persons, in increasing order, and the positions of their records."""
        sizes = self.sizes[persons]
        bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        shifts = np.repeat(self.bounds[persons] - bounds[:-1], sizes)
        chosen = PersonGroups(bounds=bounds, parties=np.searchsorted(persons, self.parties))
        return chosen, np.arange(bounds[-1]) + shifts


def clipped_person_sums(
    model: Model,
    loss: Loss,
    theta: Tensor,
    batch: RecordBatch,
    persons: PersonGroups,
    clipping: Clipping,
    *,
    memory_limit: int = DEFAULT_MEMORY,
) -> ClippedSums:
    """The sum over every party's persons of their clipped summed gradients.

    With a centre and a scale, (Σg − a)/b is clipped. The measures are those of persons.

    Args:
        model: Any `Model`.
        loss: A loss with as many outputs as the model.
        theta: Parameters, (d,).
        batch: The records.
        persons: Whose they are.
        clipping: The bound.
        memory_limit: Bytes for gradients that are written out, by the model's estimate.
    """
    if int(persons.bounds[-1]) != len(batch) or len(persons.counts) != batch.parties:
        raise ValueError("persons must be those of the records, at the same parties.")
    d = model.dimension
    sums, squares = np.zeros((batch.parties, d)), np.empty(len(persons))
    party = np.repeat(np.arange(batch.parties), persons.counts)
    centre, scale = (
        np.zeros(0) if vector is None else vector.double().numpy()
        for vector in (clipping.centre, clipping.scale)
    )
    threshold, current = (1 - CLIP_MARGIN) * clipping.clip_norm, np.zeros(d)
    theta = theta.detach().to(batch.features.dtype)
    require_computable(model, loss, theta, blank_record(model, loss, theta))
    for start, rows, weights in _gradients(model, loss, theta, batch, memory_limit):
        _add_persons(
            rows,
            weights,
            start,
            persons.bounds,
            party,
            (centre, scale),
            (threshold, LARGEST_SQUARE),
            current,
            sums,
            squares,
        )
    return ClippedSums(
        value=torch.from_numpy(sums),
        clip_norm=clipping.clip_norm,
        measures=(torch.from_numpy(squares),),
    )


def mean_gradient_sums(
    model: LinearModel,
    loss: Loss,
    theta: Tensor,
    batch: RecordBatch,
    persons: PersonGroups,
    *,
    size: int,
) -> Tensor:
    """Σ over every party's persons of the *mean* of their exact gradients, in float64, (m, d).

    A person adds a vector no longer than one record's gradient. Nothing is clipped: this is for
    minimisers, whose gradients are bounded by G. Records are added in order, ``size`` at a time,
    each divided by its person's number of records.
    """
    weights = torch.from_numpy(np.repeat(1 / persons.sizes, persons.sizes))
    owners = torch.arange(batch.parties).repeat_interleave(batch.segments.offsets.diff())
    sums = torch.zeros((batch.parties, model.dimension), dtype=torch.float64)
    points = theta.to(torch.float64).reshape(model.classes, model.width)
    for start in range(0, len(batch), size):
        rows = slice(start, start + size)
        features = batch.features[rows].to(torch.float64)
        slopes = filled_slopes(loss, row_scores(features, points), batch.labels[rows])
        slopes = slopes * weights[rows].unsqueeze(1)
        gradients = (slopes.unsqueeze(2) * features.unsqueeze(1)).flatten(1)
        sums.index_add_(0, owners[rows], gradients)
    return sums


def _gradients(
    model: Model, loss: Loss, theta: Tensor, batch: RecordBatch, memory_limit: int
) -> Iterator[tuple[int, Floats, Floats]]:
    """Gradients as weight·row, some records at a time: the first of them, rows and weights.

    For a linear model with one score, the rows are the features and nothing is written out.
    """
    linear = isinstance(model, LinearModel) and model.classes == 1
    size = _SLOPES
    if not linear:
        number_bytes = batch.features.element_size()
        size = model.records_at_once(memory_limit, number_bytes=number_bytes, materialised=True)
    for start in range(0, len(batch), size):
        stop = min(start + size, len(batch))
        if linear:
            rows = batch.features[start:stop]
            scores = row_scores(rows, theta.unsqueeze(0))
            weights = filled_slopes(loss, scores, batch.labels[start:stop]).squeeze(1)
        else:
            part = batch.select(torch.arange(start, stop))
            factors = spared_factors(model, loss, theta, part)
            rows = torch.cat([factor.rows() for factor in factors], dim=1).contiguous()
            weights = rows.new_ones(len(part))
        usable = batch.squares[start:stop].isfinite()
        yield start, rows.numpy(), weights.where(usable, 0.0).numpy()


@compiled(relaxed={"contract", "nsz"})
def _add_persons(
    rows: Floats,
    weights: Floats,
    start: int,
    bounds: NDArray[np.int64],
    party: NDArray[np.int64],
    coordinates: tuple[NDArray[np.float64], NDArray[np.float64]],
    limits: tuple[float, float],
    current: NDArray[np.float64],
    sums: NDArray[np.float64],
    squares: NDArray[np.float64],
) -> None:
    """Add the persons whose records end here, and keep the partial sum of one who continues.

    Args:
        rows: (n, d).
        weights: (n,); a record of weight 0 adds nothing, whatever its row.
        start: The place of the first of these records among all.
        bounds: (P + 1,), where persons begin and end among all records.
        party: (P,), where a person is.
        coordinates: Centre and scale, (d,) each; empty for none.
        limits: The length to clip to, and the square of one that counts as not finite.
        current: (d,), the sum of a person that began among earlier records.
        sums: (m, d), added to.
        squares: (P,), the squared lengths before clipping; not a number for what is not finite.
    """
    d = rows.shape[1]
    centre, scale = coordinates
    threshold, largest = limits
    person = np.searchsorted(bounds, start, side="right") - 1
    for i in range(len(rows)):
        if start + i == bounds[person]:
            current[:] = 0.0
        weight = np.float64(weights[i])
        if weight != 0.0:
            for k in range(d):
                current[k] += weight * np.float64(rows[i, k])
        if start + i + 1 < bounds[person + 1]:
            continue
        square = 0.0
        for k in range(d):
            if len(centre):
                current[k] -= centre[k]
            if len(scale):
                current[k] /= scale[k]
            square += current[k] * current[k]
        if square <= largest:
            squares[person] = square
            factor = min(1.0, threshold / np.sqrt(square)) if square > 0.0 else 0.0
            for k in range(d):
                sums[party[person], k] += factor * current[k]
        else:
            squares[person] = np.nan
        person += 1
