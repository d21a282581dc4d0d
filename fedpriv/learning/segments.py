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
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.functional import pad

_SUM = 0  # the mode of torch.embedding_bag

BLOCK = 128
"""Records summed in the precision of the data: long enough for fast matrix products."""

_HEIGHTS = (16, 32, 64, BLOCK)
"""The heights to which blocks are padded: 16 numbers are whole vectors on all processors."""

_ROWS_AT_ONCE = 1 << 12  # that are copied: bounds the memory, however short the blocks are
_ALIGNED = 64  # bytes: as everything that PyTorch allocates


@dataclass(frozen=True, kw_only=True, eq=False)
class _Stack:
    """Blocks that are multiplied together, filled up to one height h.

    Attributes:
        blocks: (b,), which of all blocks.
        places: Their records (b·h); arbitrary ones at padded positions.
        filling: (b, h), which of these are padding.
    """

    blocks: Tensor
    places: Tensor | slice
    filling: Tensor

    def on(self, device: str) -> _Stack:
        """The same on another device."""
        places = self.places if isinstance(self.places, slice) else self.places.to(device)
        return _Stack(blocks=self.blocks.to(device), places=places, filling=self.filling.to(device))

    def of(self, rows: Tensor) -> Tensor:
        """The rows of the blocks, (b, h, p), always stored alike."""
        if isinstance(self.places, slice):
            taken = rows[self.places]
            taken = taken.clone() if taken.data_ptr() % _ALIGNED else taken
        else:
            taken = rows.index_select(0, self.places)
        return taken.view(*self.filling.shape, -1)


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
    def stacks(self) -> list[_Stack]:
        """The blocks that have records, by how far they are filled up: by their own length."""
        lengths, found = self.blocks.diff(), []
        for shorter, height in pairwise((0, *_HEIGHTS)):
            found.append((height, lengths == height))
            found.append((height, (shorter < lengths) & (lengths < height)))
        return [
            self._stack(blocks, height)
            for height, some in found
            for blocks in torch.split(torch.nonzero(some).squeeze(1), _ROWS_AT_ONCE // height)
            if len(blocks)
        ]

    def _stack(self, blocks: Tensor, height: int) -> _Stack:
        row, starts = torch.arange(height), self.blocks[blocks, None]
        filling = row >= self.blocks.diff()[blocks, None]
        first, last = int(starts[0]), int(starts[-1]) + height
        if last - first == filling.numel() and not bool(filling.any()):
            return _Stack(blocks=blocks, places=slice(first, last), filling=filling)
        places = (starts + row).clamp(max=self.records - 1).flatten()
        return _Stack(blocks=blocks, places=places, filling=filling)

    @cached_property
    def order(self) -> Tensor:
        """0 … records - 1."""
        return torch.arange(self.records)

    def on(self, device: str) -> Segments:
        """The same segments for tensors of another device; places are found here, and copied."""
        moved = Segments(offsets=self.offsets.to(device))
        vars(moved).update(
            records=self.records,
            parties=self.parties,
            owners=self.owners.to(device),
            blocks=self.blocks.to(device),
            order=self.order.to(device),
            stacks=[stack.on(device) for stack in self.stacks],
        )
        return moved

    def weighted_sums(self, weights: Tensor, rows: Tensor) -> Tensor:
        """Σ wᵢ·rowᵢ of every party, (m, d): one pass over the rows, any party sizes."""
        return self._fold(_bag_sums(rows, self.order, self.blocks, weights))

    def add_outer_sums(
        self, left: Tensor, right: Tensor, sums: Tensor, *, first: int, bias: bool
    ) -> None:
        """Add Σ leftᵢ ⊗ rightᵢ of every party to columns of ``sums``, float64 (m, ·), from a first.

        With a bias, add Σ leftᵢ to the columns behind them, in float64 throughout.
        """
        if left.is_cpu:
            from fedpriv.learning.row_products import add_outer_sums  # it loads a compiler

            add_outer_sums(left, right, self.offsets, sums, first=first, bias=bias)
            return
        outer = self.outer_sums(left, right)
        last = first + outer.shape[1]
        sums[:, first:last] += outer
        if bias:
            sums[:, last : last + left.shape[1]] += self.sums(left)

    def outer_sums(self, left: Tensor, right: Tensor) -> Tensor:
        """Σ leftᵢ ⊗ rightᵢ of every party, (m, k·p), by batched matrix products: for accelerators.

        Every block is summed by the same instructions, whatever the other blocks: otherwise a
        record would change the last digits of other parties' sums, which decide how they are
        rounded to a grid. A product uses other instructions for unaligned numbers, for other rows,
        and for a single block. So blocks are copied, padded with zeros to multiples of 16 records
        and columns, and never multiplied alone.
        """
        k, p = left.shape[1], right.shape[1]
        if k == 1:
            return self.weighted_sums(left.squeeze(1), right.contiguous())
        sums = left.new_zeros((len(self.blocks) - 1, k * p))
        left, wide = left.contiguous(), pad(right.contiguous(), (0, -p % _HEIGHTS[0]))
        for stack in self.stacks:
            lefts = stack.of(left).masked_fill(stack.filling.unsqueeze(2), 0.0)
            rights, count = stack.of(wide), len(stack.blocks)
            if count == 1:
                lefts, rights = lefts.repeat(2, 1, 1), rights.repeat(2, 1, 1)
            products = torch.bmm(lefts.transpose(1, 2), rights)
            sums[stack.blocks] = products[:count, :, :p].flatten(1)
        return self._fold(sums)

    def sums(self, rows: Tensor) -> Tensor:
        """Σ rowᵢ of every party, float64 (m, d), in float64 throughout: for narrow rows."""
        return _bag_sums(rows.to(torch.float64), self.order, self.offsets, None)

    def _fold(self, blocks: Tensor) -> Tensor:
        """Add up the block sums of every party, in float64; a single block is left as it is.

        Always in the same order: the position of a party may depend on records of others.
        """
        if len(blocks) == self.parties:
            return blocks
        places = torch.arange(len(blocks), device=blocks.device)
        return _bag_sums(blocks.double(), places, self.owners, None)


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
