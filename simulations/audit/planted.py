"""Planted gradients: canaries in the sums of an experiment, each there by a coin.

A canary is a record whose gradient is known: of a linear model of the size of the experiment's, at
zero, with features of its own, far longer than the clip norm. The parties' own code computes, clips
and rounds its gradient, for the same query that the experiment's parties answer; it is then added
to their sum. Canaries share no coordinates, so none hides another, and their gradients are clipped
in every round, whatever the model has learnt.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.federation.party.answers import Holdings
from fedpriv.federation.party.draws import Draws
from fedpriv.federation.queries.kinds import GradientQuery
from fedpriv.federation.task import Task
from fedpriv.learning.batch import RecordBatch
from fedpriv.learning.losses import Logistic
from fedpriv.learning.models import LinearModel

if TYPE_CHECKING:
    from collections import Counter

    from numpy.typing import NDArray

    from fedpriv.federation.engines.question import Question
    from fedpriv.secagg.numbers.fixed_point import Ring

_LONG = 1e3  # of the features of a canary, in units of the clip norm
_NUMBERS = 1 << 23  # in memory at a time


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Planted:
    """The canaries of a run.

    Attributes:
        blocks: int64 (m, k): the coordinates of each.
        signs: float64 (m, k), ±1: its direction there.
        coins: bool (m,): heads or tails.
        replacing: Whether tails are the opposite record, or none.
        joins: A generator for the coins of samples.
    """

    blocks: NDArray[np.int64]
    signs: NDArray[np.float64]
    coins: NDArray[np.bool_]
    replacing: bool
    joins: np.random.Generator

    @classmethod
    def drawn(
        cls, count: int, dimension: int, *, replacing: bool, rng: np.random.Generator
    ) -> Planted:
        """Random canaries for a model of so many coordinates: each has as many, and no other's."""
        width = dimension // count
        return cls(
            blocks=rng.permutation(dimension)[: count * width].reshape(count, width),
            signs=rng.choice((-1.0, 1.0), size=(count, width)),
            coins=rng.random(count) < 0.5,
            replacing=replacing,
            joins=rng,
        )

    def answers(
        self, query: GradientQuery, task: Task, chosen: slice, *, heads: bool
    ) -> NDArray[np.float64]:
        """The answers of parties that hold one canary each, and nothing else."""
        blocks, signs = self.blocks[chosen], self.signs[chosen]
        count = len(blocks)
        features = np.zeros((count, task.dimension), np.float32)
        long = _LONG * query.clip_norm / np.sqrt(blocks.shape[1])
        features[np.arange(count)[:, None], blocks] = long * signs
        label = np.float32(-1 if heads else 1)  # of the gradient -y·x/2
        batch = RecordBatch(
            features=torch.from_numpy(features),
            labels=torch.full((count,), float(label)),
            offsets=torch.arange(count + 1),
        )
        sizes = tuple(task.sizes[k % task.parties] for k in range(chosen.start, chosen.stop))
        linear = Task(
            model=LinearModel(width=task.dimension),
            loss=Logistic(),
            regulariser=0.0,
            feature_bound=2 * _LONG * query.clip_norm,
            sizes=task.sizes,
        )
        everybody: dict[str, Any] = {"theta": np.zeros(task.dimension)}
        if query.sampling_rate < 1:
            everybody |= {"sampling_rate": 1.0, "event": None}
        return (
            Holdings(linear, batch, sizes=sizes)
            .answer(replace(query, **everybody), Draws())
            .vectors
        )


class PlantedFederation(VectorizedFederation):
    """The `vectorized` federation, with canaries in its sums.

    Attributes:
        heads: Of the latest sum: what every canary adds on its coordinates, (m, k), if heads.
        tails: The same, if tails.
        added: What all canaries that joined added to it, by their coins.
    """

    def __init__(self, *args: Any, planted: Planted, **options: Any) -> None:
        super().__init__(*args, **options)
        self._planted = planted
        self.heads = np.zeros(planted.blocks.shape)
        self.tails = np.zeros(planted.blocks.shape)
        self.added: NDArray[np.float64] = np.zeros(0)

    def _add_up(self, question: Question) -> tuple[Ring, Counter[str]]:
        total, counts = super()._add_up(question)
        before = total.copy()
        query, planted, task = question.query, self._planted, self._task
        if not isinstance(query, GradientQuery):
            raise TypeError(f"canaries are planted in sums of gradients, got {query.kind!r}.")
        joining = planted.joins.random(len(planted.coins)) < query.sampling_rate
        bound = max(query.answer_bound(task, size) for size in set(task.sizes))
        rows = max(1, _NUMBERS // task.dimension)
        for start in range(0, len(planted.coins), rows):
            chosen = slice(start, min(start + rows, len(planted.coins)))
            places = np.arange(chosen.stop - start)[:, None], planted.blocks[chosen]
            for heads, kept in ((True, self.heads), (False, self.tails)):
                if not (heads or planted.replacing):
                    continue
                vectors = planted.answers(query, task, chosen, heads=heads).astype(np.float64)
                kept[chosen] = vectors[places]
                there = (planted.coins[chosen] == heads) & joining[chosen]
                if there.any():
                    total += query.grid.encode_sum(vectors[there], bound=bound)
        grid = question.query.grid
        self.added = np.asarray(grid.decode(total - before) * grid.step, np.float64)
        return total, counts
