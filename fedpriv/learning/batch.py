"""The records of one or many parties, stacked in one process, ready for gradient sums."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import InitVar, dataclass, field
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fedpriv.learning.clipping.norms import LARGEST_SQUARE, squared_norms
from fedpriv.learning.segments import BLOCK, Segments

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RecordBatch:
    """Records stacked party by party: party j owns records offsets[j] … offsets[j+1] - 1.

    Quantities that depend only on the records are computed here once and reused in every round. A
    record with a feature that is not finite, or with ‖x‖₂ > 2¹⁰⁰, is *unusable*: its features
    become zero, it contributes the zero vector to every sum, and it is counted. It is not refused,
    because an error that one record can cause would itself reveal that record.

    Attributes:
        features: (n, d), float32 or float64, contiguous.
        labels: (n,).
        offsets: (m+1,) integers from 0 to n, not decreasing; None means one party. A party may
            have no records.
        squares: Derived: (n,) float64, ‖x‖₂² by `squared_norms`, infinite for unusable records.
        segments: Derived: the parties as ranges of records.
    """

    features: Tensor
    labels: Tensor
    offsets: InitVar[Tensor | None] = None
    squares: Tensor = field(init=False)
    segments: Segments = field(init=False)

    def __post_init__(self, offsets: Tensor | None) -> None:
        _check_records(self.features, self.labels)
        object.__setattr__(self, "features", self.features.detach())
        if offsets is None:
            offsets = torch.tensor([0, len(self.labels)])
        _check_offsets(offsets, len(self.labels))
        squares = squared_norms(self.features).to(torch.float64)
        doubtful = ~(squares <= LARGEST_SQUARE)
        if bool(doubtful.any()):
            again = squared_norms(self.features[doubtful].to(torch.float64))
            squares[doubtful] = again.masked_fill(~(again <= LARGEST_SQUARE), inf)
            zeroed = self.features.masked_fill(squares.isinf().unsqueeze(1), 0.0)
            object.__setattr__(self, "features", zeroed)
        object.__setattr__(self, "squares", squares)
        object.__setattr__(self, "segments", Segments(offsets=offsets.to(torch.int64)))

    @cached_property
    def all_usable(self) -> bool:
        """Whether no record is unusable. Private."""
        return bool(self.squares.isfinite().all())

    def slope_caps(self, length: float) -> tuple[Tensor, Tensor]:
        """∓length/‖x‖₂, the slopes between which slope·x has a norm of at most ``length``.

        In the precision of the features; 0 for unusable records. Cached until another length is
        requested.
        """
        kept = self._caps.get(length)
        if kept is None:
            caps = (length * self.squares.rsqrt()).to(self.features.dtype)
            kept = (-caps, caps)
            self._caps.clear()
            self._caps[length] = kept
        return kept  # whatever another thread has asked for meanwhile

    @cached_property
    def arrays(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.int64]]:
        """Features, labels in their precision, and offsets, for a compiled kernel."""
        labels = self.labels.to(self.features.dtype)
        return self.features.numpy(), labels.numpy(), self.segments.offsets.numpy()

    @cached_property
    def _caps(self) -> dict[float, tuple[Tensor, Tensor]]:
        return {}

    @property
    def parties(self) -> int:
        """The number m of parties."""
        return self.segments.parties

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"RecordBatch({len(self)} records × {self.features.shape[1]} features)"

    def on(self, device: str) -> RecordBatch:
        """These records on another device; itself, if they are there."""
        if self.features.device == torch.device(device):
            return self
        return _trusted(
            features=self.features.to(device),
            labels=self.labels.to(device),
            squares=self.squares.to(device),
            segments=self.segments.on(device),
        )

    def select(self, indices: Tensor) -> RecordBatch:
        """The records at strictly increasing ``indices``, each still with its party."""
        if bool((indices.diff() <= 0).any()):
            raise ValueError("indices must strictly increase: a record counts at most once.")
        return _trusted(
            features=self.features[indices],
            labels=self.labels[indices],
            squares=self.squares[indices],
            segments=Segments(offsets=torch.searchsorted(indices, self.segments.offsets)),
        )

    def singly(self, start: int, stop: int) -> RecordBatch:
        """Records ``start`` to ``stop``, each treated as a party of its own."""
        return _trusted(
            features=self.features[start:stop],
            labels=self.labels[start:stop],
            squares=self.squares[start:stop],
            segments=Segments(offsets=torch.arange(stop - start + 1)),
        )

    def parts(self, size: int) -> list[tuple[slice, RecordBatch]]:
        """Consecutive records in parts of at most ``size``, each with the parties it touches.

        A party that fits stays whole. A larger one is cut at multiples of a length counted from its
        own first record, at ends of blocks where ``size`` allows. The order of its summation
        therefore depends only on its own number of records, and its sums in the precision of the
        data equal those of the whole batch. If there is any record, the parts cover all parties,
        even empty ones. Cached for the next round.
        """
        if size not in self._parts:
            self._parts[size] = list(self._cut(size))
        return self._parts[size]

    @cached_property
    def _parts(self) -> dict[int, list[tuple[slice, RecordBatch]]]:
        return {}

    def _cut(self, size: int) -> Iterator[tuple[slice, RecordBatch]]:
        offsets, first = self.segments.offsets.tolist(), 0
        piece = size - size % BLOCK or size
        while first < self.parties:
            start = offsets[first]
            last = bisect_right(offsets, start + size) - 1
            if offsets[last] == start and last < self.parties:  # none, or empty ones, fit
                last = bisect_right(offsets, offsets[last + 1]) - 1  # and empty ones behind it
            stop = offsets[last]
            length = piece if stop - start > size else size
            for begin in range(start, stop, length):
                end = min(begin + length, stop)
                yield slice(first, last), self._part(first, last, begin, end)
            first = last

    def _part(self, first: int, last: int, start: int, stop: int) -> RecordBatch:
        """Records ``start`` to ``stop`` of the parties ``first`` to ``last``."""
        offsets = self.segments.offsets[first : last + 1]
        return _trusted(
            features=self.features[start:stop],
            labels=self.labels[start:stop],
            squares=self.squares[start:stop],
            segments=Segments(offsets=offsets.clamp(start, stop) - start),
        )


def _trusted(**fields: Tensor | Segments) -> RecordBatch:
    """A batch of records that were checked as part of another."""
    batch = object.__new__(RecordBatch)
    for name, value in fields.items():
        object.__setattr__(batch, name, value)
    return batch


def _check_records(features: Tensor, labels: Tensor) -> None:
    if features.ndim != 2 or features.dtype not in (torch.float32, torch.float64):
        raise ValueError(
            "features must be a float32 or float64 matrix (records, coordinates), "
            f"got {features.dtype} of shape {tuple(features.shape)}."
        )
    if not features.is_contiguous():
        raise ValueError("features must be contiguous, row by row; call .contiguous() once.")
    if labels.shape != features.shape[:1]:
        raise ValueError(
            f"labels must have one entry per record, shape {tuple(features.shape[:1])}, "
            f"got {tuple(labels.shape)}."
        )


def _check_offsets(offsets: Tensor, records: int) -> None:
    if offsets.ndim != 1 or offsets.is_floating_point() or len(offsets) < 2:
        raise ValueError("offsets must be a vector of at least two integers.")
    if int(offsets[0]) != 0 or int(offsets[-1]) != records or bool((offsets.diff() < 0).any()):
        raise ValueError(
            f"offsets must not decrease and run from 0 to the number of records, {records}, "
            f"got {int(offsets[0])} to {int(offsets[-1])}."
        )
