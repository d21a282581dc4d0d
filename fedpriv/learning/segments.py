"""Sums over the records of each party: short float32 sums first, float64 from there on.

Records are stacked party by party. Every party is cut into blocks of at most `BLOCK` records; one
kernel sums each block in the precision of the data, and block sums are added in float64. The error
of a sum therefore depends on `BLOCK`, not on the number of records (see
`fedpriv.learning.clipping.clipped_sum`). A block belongs to one party and is summed in the order of
its records by one thread, so nothing crosses from one party to another.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

_SUM = 0  # the mode of torch.embedding_bag

BLOCK = 128
"""Records summed in the precision of the data: long enough for fast matrix products."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Segments:
    """Segments of stacked records: party j owns records offsets[j] … offsets[j+1] - 1.

    Attributes:
        offsets: (m+1,) int64, from 0 to the number of records, not decreasing.
    """

    offsets: Tensor

    @cached_property
    def records(self) -> int:
        """The number of records."""
        return int(self.offsets[-1])

    @cached_property
    def parties(self) -> int:
        """The number m of parties."""
        return len(self.offsets) - 1

    @cached_property
    def owners(self) -> Tensor:
        """(m+1,): party j owns blocks owners[j] … owners[j+1] - 1, at least one, maybe empty."""
        blocks = ((self.offsets.diff() + BLOCK - 1) // BLOCK).clamp(min=1)
        return torch.cat([blocks.new_zeros(1), blocks.cumsum(0)])

    @cached_property
    def blocks(self) -> Tensor:
        """(b+1,): block i holds records blocks[i] … blocks[i+1] - 1."""
        counts = self.owners.diff()
        within = torch.arange(int(self.owners[-1])) - self.owners[:-1].repeat_interleave(counts)
        starts = self.offsets[:-1].repeat_interleave(counts) + BLOCK * within
        return torch.cat([starts, self.offsets[-1:]])

    @cached_property
    def runs(self) -> list[tuple[int, int, slice]]:
        """Neighbouring blocks of equal length: how many, records in each, records in all."""
        lengths, counts = torch.unique_consecutive(self.blocks.diff(), return_counts=True)
        stops = (lengths * counts).cumsum(0).tolist()
        starts = [0, *stops[:-1]]
        slices = [slice(start, stop) for start, stop in zip(starts, stops, strict=True)]
        return list(zip(counts.tolist(), lengths.tolist(), slices, strict=True))

    @cached_property
    def order(self) -> Tensor:
        """0 … records - 1."""
        return torch.arange(self.records)

    def weighted_sums(self, weights: Tensor, rows: Tensor) -> Tensor:
        """Σ wᵢ·rowᵢ of every party, (m, d): one pass over the rows, any party sizes."""
        return self._fold(_bag_sums(rows, self.order, self.blocks, weights))

    def outer_sums(self, left: Tensor, right: Tensor) -> Tensor:
        """Σ leftᵢ ⊗ rightᵢ of every party, (m, k·p), by batched matrix products.

        One product for each run of blocks of equal length: parties in order of size are fastest.
        """
        k, p = left.shape[1], right.shape[1]
        if k == 1 and right.is_contiguous():
            return self.weighted_sums(left.squeeze(1), right)
        blocks = []
        for count, length, records in self.runs:
            whole = length * count == self.records
            a, b = (left, right) if whole else (left[records], right[records])
            lefts, rights = a.view(count, length, k), b.view(count, length, p)
            blocks.append(torch.bmm(lefts.transpose(1, 2), rights).view(count, k * p))
        return self._fold(blocks[0] if len(blocks) == 1 else torch.cat(blocks))

    def sums(self, rows: Tensor) -> Tensor:
        """Σ rowᵢ of every party, float64 (m, d), in float64 throughout: for narrow rows."""
        return _bag_sums(rows.to(torch.float64), self.order, self.offsets, None)

    def _fold(self, blocks: Tensor) -> Tensor:
        """Add up the block sums of every party, in float64; a single block is left as it is.

        Always in the same order: where a party stands alone may follow from records of others.
        """
        if len(blocks) == self.parties:
            return blocks
        return _bag_sums(blocks.double(), torch.arange(len(blocks)), self.owners, None)


def _bag_sums(rows: Tensor, order: Tensor, offsets: Tensor, weights: Tensor | None) -> Tensor:
    """Segment sums by PyTorch's embedding-bag kernel: each bag in order, by one thread."""
    return torch.embedding_bag(
        rows,
        order,
        offsets,
        scale_grad_by_freq=False,
        mode=_SUM,
        sparse=False,
        per_sample_weights=weights,
        include_last_offset=True,
    )[0]
