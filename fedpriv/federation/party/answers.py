"""Answers of parties to each kind of query, one row per party, from records stacked by party.

The same code serves one party alone and thousands in one process. It knows nothing of noise on a
sum; `draws` makes the parties' random draws: samples, and the noise that they add themselves.

A party's number of records stays private: divisors and weights depend on its *size*, the number
that the task states for it, whether it has that many records, more, or none.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from operator import mul
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fedpriv.federation.party.counting import party_sums, right_or_wrong
from fedpriv.federation.party.losses import clipped_loss_sums
from fedpriv.federation.party.moments import second_moments
from fedpriv.federation.party.statistics import side_by_side, table_sums
from fedpriv.federation.queries.accuracy import MOST_RECORDS, AccuracyQuery
from fedpriv.federation.queries.bounds import most_in_blocks, summed_in_float64
from fedpriv.federation.queries.kinds import (
    ErmQuery,
    GradientQuery,
    HessianQuery,
    LossQuery,
    MomentsQuery,
    RiskGradientQuery,
    StatisticsQuery,
)
from fedpriv.learning.batch import RecordBatch
from fedpriv.learning.clipping.clipped_sum import ClippedGradient, Clipping
from fedpriv.learning.clipping.norms import SMALLEST_CLIP
from fedpriv.learning.clipping.one_by_one import sum_one_by_one
from fedpriv.learning.erm.certificate import ToleranceNotReachedError
from fedpriv.learning.erm.problem import ErmProblem
from fedpriv.learning.erm.solver import solve
from fedpriv.learning.models import LinearModel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray
    from torch import Tensor

    from fedpriv.federation.party.draws import Draws
    from fedpriv.federation.queries.base import Query
    from fedpriv.federation.task import Task
    from fedpriv.learning.clipping.persons import PersonGroups

    Measured = tuple[NDArray[np.float64], tuple[Tensor, ...]]

_WIDE_NUMBERS = 1 << 21  # in float64 at a time


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Answers:
    """The exact answers of m parties. **Private**, all of it.

    Attributes:
        vectors: float64 (m, d), one row per party.
        counts: What a simulation reports: units in the sum, and clipped ones among them.
    """

    vectors: NDArray[np.float64]
    counts: Mapping[str, int] = field(default_factory=dict)


class Holdings:
    """The stacked records of some parties, and their answers. Fixed intermediate results are kept.

    Args:
        task: The public facts.
        batch: The records, checked against the task.
        sizes: The public n_j of these parties.
        first: The index of the first of these parties among all parties.
        persons: Whose records these are, for the person unit of privacy.
    """

    def __init__(
        self,
        task: Task,
        batch: RecordBatch,
        *,
        sizes: tuple[int, ...],
        first: int = 0,
        persons: PersonGroups | None = None,
    ) -> None:
        if len(sizes) != batch.parties:
            raise ValueError(
                f"sizes must be one per party, {batch.parties}, got {len(sizes)} of them."
            )
        self._task = task
        self._batch = batch
        self._sizes = sizes
        self._first = first
        if (persons is None) != (task.persons is None):
            raise ValueError("persons must be given for the person unit of privacy, and only then.")
        self._persons = persons
        self._gradient: ClippedGradient | None = None

    @property
    def units(self) -> int:
        """The number of records, or persons: the population of a Poisson sample."""
        return len(self._batch) if self._persons is None else len(self._persons)

    def answer(self, query: Query, draws: Draws) -> Answers:
        """The answer of every party, before fixed point: at most `answer_bound` of its size."""
        if query.kind not in ANSWERED:
            raise ValueError(f"how to answer a query of kind {query.kind!r} is unknown here.")
        answers = ANSWERED[query.kind](self, query, draws)
        if query.joint_fit or not self._crowded:
            return answers
        bounds = _column([query.answer_bound(self._task, size) for size in self._sizes])
        return replace(answers, vectors=answers.vectors.clip(-bounds, bounds))

    @cached_property
    def _crowded(self) -> bool:
        """Whether a party has more units than its size, so that a sum might exceed its bound.

        Clamping increases no distance between two answers, in any norm, and keeps their order in
        each coordinate: it does not increase the sensitivity.
        """
        return bool((self._unit_offsets.diff() > torch.tensor(self._sizes)).any())

    @property
    def _unit_offsets(self) -> Tensor:
        """Where the records, or persons, of each party begin and end."""
        if self._persons is None:
            return self._batch.segments.offsets
        return torch.from_numpy(self._persons.parties)

    def clipped_gradients(self, query: GradientQuery, draws: Draws) -> Answers:
        """`GradientQuery`."""
        vectors, measures = self._gradient_sums(query, draws)
        if query.weights == "equal":
            weights = [self._task.gradient_weight("equal", size) for size in self._sizes]
            vectors = vectors * _column(weights)
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is not kept
            squares = reduce(mul, [measure.numpy() for measure in measures])
        kept = squares <= query.clip_norm**2
        if query.counting is not None:
            offsets = self._unit_offsets
            if draws.sample is not None:  # of the sample, which keeps their order
                offsets = torch.searchsorted(torch.from_numpy(draws.sample), offsets)
            signs = party_sums(2 * torch.from_numpy(kept).to(torch.int64) - 1, offsets)
            vectors = np.column_stack([vectors / query.clip_norm, signs * (query.counting / 2)])
        clipped = len(kept) - int(np.count_nonzero(kept))
        return Answers(vectors=vectors, counts={"units": len(kept), "clipped": clipped})

    def clipped_losses(self, query: LossQuery, draws: Draws) -> Answers:
        """`LossQuery`. Sums of integers: every loss in steps of the grid, rounded down."""
        batch, persons = draws.sampled(self._batch, self._persons)
        return Answers(vectors=clipped_loss_sums(query, self._task, batch, persons))

    def right_and_wrong(self, query: AccuracyQuery, _draws: Draws) -> Answers:
        """`AccuracyQuery`. Sums of integers."""
        ones = right_or_wrong(query, self._task, self._batch)
        counts = party_sums(ones, self._batch.segments.offsets).clip(max=MOST_RECORDS)
        return Answers(vectors=counts.astype(np.float64))

    def second_moments(self, query: MomentsQuery, draws: Draws) -> Answers:
        """`MomentsQuery`."""
        batch, persons = draws.sampled(self._batch, self._persons)
        return Answers(vectors=second_moments(query, self._task, batch, persons))

    def hessians(self, query: HessianQuery, _draws: Draws) -> Answers:
        """`HessianQuery`."""
        vectors = second_moments(query.moments, self._task, self._batch, self._persons)
        return Answers(vectors=vectors)

    def statistics(self, query: StatisticsQuery, _draws: Draws) -> Answers:
        """`StatisticsQuery`."""
        vectors = table_sums(query, self._task, self._batch, self._persons)
        if query.by_party:
            vectors = side_by_side(vectors, first=self._first, parties=self._task.parties)
        return Answers(vectors=vectors)

    def _gradient_sums(self, query: GradientQuery, draws: Draws) -> Measured:
        """Clipped sums in the precision that the sensitivity of the query is stated for."""
        task = self._task
        clipping = Clipping(
            clip_norm=query.clip_norm,
            centre=_tensor(query.centre),
            scale=_tensor(query.scale),
            norm=query.clip_in,
        )
        batch, persons = draws.sampled(self._batch, self._persons)
        if persons is not None:
            return self._person_sums(query, batch, persons, clipping)
        if summed_in_float64(query, task):
            return self._wide_sums(query.theta, batch, clipping)
        gradient = self._gradient  # of the full batch: prepared once
        if (
            gradient is None
            or gradient.batch is not batch
            or gradient.clipping.clip_norm != query.clip_norm
            or gradient.clipping.scaled
            or clipping.scaled
        ):
            gradient = ClippedGradient(
                model=task.model, loss=task.loss, batch=batch, clipping=clipping
            )
        if batch is self._batch:
            self._gradient = gradient
        # Converted by numpy in one go: PyTorch would let other threads run in between.
        with np.errstate(over="ignore"):  # what is infinite has no gradient
            theta = query.theta.astype(batch.features.numpy().dtype)
        sums = gradient(torch.from_numpy(theta))
        vectors = sums.value.numpy()
        counts = batch.segments.offsets.diff()
        for party in (counts > most_in_blocks(query, task)).nonzero().flatten().tolist():
            vectors[party] = sum_one_by_one(
                task.model, task.loss, torch.from_numpy(theta), batch, clipping, party=party
            )
        return vectors, sums.measures

    def _person_sums(
        self, query: GradientQuery, batch: RecordBatch, persons: PersonGroups, clipping: Clipping
    ) -> Measured:
        """Sums of persons' gradients, each person's clipped as one; a sample is one of persons."""
        from fedpriv.learning.clipping.persons import clipped_person_sums  # it loads a compiler

        with np.errstate(over="ignore"):  # what is infinite has no gradient
            theta = query.theta.astype(batch.features.numpy().dtype)
        model, loss, point = self._task.model, self._task.loss, torch.from_numpy(theta)
        sums = clipped_person_sums(model, loss, point, batch, persons, clipping)
        return sums.value.numpy(), sums.measures

    def exact_gradients(self, query: RiskGradientQuery, _draws: Draws) -> Answers:
        """`RiskGradientQuery`. In float64, clipped at twice the bound, which none reaches."""
        if self._persons is not None:
            return self._mean_gradients(query.theta, self._persons)
        bound = 2 * self._task.gradient_bound(query.theta)
        clipping = Clipping(clip_norm=max(SMALLEST_CLIP, bound))
        return Answers(vectors=self._wide_sums(query.theta, self._batch, clipping)[0])

    def _mean_gradients(self, theta: NDArray[np.float64], persons: PersonGroups) -> Answers:
        """Sums over persons of the mean of a person's exact gradients, in float64."""
        from fedpriv.learning.clipping.persons import mean_gradient_sums  # it loads a compiler

        model = self._task.model
        if not isinstance(model, LinearModel):
            raise TypeError(f"a joint fit must be of a linear model, got {type(model).__name__}.")
        size = _WIDE_NUMBERS // model.dimension + 1
        sums = mean_gradient_sums(
            model, self._task.loss, torch.tensor(theta), self._batch, persons, size=size
        )
        return Answers(vectors=sums.numpy())

    def _wide_sums(
        self, theta: NDArray[np.float64], batch: RecordBatch, clipping: Clipping
    ) -> Measured:
        """Clipped sums in float64, over few enough records at a time to bound the memory."""
        point = torch.tensor(theta)
        vectors = np.zeros((batch.parties, self._task.dimension))
        measures: list[tuple[Tensor, ...]] = []
        for parties, part in batch.parts(_WIDE_NUMBERS // self._task.model.features + 1):
            wide = RecordBatch(
                features=part.features.to(torch.float64),
                labels=part.labels,
                offsets=part.segments.offsets,
            )
            gradient = ClippedGradient(
                model=self._task.model, loss=self._task.loss, batch=wide, clipping=clipping
            )
            sums = gradient(point)
            vectors[parties] += sums.value.numpy()
            measures.append(sums.measures)
        if not measures:
            return vectors, (batch.squares,)
        return vectors, tuple(torch.cat(column) for column in zip(*measures, strict=True))

    def minimisers(self, query: ErmQuery, draws: Draws) -> Answers:
        """`ErmQuery`."""
        problem = ErmProblem(
            features=self._batch.features,
            labels=self._batch.labels,
            offsets=self._batch.segments.offsets,
            loss=self._task.loss,
            regulariser=query.regulariser,
            feature_bound=self._task.feature_bound,
            counts=torch.tensor(self._sizes),
            groups=None if self._persons is None else torch.from_numpy(self._persons.bounds),
            linear=_tensor(draws.linear),
            extra_regulariser=_tensor(draws.extra_regulariser),
        )
        try:
            theta = solve(problem, tolerance=query.tolerance).theta
        except ToleranceNotReachedError as error:
            failed = tuple(self._first + index for index in error.parties)
            raise ToleranceNotReachedError(query.tolerance, failed) from None
        weights = [self._task.model_weight(query.weights, size) for size in self._sizes]
        return Answers(vectors=theta.reshape(len(theta), -1).numpy() * _column(weights))


ANSWERED: dict[str, Callable[[Holdings, Any, Draws], Answers]] = {
    GradientQuery.kind: Holdings.clipped_gradients,
    ErmQuery.kind: Holdings.minimisers,
    RiskGradientQuery.kind: Holdings.exact_gradients,
    LossQuery.kind: Holdings.clipped_losses,
    AccuracyQuery.kind: Holdings.right_and_wrong,
    MomentsQuery.kind: Holdings.second_moments,
    HessianQuery.kind: Holdings.hessians,
    StatisticsQuery.kind: Holdings.statistics,
}
"""How parties compute the answers to each kind of query, in exact arithmetic up to rounding."""


def _column(values: list[float]) -> NDArray[np.float64]:
    return np.array(values)[:, np.newaxis]


def _tensor(values: NDArray[np.float64] | None) -> Tensor | None:
    return None if values is None else torch.tensor(values)
