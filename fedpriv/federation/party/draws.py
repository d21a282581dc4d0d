"""Random choices of parties: Poisson samples, terms of objectives, and noise that they add.

The same code draws for one party alone and for thousands in one process.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from fedpriv.federation.queries.bounds import objective_mechanism
from fedpriv.federation.queries.kinds import ErmQuery
from fedpriv.learning.sampling import poisson_sample
from fedpriv.privacy.mechanisms import GaussianMechanism
from fedpriv.privacy.samplers import rounded_normals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fedpriv.federation.queries.base import Query
    from fedpriv.federation.task import Task
    from fedpriv.learning.batch import RecordBatch
    from fedpriv.learning.clipping.persons import PersonGroups
    from fedpriv.privacy.randomness import RandomStream

_DRAWS = 1 << 20  # at a time: bounds the memory


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Draws:
    """The random choices of some parties for one query.

    Attributes:
        sample: The sampled records, or persons, in increasing order; None means all.
        linear: b_j of a perturbed objective, float64 (m, d).
        extra_regulariser: Δ_j of a perturbed objective, float64 (m,).
    """

    sample: NDArray[np.int64] | None = None
    linear: NDArray[np.float64] | None = None
    extra_regulariser: NDArray[np.float64] | None = None

    def sampled(
        self, batch: RecordBatch, persons: PersonGroups | None
    ) -> tuple[RecordBatch, PersonGroups | None]:
        """The sampled records and their persons; a sample of persons takes all their records."""
        places = self.sample
        if places is None:
            return batch, persons
        if persons is not None:
            persons, places = persons.select(places)
        return batch.select(torch.from_numpy(places)), persons

    def of(self, parties: slice, units: slice) -> Draws:
        """The choices of some of the parties, which own these ``units``."""
        sample = self.sample
        if sample is not None:
            low, high = np.searchsorted(sample, (units.start, units.stop))
            sample = sample[low:high] - units.start
        return Draws(
            sample=sample,
            linear=None if self.linear is None else self.linear[parties],
            extra_regulariser=(
                None if self.extra_regulariser is None else self.extra_regulariser[parties]
            ),
        )


def draw(
    query: Query, task: Task, sizes: tuple[int, ...], stream: RandomStream, *, units: int
) -> Draws:
    """The random choices of parties with ``sizes``: samples, or terms of their objectives.

    A sample is drawn from the actual ``units`` (records or persons) of all parties together, each
    on its own coin; a person at two parties has two coins. Objective terms depend on the sizes.
    """
    if query.sampling_rate < 1:
        sample = poisson_sample(units, rate=query.sampling_rate, uniforms=stream.uniform)
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
    query: Query,
    task: Task,
    sizes: tuple[int, ...],
    stream: RandomStream,
    numbers: Sequence[int] | None = None,
) -> NDArray[np.int64] | None:
    """Σ of the integer noise that parties with ``sizes`` add to their answers, or None.

    ``numbers`` says which parties of the task they are, where each adds it to its own part of the
    sum; the first ones, if not given.
    """
    d = query.answer_width(task)
    if query.share is not None:
        return query.share.draw_sum(len(sizes), dimension=d, stream=stream)
    members = {size: query.local_mechanism(task, size) for size in set(sizes)}
    if not any(members.values()):
        return None
    mechanisms = [mechanism for size in sizes if (mechanism := members[size]) is not None]
    step = query.grid.step
    total = np.zeros(d, np.int64)
    if query.shows_parties:
        for number, mechanism in zip(numbers or range(len(sizes)), mechanisms, strict=True):
            part = total[query.own_part(task, number)]
            part += mechanism.noise(part.shape, step=step, stream=stream)
        return total
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
