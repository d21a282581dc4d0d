"""Answers of parties to each kind of query, one row per party, from records stacked by party.

The same code serves one party alone and thousands in one process. It knows nothing of noise on a
sum; noise that parties add themselves, their own or a share, is drawn in `draw_local_noise`.

How many records a party has is nobody else's business: divisors and weights follow from its *size*,
the number that the task states for it, whether it has as many records, or more, or none.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from operator import mul
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fedpriv.federation.party.counting import right_or_wrong
from fedpriv.federation.queries.accuracy import MOST_RECORDS, AccuracyQuery
from fedpriv.federation.queries.bounds import objective_mechanism, summed_in_float64
from fedpriv.federation.queries.kinds import ErmQuery, GradientQuery, LossQuery, RiskGradientQuery
from fedpriv.learning.batch import RecordBatch
from fedpriv.learning.clipping.clipped_sum import ClippedGradient, Clipping
from fedpriv.learning.clipping.dense import filled
from fedpriv.learning.erm.certificate import ToleranceNotReachedError
from fedpriv.learning.erm.problem import ErmProblem
from fedpriv.learning.erm.solver import solve
from fedpriv.learning.models import LinearModel
from fedpriv.learning.sampling import poisson_sample
from fedpriv.privacy.mechanisms import GaussianMechanism
from fedpriv.privacy.samplers import rounded_normals

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray
    from torch import Tensor

    from fedpriv.federation.queries.base import Query
    from fedpriv.federation.task import Task
    from fedpriv.privacy.randomness import RandomStream

    Measured = tuple[NDArray[np.float64], tuple[Tensor, ...]]

_WIDE_NUMBERS = 1 << 21  # in float64 at a time
_DRAWS = 1 << 20  # at a time: bounds the memory


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Draws:
    """The random choices of some parties for one query.

    Attributes:
        sample: Which of their records join, increasing; None means all.
        linear: b_j of a perturbed objective, float64 (m, d).
        extra_regulariser: Δ_j of a perturbed objective, float64 (m,).
    """

    sample: NDArray[np.int64] | None = None
    linear: NDArray[np.float64] | None = None
    extra_regulariser: NDArray[np.float64] | None = None

    def of(self, parties: slice, records: slice) -> Draws:
        """The choices of some of the parties, who hold these of the records."""
        sample = self.sample
        if sample is not None:
            low, high = np.searchsorted(sample, (records.start, records.stop))
            sample = sample[low:high] - records.start
        return Draws(
            sample=sample,
            linear=None if self.linear is None else self.linear[parties],
            extra_regulariser=(
                None if self.extra_regulariser is None else self.extra_regulariser[parties]
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Answers:
    """The exact answers of m parties. **Private**, all of it.

    Attributes:
        vectors: float64 (m, d), one row per party.
        counts: What a simulation reports: records in the sum, and clipped ones among them.
    """

    vectors: NDArray[np.float64]
    counts: Mapping[str, int] = field(default_factory=dict)


class Holdings:
    """The records of some parties, stacked, and what they answer. What is fixed is kept.

    Args:
        task: The public facts.
        batch: The records, checked against the task.
        sizes: The public n_j of these parties.
        first: The index of their first party, for errors.
    """

    def __init__(
        self, task: Task, batch: RecordBatch, *, sizes: tuple[int, ...], first: int = 0
    ) -> None:
        if len(sizes) != batch.parties:
            raise ValueError(
                f"sizes must be one per party, {batch.parties}, got {len(sizes)} of them."
            )
        self._task = task
        self._batch = batch
        self._sizes = sizes
        self._first = first
        self._gradient: ClippedGradient | None = None

    def __len__(self) -> int:
        return len(self._batch)

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
    def _most(self) -> int:
        """The number of records of the largest of these parties. Private."""
        return int(self._batch.segments.offsets.diff().max())

    @cached_property
    def _crowded(self) -> bool:
        """Whether a party has more records than its size says, and a sum might exceed its bound.

        Clamping moves no two answers apart, in any norm, and keeps their order by coordinates: what
        one record can do to a sum, it can do to the clamped one.
        """
        return bool((self._batch.segments.offsets.diff() > torch.tensor(self._sizes)).any())

    def clipped_gradients(self, query: GradientQuery, draws: Draws) -> Answers:
        """`GradientQuery`."""
        vectors, measures = self._gradient_sums(query, draws)
        if query.weights == "equal":
            weights = [self._task.gradient_weight("equal", size) for size in self._sizes]
            vectors = vectors * _column(weights)
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is not kept
            squares = reduce(mul, [measure.numpy() for measure in measures])
        kept = squares <= query.clip_norm**2
        if query.counted:
            offsets = self._batch.segments.offsets
            if draws.sample is not None:  # of the sample, which keeps the order of the records
                offsets = torch.searchsorted(torch.from_numpy(draws.sample), offsets)
            counts = _party_sums(torch.from_numpy(kept).to(torch.int64), offsets)
            vectors = np.column_stack([vectors, counts])
        clipped = len(kept) - int(np.count_nonzero(kept))
        return Answers(vectors=vectors, counts={"records": len(kept), "clipped": clipped})

    def clipped_losses(self, query: LossQuery, _draws: Draws) -> Answers:
        """`LossQuery`. Sums of integers: every loss in steps of the grid, rounded down."""
        step, points = query.grid.step, torch.tensor(query.points)
        sums = np.zeros((self._batch.parties, len(points)), np.int64)
        for parties, part in self._batch.parts(_WIDE_NUMBERS // len(points) + 1):
            losses = self._losses(points, part).double().nan_to_num(nan=query.clip)
            levels = (losses.clamp(0, query.clip) / step).floor().to(torch.int64)
            sums[parties] += _party_sums(levels, part.segments.offsets)
        return Answers(vectors=sums * np.float64(step))

    def right_and_wrong(self, query: AccuracyQuery, _draws: Draws) -> Answers:
        """`AccuracyQuery`. Sums of integers."""
        ones = right_or_wrong(query, self._task, self._batch)
        counts = _party_sums(ones, self._batch.segments.offsets).clip(max=MOST_RECORDS)
        return Answers(vectors=counts.astype(np.float64))

    def _losses(self, points: Tensor, batch: RecordBatch) -> Tensor:
        """The loss of every record at every point, (n, k)."""
        model, loss = self._task.model, self._task.loss
        if isinstance(model, LinearModel):  # one pass for all points
            from fedpriv.learning.row_scores import row_scores  # it loads a compiler

            scores = row_scores(batch.features, points.reshape(-1, model.width))
            labels = batch.labels[:, None].expand(-1, len(points))
            if model.classes > 1:
                scores = scores.reshape(len(scores), len(points), model.classes)
            return filled(loss.value, scores, labels)
        columns = [
            filled(loss.value, model.scores(point, batch.features), batch.labels)
            for point in points
        ]
        return torch.stack(columns, dim=1)

    def _gradient_sums(self, query: GradientQuery, draws: Draws) -> Measured:
        """Clipped sums in the precision that the sensitivity of the query is stated for."""
        task, batch = self._task, self._batch
        clipping = Clipping(
            clip_norm=query.clip_norm, centre=_tensor(query.centre), scale=_tensor(query.scale)
        )
        if draws.sample is not None:
            batch = batch.select(torch.from_numpy(draws.sample))
        if summed_in_float64(query, task, records=self._most):
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
        # Converted by numpy in one go: PyTorch would let other threads in between.
        with np.errstate(over="ignore"):  # what is infinite has no gradient
            theta = query.theta.astype(batch.features.numpy().dtype)
        sums = gradient(torch.from_numpy(theta))
        return sums.value.numpy(), sums.measures

    def exact_gradients(self, query: RiskGradientQuery, _draws: Draws) -> Answers:
        """`RiskGradientQuery`. In float64, clipped at twice the bound: where nothing can be."""
        clipping = Clipping(clip_norm=2 * self._task.gradient_bound(query.theta))
        return Answers(vectors=self._wide_sums(query.theta, self._batch, clipping)[0])

    def _wide_sums(
        self, theta: NDArray[np.float64], batch: RecordBatch, clipping: Clipping
    ) -> Measured:
        """Clipped sums in float64, of so many records at a time that the memory stays bounded."""
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
}
"""How parties compute the answers to each kind of query, in exact arithmetic up to rounding."""


def draw(
    query: Query, task: Task, sizes: tuple[int, ...], stream: RandomStream, *, records: int
) -> Draws:
    """The random choices of parties with ``sizes``: samples, or terms of their objectives.

    A sample is one of the ``records`` that they really have, together; a term follows from sizes.
    """
    if query.sampling_rate < 1:
        sample = poisson_sample(records, rate=query.sampling_rate, uniforms=stream.uniform)
        return Draws(sample=sample)
    if isinstance(query, ErmQuery) and query.objective is not None:
        linear = np.empty((len(sizes), task.dimension))
        extra = np.empty(len(sizes))
        for size, members in _by_size(sizes).items():
            mechanism = objective_mechanism(query, query.objective, task, size)
            linear[members] = mechanism.draw_linear((len(members), task.dimension), stream)
            extra[members] = mechanism.extra_regulariser
        return Draws(linear=linear, extra_regulariser=extra)
    return Draws()


def draw_local_noise(
    query: Query, task: Task, sizes: tuple[int, ...], stream: RandomStream
) -> NDArray[np.int64] | None:
    """Σ of the integer noise that parties with ``sizes`` add to their answers; None if none."""
    d = query.answer_width(task)
    if query.share is not None:
        return query.share.draw_sum(len(sizes), dimension=d, stream=stream)
    members = {size: query.local_mechanism(task, size) for size in set(sizes)}
    if not any(members.values()):
        return None
    mechanisms = [mechanism for size in sizes if (mechanism := members[size]) is not None]
    step = query.grid.step
    total = np.zeros(d, np.int64)
    if all(isinstance(mechanism, GaussianMechanism) for mechanism in mechanisms):
        # One table for all standard deviations, instead of one for each.
        stddevs = np.array([mechanism.noise_stddev / step for mechanism in mechanisms])
        for group in np.array_split(stddevs, -(-len(stddevs) * d // _DRAWS)):
            total += rounded_normals(np.repeat(group, d), stream).reshape(-1, d).sum(axis=0)
        return total
    for mechanism, count in Counter(mechanisms).items():
        total += mechanism.noise((count, d), step=step, stream=stream).sum(axis=0)
    return total


def _by_size(sizes: tuple[int, ...]) -> dict[int, list[int]]:
    """The indices of the parties of each size, in order of first appearance."""
    groups: dict[int, list[int]] = {size: [] for size in Counter(sizes)}
    for index, size in enumerate(sizes):
        groups[size].append(index)
    return groups


def _party_sums(values: Tensor, offsets: Tensor) -> NDArray[np.int64]:
    """The sum over each party's records, of integers: exact, in any order."""
    total = torch.cat([values.new_zeros((1, *values.shape[1:])), values.cumsum(0)])
    return total[offsets].diff(dim=0).numpy()


def _column(values: list[float]) -> NDArray[np.float64]:
    return np.array(values)[:, np.newaxis]


def _tensor(values: NDArray[np.float64] | None) -> Tensor | None:
    return None if values is None else torch.tensor(values)
