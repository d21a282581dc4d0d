"""GradientQuery: a party's sum of clipped gradients, of each record or of each person."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import hypot
from typing import TYPE_CHECKING, ClassVar

from fedpriv._validate import require_choice, require_positive, require_rate
from fedpriv.federation.queries.base import (
    ARRAY,
    ON_A_VECTOR,
    Query,
    point,
    read_by,
    require_point,
    with_terms,
)
from fedpriv.federation.queries.bounds import gradient_sensitivity
from fedpriv.federation.queries.local_noise import LocalNoise
from fedpriv.federation.task import WEIGHTS
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
    summed, and the sum is clipped to C. What a person moves is then p·C, p parties being declared:
    parties clip to C and not to C/p, so that C means the same whatever p is, and p stands where the
    promise is made, in the sensitivity.

    Attributes:
        theta: The point, float64 (d,).
        clip_norm: C.
        sampling_rate: Poisson rate at which each record joins, or each person, at every party by a
            coin of its own; 1 is full batch.
        weights: "proportional": the sum itself; "equal": times n₍₁₎/n_j.
        local: Noise that the party adds itself, if any.
        centre: Public a, (d,): (g − a)/b is clipped and summed instead of g; None means zero.
        scale: Public b > 0, (d,); None means one.
        counted: Whether one number more follows: how many of the records, or persons, have a vector
            that was not longer than C.
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
    counted: bool = False

    def __post_init__(self) -> None:
        Query.__post_init__(self)
        object.__setattr__(self, "theta", point(self.theta))
        require_positive(clip_norm=self.clip_norm)
        require_rate(sampling_rate=self.sampling_rate)
        require_choice(WEIGHTS, weights=self.weights)
        for name in ("centre", "scale"):
            if (vector := getattr(self, name)) is not None:
                object.__setattr__(self, name, point(vector, name, shape=self.theta.shape))
        if self.scale is not None and not (self.scale > 0).all():
            raise ValueError("scale must be positive in every coordinate.")
        if self.counted and (self.noise_by_party or self.weights == "equal"):
            raise ValueError(
                "counted must be False with noise of the parties or equal weights, got True."
            )
        if self.local is not None and self.share is not None:
            raise ValueError("local and share must not both be given: one noise per release.")
        if self.sampling_rate != 1 and self.noise_by_party:
            raise ValueError(
                f"sampling_rate must be 1 with noise of the parties, got {self.sampling_rate!r}: "
                "how sampling amplifies it is not known here."
            )

    @property
    def own_noise(self) -> LocalNoise | None:
        """Noise on the sum of the party."""
        return self.local

    @property
    def weighted(self) -> bool:
        """With equal weights: n_j divides."""
        return self.weights == "equal"

    def record_bound(self, task: Task) -> float:
        """C, of a record or a person; with a count, to which one adds one, √(C² + 1)."""
        return hypot(self.clip_norm, 1.0) if self.counted else self.clip_norm

    def answer_width(self, task: Task) -> int:
        """d, and one more for the count."""
        return task.dimension + self.counted

    def reach(self, task: Task, size: int) -> float:
        """n_j·C, or n_j where a larger count follows."""
        total = size * self.clip_norm * task.gradient_weight(self.weights, size)
        return max(total, size) if self.counted else total

    def sensitivity(
        self, task: Task, *, sizes: Collection[int], adjacency: Adjacency
    ) -> float | None:
        """That of clipped gradients, times the largest weight; None with a count, which adds to it.

        The largest weight is that of the smallest party.
        """
        if self.counted:
            return None
        moved = gradient_sensitivity(
            task, clip_norm=self.clip_norm, adjacency=adjacency, step=self.grid.step
        )
        return moved * task.gradient_weight(self.weights, min(sizes))

    def check(self, task: Task) -> None:
        """The point must be one of the model's; of persons, the event one of all their parts."""
        require_point(self.theta, task)
        self._check_parts(1 if task.persons is None else task.persons.parties)
        if task.persons is not None and self.local is not None:
            raise ValueError(
                "local must be None for persons: noise of every party's own would have to cover "
                "what other parties show of the same person."
            )

    def _check_parts(self, parts: int) -> None:
        """Of samples at several parties the event must count on as many as there are, and no more.

        At the same relative noise it is the cheaper the more parts there are: each has a smaller
        share of the sensitivity, and all of them in the sample is less likely.
        """
        event = self.event
        if event is None or self.sampling_rate == 1:
            return
        stated = event.parts if isinstance(event, PoissonPartsEvent) else 1
        if stated != parts:
            raise ValueError(
                f"event must be one of samples at {parts} parties, at which a person may have "
                f"records, got {event.kind!r} of {stated}: each of them draws its own."
            )

    def check_certain(self, task: Task) -> None:
        """A sum always exists."""
