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

    from fedpriv.data import Records
    from fedpriv.federation.task import Task
    from fedpriv.privacy.mechanisms import Mechanism
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
    line = listening(own, seed=seed)
    if isinstance(line, str):
        return line
    train, outputs = own.data.dataset.train, own.task.model.outputs
    chosen = np.random.default_rng(seed).permutation(len(train))[:records]
    found: dict[str, list[Vector]] = {stage: [] for stage in STAGES}
    for number, row in enumerate(chosen):
        sent = line.heard(train.take(slice(int(row), int(row) + 1)), number=number)
        for stage, seen in {**sent, "secure sum": line.everybody}.items():
            found[stage].append(read_record(seen, outputs=outputs))
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Line:
    """What whoever listens hears of the first question of an experiment.

    Attributes:
        own: The experiment.
        query: Its question, clipped.
        mechanism: Its noise, if it has any.
        seed: Of that noise.
        everybody: The exact sum over all parties.
    """

    own: Prepared
    query: GradientQuery
    mechanism: Mechanism | None
    seed: int
    everybody: Vector

    def heard(self, record: Records, *, number: int) -> dict[str, Vector]:
        """What a party with this one record sends, by stage; ``number``: of its noise."""
        query, own = self.query, self.own
        longest = 2 * own.task.gradient_bound(query.theta)  # a bound that no gradient has
        wide = replace(query, clip_norm=longest, grid=finest_grid(bound=4 * longest))
        clipped = _alone(own, record, query)
        noisy = clipped
        if self.mechanism is not None:
            stream = RandomStream.seeded(self.seed, "attack", "noise", number)
            steps = np.rint(clipped / query.grid.step).astype(np.int64)
            noisy = self.mechanism.release(steps, step=query.grid.step, stream=stream)
        sent = {"raw": _alone(own, record, wide), "clipped": clipped, "noisy": noisy}
        # Adaptive clipping adds a count to the gradient.
        return {stage: vector[: own.task.dimension] for stage, vector in sent.items()}


def listening(own: Prepared, *, seed: int = 0) -> Line | str:
    """What can be heard of an experiment, or the reason why there is nothing to show."""
    strategy = check(own)
    query = None if strategy is None else strategy.ask()
    if not isinstance(query, GradientQuery) or not isinstance(own.task.model, LinearModel):
        return "gradient inversion is shown for strategies that ask for gradients of a linear model"
    if own.task.persons is not None or strategy is None:
        return "gradient inversion is shown for the record unit of privacy"
    bounded = replace(query, share=None, local=None, sampling_rate=1.0, event=None)
    plan = strategy.plan
    return Line(
        own=own,
        query=bounded,
        mechanism=plan.mechanisms[0] if plan and plan.mechanisms else None,
        seed=seed,
        everybody=_summed(own.data, own.task, bounded)[: own.task.dimension],
    )


def _alone(own: Prepared, record: Records, query: GradientQuery) -> Vector:
    """What a party with this one record would answer."""
    holding = PartitionedDataset(
        dataset=replace(
            own.data.dataset,
            train=replace(record, party=np.zeros(1, np.int32)),
            party_names=("one",),
        ),
        kind="natural",
        offsets=np.array([0, 1]),
        order=np.zeros(1, np.int64),
    )
    return _summed(holding, replace(own.task, sizes=(1,)), query)


def _summed(data: PartitionedDataset, task: Task, query: GradientQuery) -> Vector:
    federation = VectorizedFederation(
        data, task=task, sampling=lambda number: RandomStream.seeded(0, "attack", number), workers=1
    )
    return federation.sum(query).value
