"""LocalTrainingQuery: a party's model update after local training, the query of FedAvg.

A party trains from θ on its own records and answers with the update u = w - θ, clipped *as a whole*
and in units of the clip norm C: clip_C(u)/C, times its weight. Nothing is assumed of the training,
of the model, or of how many records a party has; only the clip matters. So the answer protects the
party:

- **add-remove**, its whole answer joins or leaves the sum (it answers zero; the number of parties
  is a public constant): the sum moves by at most 1 unit of C;
- **replace-one**, all its records are exchanged for any others: by at most 2.

For one record or one person of a party this is no better: either may change the whole update.

**Who trains.** Everybody; or each party with probability ``party_rate``, by its own secret coin, in
which case a party that stays out answers zero, so that the secure sum hides the sample
(amplification by sampling, add-remove only); or a public ``cohort`` of fixed size, which amplifies
nothing. A party that drops out of a secure sum amplifies nothing either.

**A count.** With ``counting`` = κ one more number follows: κ·(b - ½) with b = 1 if the update was
not clipped and 0 if it was (Andrew et al. 2021, arXiv:1905.03871). It is ±κ/2 for a party that
trains and 0 for one that stays out or has no records: a party that left is not counted as one that
did not move. So answer and count together are one vector of norm √(1 + κ²/4), or zero: one Gaussian
release, with the same noise on both.

**Control variates.** With ``control`` = c, the server's control variate of SCAFFOLD (Karimireddy et
al. 2020, arXiv:1910.06378, option II), the party trains with the shift c - c_j and its answer is
(u, c_j⁺ - c_j), 2d numbers, clipped as one vector. Its c_j stays with it. Through c_j an answer
depends on the party's own past, but this changes no bound: whatever c_j is, the answer has norm 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import hypot
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fedpriv._validate import require_choice, require_count, require_positive, require_rate
from fedpriv.federation.queries.base import (
    ARRAY,
    Query,
    point,
    read_by,
    require_index,
    require_point,
)
from fedpriv.federation.task import WEIGHTS
from fedpriv.learning.training.settings import LocalSgd, require_clip_norm
from fedpriv.privacy.events import GaussianEvent, PoissonGaussianEvent, ZcdpEvent
from fedpriv.privacy.randomness import RandomStream
from fedpriv.privacy.unit import Unit

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray

    from fedpriv.federation.task import Task, Weights
    from fedpriv.privacy.adjacency import Adjacency
    from fedpriv.privacy.events import Event

RANGE = 2.0**10
"""The largest coordinate of an update that is not clipped: training that goes further diverges."""

SLACK = 1 + 2.0**-40
"""Slack on the norm of an answer: a few float64 roundings when it is scaled to the grid."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LocalTrainingQuery(Query):
    """The update of a party after local training from θ, clipped to C, in units of C.

    Attributes:
        theta: The common model, float64 (d,).
        training: What every party does.
        clip_norm: C, the bound on the update as a whole; None for no bound, and then no guarantee:
            the answer is the update itself, each coordinate within `RANGE`.
        weights: w_j = 1 ("equal"), or n_j over the largest n ("proportional"), by the public sizes.
        party_rate: The probability with which each party trains; 1 is everybody.
        cohort: How many parties train, chosen by the public seed; None for everybody.
        counting: κ, if a count follows.
        control: c of SCAFFOLD, (d,); None for plain federated averaging.
        seed: Determines the orders in which parties go through their records, and the cohort.
            Public: neither of them protects anything.
    """

    kind: ClassVar[str] = "local-training"
    units: ClassVar[tuple[Unit, ...]] = (Unit.PARTY,)
    events: ClassVar[tuple[type[Event], ...]] = (GaussianEvent, ZcdpEvent, PoissonGaussianEvent)
    weighted: ClassVar[bool] = False
    joint_fit: ClassVar[bool] = False
    own_noise: ClassVar[None] = None
    theta: NDArray[np.float64] = field(metadata=ARRAY)
    training: LocalSgd = field(metadata=read_by(lambda sgd: LocalSgd(**sgd), optional=False))
    clip_norm: float | None
    weights: Weights = "proportional"
    party_rate: float = 1.0
    cohort: int | None = None
    counting: float | None = None
    control: NDArray[np.float64] | None = field(default=None, metadata=ARRAY)
    seed: int = 0

    def __post_init__(self) -> None:
        Query.__post_init__(self)
        object.__setattr__(self, "theta", point(self.theta))
        require_choice(WEIGHTS, weights=self.weights)
        require_rate(party_rate=self.party_rate)
        require_index(seed=self.seed)
        if self.clip_norm is not None:
            require_clip_norm(self.clip_norm)
        elif self.event is not None or self.counting is not None:
            raise ValueError(
                "clip_norm must be given with an event or a count, got None: without clipping, "
                "what an update adds to a sum has no bound."
            )
        if self.counting is not None:
            require_positive(counting=self.counting)
        if self.cohort is not None:
            require_count(cohort=self.cohort)
        self._check_sampling()
        self._check_control()

    def _check_sampling(self) -> None:
        if self.party_rate != 1 and self.cohort is not None:
            raise ValueError(
                f"party_rate must be 1 with a cohort, got {self.party_rate!r}: how they go "
                "together is not known here."
            )
        counted_on = getattr(self.event, "sampling_rate", 1.0)
        if counted_on not in (1.0, self.party_rate):
            raise ValueError(
                f"party_rate must be the sampling rate of the event, {counted_on!r}, got "
                f"{self.party_rate!r}."
            )

    def _check_control(self) -> None:
        if self.control is None:
            return
        object.__setattr__(self, "control", point(self.control, "control", shape=self.theta.shape))
        if self.counting is not None or self.training.momentum:
            raise ValueError(
                "control must be None with a count or local momentum: control variates are means "
                "of plain gradients."
            )

    @property
    def form(self) -> str:
        """Of updates alone, or of what follows them, too."""
        if self.control is not None:
            return f"{self.kind} with control variates"
        return f"{self.kind}{'' if self.counting is None else ' with a count'}"

    @property
    def sampling_rate(self) -> float:
        """The rate at which each *party* joins, the unit that is protected."""
        return self.party_rate

    def record_bound(self, task: Task) -> float:
        """C: a single record may change the whole update."""
        return float("inf") if self.clip_norm is None else self.clip_norm

    def answer_width(self, task: Task) -> int:
        """d; one more with a count, twice as many with control variates."""
        if self.control is not None:
            return 2 * task.dimension
        return task.dimension + (self.counting is not None)

    def weight(self, task: Task, size: int) -> float:
        """w_j of a party of ``size``: at most 1."""
        return 1.0 if self.weights == "equal" else size / task.largest

    def party_weights(self, task: Task, sizes: NDArray[np.int64]) -> NDArray[np.float64]:
        """w_j of many parties, by their sizes: see `weight`."""
        return np.ones(len(sizes)) if self.weights == "equal" else sizes / task.largest

    def total_weight(self, task: Task) -> float:
        """Σ w_j over the parties expected to train: the divisor of a sum.

        A public constant, never the realised weight. A party missing from a sum counts as one that
        did not move.
        """
        if self.cohort is not None:
            chosen = np.array(task.sizes)[self.trainees(task.parties)]
            return float(self.party_weights(task, chosen).sum())
        whole = task.parties if self.weights == "equal" else task.records / task.largest
        return self.party_rate * whole

    def reach(self, task: Task, size: int) -> float:
        """w_j, in units of C, or half of κ; without a bound, the range of an update."""
        if self.clip_norm is None:
            return RANGE
        return max(self.weight(task, size), (self.counting or 0.0) / 2)

    def sensitivity(
        self, task: Task, *, sizes: Collection[int], adjacency: Adjacency
    ) -> float | None:
        """One answer, or two: see the module. No party's weight is more than 1."""
        if self.clip_norm is None:
            return None
        return adjacency.sum_sensitivity * answer_norm(self.counting)

    def check(self, task: Task) -> None:
        """The point must fit the model, and the cohort the parties."""
        require_point(self.theta, task)
        if self.cohort is not None and self.cohort > task.parties:
            raise ValueError(
                f"cohort must be at most the {task.parties} parties, got {self.cohort}."
            )

    def check_certain(self, task: Task) -> None:
        """An answer always exists: whatever training yields is clipped, or is zero."""

    def local_steps(self, task: Task) -> int:
        """The steps of the largest party, by the public sizes."""
        return self.training.steps_with(task.largest)

    def contributors(self, parties: int) -> int:
        """The cohort, which is public; coins are secret."""
        return parties if self.cohort is None else min(self.cohort, parties)

    @property
    def remembering(self) -> bool:
        """With control variates, since every party keeps its own."""
        return self.control is not None

    @property
    def key(self) -> int:
        """The 64-bit key of the orders in which parties go through their records."""
        return int(self._public("orders").words(1)[0])

    def trainees(self, parties: int) -> NDArray[np.bool_]:
        """Which of the parties are in the cohort: public, and all of them without one."""
        chosen = np.ones(parties, dtype=bool)
        if self.cohort is not None:
            chosen[self._public("cohort").permutation(parties)[self.cohort :]] = False
        return chosen

    def _public(self, purpose: str) -> RandomStream:
        return RandomStream.seeded(self.seed, purpose, self.run, self.round)


def answer_norm(counting: float | None) -> float:
    """The largest L2 norm of one party's answer, in units of C, before the grid."""
    return hypot(1.0, (counting or 0.0) / 2) * SLACK
