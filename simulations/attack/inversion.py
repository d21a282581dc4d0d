"""Gradient inversion on an experiment: records read off what one party, or all, would send.

Four things are looked at, for some records of the experiment's own. The gradient of one record, as
a party that holds nothing else would send it, without a bound; the same, clipped; that with the
noise of the plan; and the exact sum over all parties, which is what secure aggregation lets the
server see. Each is made by the parties' own code, in fixed point.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.audit.inversion import likeness, read_record
from fedpriv.data import PartitionedDataset
from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.federation.queries.bounds import finest_grid
from fedpriv.federation.queries.kinds import GradientQuery
from fedpriv.learning.models import LinearModel
from fedpriv.privacy.randomness import RandomStream
from fedpriv.simulations.run.prepare import check

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedpriv.federation.task import Task
    from fedpriv.simulations.run.prepare import Prepared

    Vector = NDArray[np.float64]

STAGES = ("raw", "clipped", "noisy", "secure sum")
"""What is looked at, from no protection to all of it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Inversion:
    """What was read.

    Attributes:
        truth: (records, features), with the intercept.
        found: By stage, (records, features), of length 1.
        likeness: By stage, of every record: the cosine with the truth.
        image_shape: Channels, height and width, if the records are images.
    """

    truth: Vector
    found: dict[str, Vector]
    likeness: dict[str, Vector]
    image_shape: tuple[int, int, int] | None


def invert(own: Prepared, *, records: int = 4, seed: int = 0) -> Inversion | str:
    """Read some records of an experiment, or the reason why its strategy sends none."""
    strategy = check(own)
    query = None if strategy is None else strategy.ask()
    if not isinstance(query, GradientQuery) or not isinstance(own.task.model, LinearModel):
        return "gradient inversion is shown for strategies that ask for gradients of a linear model"
    if own.task.persons is not None or strategy is None:
        return "gradient inversion is shown for the record unit of privacy"
    train = own.data.dataset.train
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(len(train))[:records]
    bounded = replace(query, share=None, local=None, sampling_rate=1.0, event=None)
    everybody = _summed(own.data, own.task, bounded)
    mechanism = strategy.plan.mechanisms[0] if strategy.plan and strategy.plan.mechanisms else None
    outputs = own.task.model.outputs
    found: dict[str, list[Vector]] = {stage: [] for stage in STAGES}
    for number, row in enumerate(chosen):
        clipped = _alone(own, int(row), bounded)
        longest = 2 * own.task.gradient_bound(query.theta)  # a bound that no gradient has
        wide = replace(bounded, clip_norm=longest, grid=finest_grid(bound=4 * longest))
        raw = _alone(own, int(row), wide)
        noisy = clipped
        if mechanism is not None:
            stream = RandomStream.seeded(seed, "attack", "noise", number)
            steps = np.rint(clipped / query.grid.step).astype(np.int64)
            noisy = mechanism.release(steps, step=query.grid.step, stream=stream)
        for stage, seen in zip(STAGES, (raw, clipped, noisy, everybody), strict=True):
            # Adaptive clipping adds a count to the gradient.
            found[stage].append(read_record(seen[: own.task.dimension], outputs=outputs))
    truth = np.asarray(train.X[chosen], dtype=np.float64)
    read = {stage: np.array(rows) for stage, rows in found.items()}
    return Inversion(
        truth=truth,
        found=read,
        likeness={
            stage: np.array([likeness(a, b) for a, b in zip(rows, truth, strict=True)])
            for stage, rows in read.items()
        },
        image_shape=own.data.dataset.image_shape,
    )


def _alone(own: Prepared, row: int, query: GradientQuery) -> Vector:
    """What a party with this one record would answer."""
    dataset = own.data.dataset
    one = dataset.train.take(slice(row, row + 1))
    holding = PartitionedDataset(
        dataset=replace(
            dataset, train=replace(one, party=np.zeros(1, np.int32)), party_names=("one",)
        ),
        kind="natural",
        offsets=np.array([0, 1]),
        order=np.zeros(1, np.int64),
    )
    task = replace(own.task, sizes=(1,))
    return _summed(holding, task, query)


def _summed(data: PartitionedDataset, task: Task, query: GradientQuery) -> Vector:
    federation = VectorizedFederation(
        data, task=task, sampling=lambda number: RandomStream.seeded(0, "attack", number), workers=1
    )
    return federation.sum(query).value
