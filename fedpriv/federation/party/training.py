"""Local training at parties, and the sum of their updates: the answers to `LocalTrainingQuery`.

The same code serves one party alone and thousands in one process. Updates are clipped, rounded to
the grid and added party by party, as integers, which add up exactly in any order; the updates of
all parties are never in memory at once, except with control variates, which have the same size.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch

from fedpriv.federation.protocol.wire import pack, unpack
from fedpriv.learning.batch import RecordBatch
from fedpriv.learning.sampling import poisson_sample
from fedpriv.learning.training.summed import RoundedSum
from fedpriv.learning.training.trainer import LocalTrainer
from fedpriv.secagg.errors import MalformedMessage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from fedpriv.federation.queries.local_training import LocalTrainingQuery
    from fedpriv.federation.task import Task
    from fedpriv.learning.training.settings import LocalSgd
    from fedpriv.privacy.randomness import RandomStream
    from fedpriv.secagg.numbers.fixed_point import Ring

    Mask = NDArray[np.bool_]
    Integers = NDArray[np.int64]
    Vectors = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Variates:
    """The control variates of some parties: **private**, they never leave.

    Attributes:
        run: The run that they belong to.
        round: The latest round in which the parties were asked.
        before: c_j before that round, float64 (m, d): a repeated query repeats the same training.
        after: c_j after it.
    """

    run: str
    round: int
    before: Vectors
    after: Vectors

    def to_bytes(self) -> bytes:
        """The variates of one party, for a deployment with a process per message."""
        number = self.round.to_bytes(8, "big")
        return pack([self.run.encode(), number, self.before.tobytes(), self.after.tobytes()])

    @classmethod
    def from_bytes(cls, data: bytes) -> Variates:
        """Read back what `to_bytes` wrote; `MalformedMessage` for anything else."""
        try:
            run, number, before, after = unpack(data)
            kept = cls(
                run=run.decode(),
                round=int.from_bytes(number, "big"),
                before=np.frombuffer(before)[np.newaxis],
                after=np.frombuffer(after)[np.newaxis],
            )
        except ValueError:
            raise MalformedMessage("These bytes are no control variates.") from None
        if kept.before.shape != kept.after.shape:
            raise MalformedMessage("Control variates have one length, before and after a round.")
        return kept


def coins(query: LocalTrainingQuery, parties: int, stream: RandomStream) -> Mask:
    """Which parties train, by one coin each; drawn only if the query has a rate."""
    tossed = np.ones(parties, dtype=bool)
    if query.party_rate < 1:
        tossed[:] = False
        tossed[poisson_sample(parties, rate=query.party_rate, uniforms=stream.uniform)] = True
    return tossed


class Trainees:
    """Some parties who train: their records, stacked, and what they keep between rounds.

    Args:
        task: The public facts.
        batch: The records, checked against the task.
        sizes: The public n_j of these parties.
        first: The number of the first party, which determines the order of its records.
        apart: Whether each is trained alone, where that matters (`place_free`). Training them
            together is faster, but matrix products may then round one party's update depending on
            the others' numbers of records: by a few units in the last place, which the noise of a
            release does not cover.
    """

    def __init__(
        self,
        task: Task,
        batch: RecordBatch,
        *,
        sizes: tuple[int, ...],
        first: int = 0,
        apart: bool = False,
    ) -> None:
        self._task = task
        self._batch = batch
        self._sizes = sizes
        self._first = first
        self._apart = apart and len(sizes) > 1
        self._trainer: tuple[LocalSgd, LocalTrainer] | None = None
        self.variates: Variates | None = None

    def answer(
        self, query: LocalTrainingQuery, joining: Mask | None = None
    ) -> tuple[Ring, Mapping[str, int]]:
        """The sum of the parties' answers in the query's ring, and what a simulation counts.

        Args:
            query: What is asked.
            joining: The parties whose coins let them take part, and that answer at all; None for
                all. Nothing is computed for the others.
        """
        if self._apart and not self._trainer_for(query.training).place_free:
            return self._one_by_one(query, joining)
        last = self._first + len(self._sizes)
        chosen = query.trainees(self._task.parties)[self._first : last] & self._holding
        if joining is not None:
            chosen &= joining
        total, norms = self._trained(query, chosen)
        clip = np.inf if query.clip_norm is None else query.clip_norm
        kept = int(np.count_nonzero(norms[chosen] <= clip))
        trained = int(np.count_nonzero(chosen))
        if query.counting is not None:
            half = round(query.counting / 2 / query.grid.step)
            total = np.append(total, half * (2 * kept - trained))
        ring = total.view(np.uint64).astype(query.grid.dtype)
        return ring, {"units": trained, "clipped": trained - kept}

    def stay_out(self) -> None:
        """Undo the effects of the latest round, because the coin kept the parties out."""
        if self.variates is not None:
            self.variates = replace(self.variates, after=self.variates.before)

    @cached_property
    def _public_sizes(self) -> Integers:
        return np.array(self._sizes, np.int64)

    @cached_property
    def _holding(self) -> Mask:
        """The parties that have records. **Private.** A party without records is not counted."""
        holding: Mask = (self._batch.segments.offsets.diff() > 0).numpy()
        return holding

    def _one_by_one(
        self, query: LocalTrainingQuery, joining: Mask | None
    ) -> tuple[Ring, Mapping[str, int]]:
        total = np.zeros(query.answer_width(self._task), query.grid.dtype)
        counts: Counter[str] = Counter()
        for index, party in enumerate(self._each):
            own = None if joining is None else joining[index : index + 1]
            ring, more = party.answer(query, own)
            total += ring
            counts.update(more)
        return total, counts

    @cached_property
    def _each(self) -> list[Trainees]:
        ends = self._batch.segments.offsets.tolist()
        return [
            Trainees(
                self._task,
                RecordBatch(
                    features=self._batch.features[begin:end], labels=self._batch.labels[begin:end]
                ),
                sizes=(size,),
                first=self._first + index,
            )
            for index, (size, (begin, end)) in enumerate(
                zip(self._sizes, pairwise(ends), strict=True)
            )
        ]

    def _trained(self, query: LocalTrainingQuery, chosen: Mask) -> tuple[Integers, Vectors]:
        """Σ of the rounded answers, without a count, and the norms of the updates."""
        task, unit = self._task, query.clip_norm or 1.0
        trainer = self._trainer_for(query.training)
        weights = query.party_weights(task, self._public_sizes)
        # Answers are in units of C: so is the grid.
        step, bound = query.grid.step * unit, query.answer_bound(task, task.largest) * unit
        if query.control is None:
            return trainer.clipped_sum(
                torch.tensor(query.theta),
                key=query.key,
                clip_norm=query.clip_norm,
                weights=weights,
                step=step,
                bound=bound,
                joining=chosen,
            )
        moved = self._with_variates(query, trainer, chosen)
        summed = RoundedSum(
            dimension=moved.shape[1],
            clip_norm=query.clip_norm,
            weights=weights,
            step=step,
            bound=bound,
        )
        summed.add(chosen.nonzero()[0], moved[chosen])
        return summed.result()

    def _with_variates(
        self, query: LocalTrainingQuery, trainer: LocalTrainer, chosen: Mask
    ) -> Vectors:
        """(u, c_j⁺ - c_j) of every party, (m, 2d), and zeros of who does not train.

        c_j⁺ = c_j - c + (θ - w)/(K·η), the mean of the gradients along the way. A party without a
        variate (in its first round, or because it lost it) starts from the server's, hence without
        a shift. A party whose numbers would overflow does not move at all.
        """
        control = query.control
        if control is None:
            raise ValueError("control must be given for control variates, got None.")
        before = self._variates_before(query, control)
        with np.errstate(over="ignore"):
            shift = control - before
        updates = trainer.updates(
            torch.tensor(query.theta),
            key=query.key,
            joining=chosen,
            shift=torch.from_numpy(shift),
        ).astype(np.float64)
        records = self._batch.segments.offsets.diff().tolist()
        steps = np.array([query.training.steps_with(count) for count in records])
        rate = np.maximum(steps, 1)[:, np.newaxis] * query.training.learning_rate
        with np.errstate(over="ignore", invalid="ignore"):
            moved = -control - updates / rate
            finite = np.isfinite(np.hstack([updates, moved, before + moved])).all(axis=1)
        still = ~(chosen & (steps > 0) & finite)
        updates[still] = moved[still] = 0.0
        self.variates = Variates(
            run=query.run, round=query.round, before=before, after=before + moved
        )
        return np.concatenate([updates, moved], axis=1)

    def _variates_before(self, query: LocalTrainingQuery, control: Vectors) -> Vectors:
        kept = self.variates
        if kept is None or kept.run != query.run or kept.round > query.round:
            return np.tile(control, (len(self._sizes), 1))
        return kept.before if kept.round == query.round else kept.after

    def _trainer_for(self, settings: LocalSgd) -> LocalTrainer:
        """The trainer of these settings, prepared once and cached."""
        if self._trainer is None or self._trainer[0] != settings:
            trainer = LocalTrainer(
                model=self._task.model,
                loss=self._task.loss,
                batch=self._batch,
                settings=settings,
                first_party=self._first,
            )
            self._trainer = settings, trainer
        return self._trainer[1]
