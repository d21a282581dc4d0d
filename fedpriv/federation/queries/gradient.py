"""GradientQuery: a party's sum of clipped gradients, of each record or of each person."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import hypot
from typing import TYPE_CHECKING, ClassVar, Literal

from fedpriv._validate import require_choice, require_positive, require_rate
from fedpriv.federation.queries.base import (
    ARRAY,
    LATER,
    ON_A_VECTOR,
    Query,
    point,
    read_by,
    require_point,
    with_terms,
)
from fedpriv.federation.queries.bounds import counted_sensitivity, gradient_sensitivity
from fedpriv.federation.queries.local_noise import LocalNoise
from fedpriv.federation.task import WEIGHTS
from fedpriv.learning.clipping.norms import require_clip
from fedpriv.privacy.events import PoissonGaussianEvent, PoissonPartsEvent, PoissonPureEvent
from fedpriv.privacy.unit import Unit

if TYPE_CHECKING:
    from collections.abc import Collection

    import numpy as np
    from numpy.typing import NDArray

    from fedpriv.federation.task import Task, Weights
    from fedpriv.privacy.adjacency import Adjacency
    from fedpriv.privacy.events import Event


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GradientQuery(Query):
    """Σ over a party's records of the gradient at θ, each clipped to norm C, times its weight.

    For the person unit of privacy (`Task.persons`) Σ over its persons: a person's gradients are
    summed, and the sum is clipped to C. A person then moves the total by p·C, where p parties are
    declared: parties clip to C and not to C/p, so that C means the same whatever p is, and p enters
    the sensitivity, which the guarantee rests on.

    Attributes:
        theta: The point, float64 (d,).
        clip_norm: C.
        sampling_rate: Poisson rate at which each record, or each person, joins, by a separate coin
            at every party; 1 is full batch.
        weights: "proportional": the sum itself; "equal": times n₍₁₎/n_j.
        local: Noise that the party adds itself, if any.
        centre: Public a, (d,): (g − a)/b is clipped and summed instead of g; None means zero.
        scale: Public b > 0, (d,); None means one.
        counting: κ, if a count follows (Andrew et al. 2021): κ·Σ(b − ½) over records, or persons,
            with b = 1 for a vector that was not longer than C and 0 for one that was clipped. The
            sums are then in units of C, Σ clip_C(g)/C, so that one noise covers both: a record's
            part is one vector of norm √(1 + κ²/4) at most, whatever C is. κ/2 must be a multiple of
            the grid step: counts are exact.
        clip_in: The norm that C bounds: "l2"; or "l1", for Laplace noise by coordinate.
    """

    kind: ClassVar[str] = "gradient"
    units: ClassVar[tuple[Unit, ...]] = (Unit.RECORD, Unit.PERSON)
    events: ClassVar[tuple[type[Event], ...]] = (
        *ON_A_VECTOR,
        PoissonGaussianEvent,
        PoissonPartsEvent,
        PoissonPureEvent,
    )
    joint_fit: ClassVar[bool] = False
    theta: NDArray[np.float64] = field(metadata=ARRAY)
    clip_norm: float
    sampling_rate: float = 1.0
    weights: Weights = "proportional"
    local: LocalNoise | None = field(default=None, metadata=read_by(with_terms(LocalNoise)))
    centre: NDArray[np.float64] | None = field(default=None, metadata=ARRAY)
    scale: NDArray[np.float64] | None = field(default=None, metadata=ARRAY)
    counting: float | None = None
    clip_in: Literal["l2", "l1"] = field(default="l2", metadata=LATER)

    def __post_init__(self) -> None:
        Query.__post_init__(self)
        object.__setattr__(self, "theta", point(self.theta))
        require_positive(clip_norm=self.clip_norm)
        require_rate(sampling_rate=self.sampling_rate)
        require_choice(WEIGHTS, weights=self.weights)
        require_choice(("l2", "l1"), clip_in=self.clip_in)
        if self.clip_in == "l1" and (self.noise_by_party or self.counting is not None):
            raise ValueError(
                "clip_in must be 'l2' with noise of the parties or a count, got 'l1': their noise "
                "is for an L2 sensitivity."
            )
        for name in ("centre", "scale"):
            if (vector := getattr(self, name)) is not None:
                object.__setattr__(self, name, point(vector, name, shape=self.theta.shape))
        if self.scale is not None and not (self.scale > 0).all():
            raise ValueError("scale must be positive in every coordinate.")
        if self.counting is not None:
            self._check_counting(self.counting)
        if self.local is not None and self.share is not None:
            raise ValueError("local and share must not both be given: one noise per release.")

    def _check_counting(self, counting: float) -> None:
        require_positive(counting=counting)
        if counting / 2 % self.grid.step:
            raise ValueError(
                f"counting must be an even multiple of the grid's step, {self.grid.step!r}, got "
                f"{counting!r}: counts are exact."
            )
        if self.local is not None or self.weights == "equal":
            raise ValueError(
                "counting must be None with equal weights or noise of a party's own: what one "
                "record adds to a count does not depend on its party."
            )

    @property
    def form(self) -> str:
        """Of gradients; of such in a unit for every coordinate; and whether with a count."""
        plain = self.centre is None and self.scale is None
        counted = "" if self.counting is None else " with a count"
        return f"{self.kind}{'' if plain else ' by coordinate'}{counted}"

    @property
    def own_noise(self) -> LocalNoise | None:
        """Noise on the sum of the party."""
        return self.local

    @property
    def wide(self) -> bool:
        """In L1, because only in float64 are its norms exact enough."""
        return self.clip_in == "l1"

    @property
    def weighted(self) -> bool:
        """With equal weights, which divide by n_j."""
        return self.weights == "equal"

    def record_bound(self, task: Task) -> float:
        """C, for a record or a person, in gradient units: times the largest scale.

        With a count C·√(1 + κ²/4), since the count is part of the answer.
        """
        widest = 1.0 if self.scale is None else float(self.scale.max())
        return self.clip_norm * widest * hypot(1.0, (self.counting or 0.0) / 2)

    def answer_width(self, task: Task) -> int:
        """d, plus one for the count."""
        return task.dimension + (self.counting is not None)

    def reach(self, task: Task, size: int) -> float:
        """n_j·C; with a count n_j, in units of C, or n_j·κ/2."""
        if self.counting is not None:
            return size * max(1.0, self.counting / 2)
        return size * self.clip_norm * task.gradient_weight(self.weights, size)

    def sensitivity(
        self, task: Task, *, sizes: Collection[int], adjacency: Adjacency
    ) -> float | None:
        """That of clipped gradients, times the largest weight: that of the smallest party."""
        if self.counting is not None:
            return counted_sensitivity(
                task, counting=self.counting, adjacency=adjacency, step=self.grid.step
            )
        moved = gradient_sensitivity(
            task,
            clip_norm=self.clip_norm,
            adjacency=adjacency,
            step=self.grid.step,
            wide=self.wide,
        )
        return moved * task.gradient_weight(self.weights, min(sizes))

    def check(self, task: Task) -> None:
        """The point must fit the model; for persons, the event must count on all their parts."""
        require_point(self.theta, task)
        require_clip(self.clip_norm)
        self._check_parts(task)
        if task.persons is not None and self.clip_in == "l1":
            raise ValueError("clip_in must be 'l2' for persons, got 'l1'.")
        if task.persons is not None and self.local is not None:
            raise ValueError(
                "local must be None for persons: noise of every party's own would have to cover "
                "what other parties show of the same person."
            )

    def check_certain(self, task: Task) -> None:
        """A sum always exists."""
