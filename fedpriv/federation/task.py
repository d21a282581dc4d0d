"""The public facts of a learning problem, known to the server and to every party."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Literal

import numpy as np

from fedpriv._validate import (
    require_choice,
    require_count,
    require_non_negative,
    require_positive,
)
from fedpriv.learning.erm.certificate import certain_tolerance
from fedpriv.learning.erm.sensitivity import require_lipschitz_minimiser
from fedpriv.learning.losses import Squared
from fedpriv.learning.models import LinearModel
from fedpriv.learning.optimisers import project

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedpriv.learning.losses import Loss
    from fedpriv.learning.models import Model

Weights = Literal["equal", "proportional"]
WEIGHTS: tuple[Weights, ...] = ("equal", "proportional")

HEADROOM = 2
"""How many times its declared number of records, or persons, a party may hold.

What is proved about rounding, exact sums and minimisers is proved up to that. Larger data sets are
outside the guarantee: a declared number must be at least half the true one.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonBounds:
    """Person bounds: how much of the data may belong to one person, declared and enforced.

    Attributes:
        records: k, the most at one party; a person's records beyond it are dropped there, by a rule
            that looks at that person alone. None for any number.
        parties: p, the number of parties at which a person may have records. No single party can
            see that: in a deployment it is an assumption on which the guarantee rests.
    """

    records: int | None = None
    parties: int = 1

    def __post_init__(self) -> None:
        if self.records is not None:
            require_count(records=self.records)
        require_count(parties=self.parties)


@dataclass(frozen=True, kw_only=True)
class Task:
    """A learning task: minimise (1/N)Σ f(θ; x, y) + (λ/2)‖θ‖² over the records of m parties.

    >>> from fedpriv.learning.losses import Logistic
    >>> task = Task(
    ...     model=LinearModel(width=3),
    ...     loss=Logistic(),
    ...     regulariser=0.01,
    ...     feature_bound=1.0,
    ...     sizes=(100, 50),
    ... )
    >>> task.parties, task.records, task.smallest
    (2, 150, 50)

    Attributes:
        model: Computes the scores of a record.
        loss: ℓ(score, y).
        regulariser: λ ≥ 0. It is never clipped nor noised: the server adds λθ itself.
        feature_bound: B, the public bound on ‖x‖₂, intercept included; parties enforce it.
        sizes: n_j, the public number of records of every party, by which everything is divided,
            weighted and calibrated. The true number may differ, and is private.
        headroom: A party may hold up to so many times its size: more than 1 where a hash of every
            record decides whether it is trained on, and at which party.
        in_place: Whether an exchanged record moves no other: each has its own place, and none joins
            or leaves. Not so where a hash decides, even if the headroom is 1.
        persons: For the person unit of privacy: all records of a person are treated as one, and
            ``sizes`` are public numbers of *persons*, since those of records are private. None for
            the other units.
        start: Parameters of a pre-trained model, (d,), public by assumption: where strategies that
            descend begin. None for `Model.initial`.
        radius: R of the ball ‖θ‖ ≤ R that every model lies in; None for no such constraint.
    """

    model: Model
    loss: Loss
    regulariser: float
    feature_bound: float
    sizes: tuple[int, ...]
    headroom: float = 1.0
    in_place: bool = True
    persons: PersonBounds | None = None
    start: NDArray[np.float64] | None = field(default=None, compare=False, repr=False)
    radius: float | None = None

    def __post_init__(self) -> None:
        require_non_negative(regulariser=self.regulariser)
        require_positive(feature_bound=self.feature_bound)
        if not self.sizes:
            raise ValueError("sizes must hold at least one party, got none.")
        require_count(**{f"sizes[{index}]": size for index, size in enumerate(self.sizes)})
        if not 1 <= self.headroom < inf:
            raise ValueError(f"headroom must be finite and at least 1, got {self.headroom!r}.")
        if self.in_place and self.headroom != 1:
            raise ValueError(
                f"headroom must be 1 where all records stay in place, got {self.headroom!r}: set "
                "in_place = False if a hash decides which of them there are."
            )
        if self.in_place and self.persons is not None:
            raise ValueError(
                "in_place must be False for persons: exchanging one for another with more or fewer "
                "records moves those of others."
            )
        if self.loss.outputs != self.model.outputs:
            raise ValueError(
                f"model must have one output a score of the loss, {self.loss.outputs}, "
                f"got {self.model.outputs}."
            )
        if self.radius is not None:
            require_positive(radius=self.radius)
        if self.start is not None and self.start.shape != (self.dimension,):
            raise ValueError(
                f"start must have shape {(self.dimension,)}, one entry per parameter, got "
                f"{self.start.shape}."
            )

    @property
    def parties(self) -> int:
        """The number m of parties."""
        return len(self.sizes)

    @cached_property
    def records(self) -> int:
        """N, the public number of records of all parties."""
        return sum(self.sizes)

    @cached_property
    def size_counts(self) -> Counter[int]:
        """How many parties have each size."""
        return Counter(self.sizes)

    @cached_property
    def smallest(self) -> int:
        """n₍₁₎, the size of the smallest party."""
        return min(self.sizes)

    @cached_property
    def largest(self) -> int:
        """The size of the largest party."""
        return max(self.sizes)

    @property
    def most_members(self) -> float:
        """How many times its size a party's records, or persons, must be allowed to be.

        The number of persons is declared under either adjacency: a person who replaces another may
        be at another party.
        """
        return self.headroom if self.persons is None else HEADROOM * self.headroom

    @property
    def most_records(self) -> int:
        """The number of records of a party of the largest size, or k for each person."""
        if self.persons is None:
            return self.largest
        if self.persons.records is None:
            raise ValueError(
                "persons.records must be given for a minimiser: how exactly one can be certified "
                "depends on the largest possible number of records."
            )
        return self.persons.records * self.largest

    @property
    def dimension(self) -> int:
        """The number d of parameters."""
        return self.model.dimension

    @property
    def convex(self) -> bool:
        """Whether the problem is convex: a linear model."""
        return isinstance(self.model, LinearModel)

    @cached_property
    def lipschitz(self) -> float:
        """G: no record's gradient is longer, on the domain of the loss."""
        return self.loss.lipschitz_for(self.feature_bound)

    @property
    def curvature(self) -> float:
        """The largest Hessian eigenvalue of one record's loss; for linear models only."""
        self.require_convex("a bound on curvature")
        return self.loss.smoothness_for(self.feature_bound)

    @property
    def smoothness(self) -> float:
        """M = B²·c + λ: the objective is M-smooth, and 1/M a step size that never overshoots.

        For a sum over persons, divided by their number, k times B²·c.
        """
        if self.persons is None:
            return self.curvature + self.regulariser
        if self.persons.records is None:
            raise ValueError(
                "learning_rate must be given, or persons.records: how steep a person's loss is "
                "depends on the most records that one has."
            )
        return self.persons.records * self.curvature + self.regulariser

    def initial(self, seed: int) -> NDArray[np.float64]:
        """Where descent begins: at ``start``, or else as ``seed`` determines; inside the ball."""
        theta = self.start
        if theta is None:
            theta = self.model.initial(np.random.default_rng(seed)).numpy()
        return theta.copy() if self.radius is None else project(theta, self.radius).copy()

    def gradient_bound(self, theta: NDArray[np.float64]) -> float:
        """A bound on one record's gradient at ``theta``, in or out of the domain of the loss."""
        if isinstance(self.loss, Squared):  # its G holds inside a ball only
            reach = float(np.linalg.norm(theta)) * self.feature_bound + self.loss.label_bound
            return max(self.lipschitz, self.feature_bound * reach)
        return self.lipschitz

    def gradient_weight(self, weights: Weights, size: int) -> float:
        """The factor on a party's sum of gradients: 1, or n₍₁₎/n_j ≤ 1.

        The sum of the scaled sums is then N times the mean over records, or m·n₍₁₎ times the mean
        of the parties' means. One record adds at most one clipped gradient to either, provided it
        does not change n_j: equal weights are for replace-one adjacency.
        """
        require_choice(WEIGHTS, weights=weights)
        return 1.0 if weights == "proportional" else self.smallest / size

    def gradient_count(self, weights: Weights, sizes: tuple[int, ...]) -> int:
        """The divisor of a sum of gradients of parties with ``sizes``: N or m·n₍₁₎."""
        require_choice(WEIGHTS, weights=weights)
        return sum(sizes) if weights == "proportional" else len(sizes) * self.smallest

    def model_weight(self, weights: Weights, size: int) -> float:
        """The weight of a party of ``size`` in an average of models: n_j/N, or 1/m."""
        require_choice(WEIGHTS, weights=weights)
        return size / self.records if weights == "proportional" else 1 / self.parties

    def certain_tolerance(self, regulariser: float, *, linear: float = 0.0) -> float:
        """The least gradient norm to which every party finds its minimiser, whatever its records.

        Below it, whether a party answers would reveal something about them. ``linear`` bounds ‖b‖/n
        of a linear term in a party's objective.
        """
        self.require_convex("a minimiser")
        return certain_tolerance(
            self.loss,
            feature_bound=self.feature_bound,
            strong_convexity=regulariser,
            records=self.most_records,
            features=self.model.features,
            linear=linear,
            headroom=self.most_members,
        )

    def require_convex(self, what: str) -> None:
        """Refuse a model that is not linear."""
        if not self.convex:
            raise ValueError(
                f"{what} needs a convex problem, and the model is {type(self.model).__name__}. "
                "Use a linear model, or gradient-perturbation with a learning rate of your own."
            )

    def require_strongly_convex(self, what: str) -> None:
        """Refuse a problem without a unique, stable minimiser."""
        self.require_convex(what)
        if self.regulariser == 0:
            raise ValueError(
                f"regulariser must be positive for {what}, got 0: without strong convexity one "
                "record can move the minimiser by any amount. Set model.l2, for example 0.001."
            )

    def require_stable_minimiser(self, what: str) -> None:
        """Refuse a problem whose minimiser one record can move by more than 2G/(nλ)."""
        self.require_strongly_convex(what)
        require_lipschitz_minimiser(self.loss, self.regulariser, headroom=self.most_members)
