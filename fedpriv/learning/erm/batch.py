"""ERM problems of many parties as one dense float64 array: ragged records in equal blocks.

A party's records are cut into blocks of one common length, the last one filled up with zero rows.
A zero row has no score, no gradient and no Hessian, so the filling needs no mask; every sum over
a party's records becomes a batched matrix product and a sum of few block results.

Shapes: m parties, b blocks of r records, d coordinates, k scores per record (1, but for softmax);
θ and gradients (m, k, d); scores and slopes (b, k, r).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from fedpriv.learning.erm.problem import ErmProblem
    from fedpriv.learning.losses import Loss

_SHORTEST_BLOCK = 64
_ANY_LABEL = 1  # valid for every loss, of no effect on a zero row


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ErmBatch:
    """The objectives J_j of some parties, to be evaluated at one θ_j per party, or at one θ.

    Attributes:
        features: (b, r, d), float64.
        labels: (b, r).
        owner: (b,): the party of a block; None if every party is exactly one block, in order.
        weights: (b, r), float64: what a record's loss counts, 0 for the filling; None means 1.
        sizes: (m,), float64: the true numbers of records.
        members: (m,), float64: what the sums run over: records, or groups of them; Σ weights.
        counts: (m,), float64: n_j, the public divisors of the sums over records.
        loss: The loss of a record.
        feature_bound: B, the public bound on ‖x‖₂.
        strong_convexity: (m,): Λ_j.
        linear: (m, k, d): b_j/n_j; None means zero.
    """

    features: Tensor
    labels: Tensor
    weights: Tensor | None
    owner: Tensor | None
    sizes: Tensor
    members: Tensor
    counts: Tensor
    loss: Loss
    feature_bound: float
    strong_convexity: Tensor
    linear: Tensor | None

    @classmethod
    def of(
        cls, problem: ErmProblem, parties: Tensor | None = None, *, whole: bool = False
    ) -> ErmBatch:
        """Stack the chosen parties (all by default); ``whole`` makes every party one block."""
        if parties is None:
            parties = torch.arange(problem.parties)
        first, sizes = problem.offsets[parties], problem.sizes[parties]
        counts = problem.divisors[parties].to(torch.float64)
        longest = max(1, int(sizes.max()))
        equal = bool((sizes == longest).all())
        d = problem.features.shape[1]
        length = longest if whole or equal else min(longest, max(_SHORTEST_BLOCK, d))
        blocks = ((sizes + length - 1) // length).clamp(min=1)  # without records, one of filling
        m, b, weights = len(parties), int(blocks.sum()), problem.weights
        if equal and bool((first.diff() == longest).all()):  # a view, or one conversion
            rows = slice(int(first[0]), int(first[0]) + m * longest)
            features = problem.features[rows].to(torch.float64)
            labels = problem.labels[rows]
            weights = None if weights is None else weights[rows]
        else:
            within = _ranges(sizes)
            target = (blocks.cumsum(0) - blocks).repeat_interleave(sizes) * length + within
            source = first.repeat_interleave(sizes) + within
            features = problem.features.new_zeros((b * length, d), dtype=torch.float64)
            features[target] = problem.features[source].to(torch.float64)
            labels = torch.full((b * length,), _ANY_LABEL, dtype=problem.labels.dtype)
            labels[target] = problem.labels[source]
            if weights is not None:
                weights = weights.new_zeros(b * length).index_copy_(0, target, weights[source])
        if problem.loss.outputs == 1:
            labels = labels.to(torch.float64)
        linear = None
        if problem.linear is not None:
            shares = problem.linear.to(torch.float64)[parties].reshape(m, -1, d)
            linear = shares / counts.view(-1, 1, 1)
        return cls(
            features=features.reshape(b, length, d),
            labels=labels.reshape(b, length),
            weights=None if weights is None else weights.reshape(b, length),
            owner=None if b == m else torch.arange(m).repeat_interleave(blocks),
            sizes=sizes.to(torch.float64),
            members=problem.members[parties].to(torch.float64),
            counts=counts,
            loss=problem.loss,
            feature_bound=problem.feature_bound,
            strong_convexity=problem.strong_convexity[parties],
            linear=linear,
        )

    @property
    def parties(self) -> int:
        """The number m of parties."""
        return len(self.sizes)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(m, k, d): the shape of all minimisers together."""
        return (self.parties, self.loss.outputs, self.features.shape[2])

    # What a linear model needs: records to scores, and weighted records back to parties.

    def scores(self, theta: Tensor) -> Tensor:
        """⟨θ, x⟩ for every record; ``theta`` is (m, k, d), or (k, d) common to all parties."""
        theta = theta.expand(self.shape)
        return torch.bmm(self.spread(theta), self.features.transpose(1, 2))

    def combine(self, weights: Tensor) -> Tensor:
        """Σ weight·x over every party's records, (m, k, d)."""
        return self.gather(torch.bmm(weights, self.features))

    def spread(self, per_party: Tensor) -> Tensor:
        """Party values, one copy per block."""
        return per_party if self.owner is None else per_party[self.owner]

    def gather(self, per_block: Tensor) -> Tensor:
        """Block values, summed over the blocks of a party in a fixed order."""
        if self.owner is None:
            return per_block
        zeros = per_block.new_zeros((self.parties, *per_block.shape[1:]))
        return zeros.index_add_(0, self.owner, per_block)

    def mean(self, per_record: Tensor) -> Tensor:
        """Σ/n_j over a party's records of numbers that vanish on the filling, (m,)."""
        return self.gather(per_record.sum((1, 2))) / self.counts

    # The loss at given scores.

    def slopes(self, scores: Tensor) -> Tensor:
        """The loss's slope, times the record's weight, (b, k, r)."""
        return self._weighted(self._turn(self.loss.slope(self._turn(scores), self._targets)))

    def curved(self, scores: Tensor, direction: Tensor) -> Tensor:
        """The loss's weighted second derivative applied to a direction of the scores, (b, k, r)."""
        turned = self._turn(direction)
        product = self.loss.curvature_product(self._turn(scores), self._targets, turned)
        return self._weighted(self._turn(product))

    # The objective and its derivatives.

    def value(self, theta: Tensor) -> Tensor:
        """J_j(θ), (m,)."""
        values = self.loss.value(self._turn(self.scores(theta)), self._targets)
        values = values.reshape(self.labels.shape).where(self.real(), 0.0)
        mean = self.mean(self._weighted(values.unsqueeze(1)))
        theta = theta.expand(self.shape)
        total = mean + self.strong_convexity * theta.square().sum((1, 2)) / 2
        return total if self.linear is None else total + (self.linear * theta).sum((1, 2))

    def gradient_sum(self, theta: Tensor) -> Tensor:
        """Σ ∇f over a party's records, without the regulariser: what a party adds up, (m, k, d)."""
        return self.combine(self.slopes(self.scores(theta)))

    def gradient(self, theta: Tensor, slopes: Tensor | None = None) -> Tensor:
        """∇J_j(θ), (m, k, d); if the slopes at θ are given, no score is computed again."""
        slopes = self.slopes(self.scores(theta)) if slopes is None else slopes
        return self.combine(slopes) / self.counts.view(-1, 1, 1) + self.pull(theta)

    def pull(self, theta: Tensor) -> Tensor:
        """The part of the gradient that depends on no record: Λθ + b/n."""
        pull = self.strong_convexity.view(-1, 1, 1) * theta
        return pull if self.linear is None else pull + self.linear

    def hessian_product(self, scores: Tensor, direction: Tensor) -> Tensor:
        """∇²J_j times a direction (m, k, d), at the point with these scores."""
        curved = self.curved(scores, self.scores(direction))
        smooth = self.combine(curved) / self.counts.view(-1, 1, 1)
        return smooth + self.strong_convexity.view(-1, 1, 1) * direction

    def _weighted(self, per_record: Tensor) -> Tensor:
        return per_record if self.weights is None else per_record * self.weights.unsqueeze(1)

    @property
    def _targets(self) -> Tensor:
        return self.labels.unsqueeze(1) if self.loss.outputs == 1 else self.labels

    def _turn(self, scores: Tensor) -> Tensor:
        """Between (b, k, r), as products want it, and (b, r, k), as a loss of k > 1 scores does."""
        return scores if self.loss.outputs == 1 else scores.transpose(1, 2)

    def real(self) -> Tensor:
        """True for a record, false for the filling, (b, r)."""
        position = _ranges(self.gather(torch.ones(len(self.labels), dtype=torch.int64)))
        left = self.spread(self.sizes) - position * self.labels.shape[1]
        return torch.arange(self.labels.shape[1]) < left.unsqueeze(1)


def _ranges(sizes: Tensor) -> Tensor:
    """0 … sizes[0]-1, 0 … sizes[1]-1, and so on, end to end."""
    starts = sizes.cumsum(0) - sizes
    return torch.arange(int(sizes.sum())) - starts.repeat_interleave(sizes)
