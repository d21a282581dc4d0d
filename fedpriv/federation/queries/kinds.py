"""The questions that a server may put to the parties: frozen, versioned, serialisable.

A query states everything that its answer depends on besides the records: the point, the bound, the
sampling, the fixed-point grid, and the event that the release it serves is charged with. The
model, the loss and the bound on features are the `Task`, which every party knows already. All
queries ask for one vector a party, as long as `limits.answer_width` says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fedpriv._validate import require_choice, require_positive, require_rate
from fedpriv.federation.task import WEIGHTS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedpriv.federation.queries.local_noise import LocalNoise
    from fedpriv.federation.task import Weights
    from fedpriv.privacy.events import Event
    from fedpriv.privacy.mechanisms.shares import NoiseShare
    from fedpriv.privacy.planning.objective import ObjectiveNoise
    from fedpriv.secagg import FixedPoint

_LONGEST_NAME = 200  # it is stored with every release


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Query:
    """What every query carries. Use a subclass.

    >>> from fedpriv.secagg import FixedPoint
    >>> query = GradientQuery(
    ...     run="example",
    ...     round=0,
    ...     grid=FixedPoint(step=2.0**-20),
    ...     event=None,
    ...     theta=np.zeros(3),
    ...     clip_norm=1.0,
    ... )
    >>> query.kind, query.sampling_rate
    ('gradient', 1.0)

    Attributes:
        run: The run it belongs to.
        round: Which release of the run it serves, from 0.
        grid: The fixed point that answers are rounded to and summed in.
        event: What the release costs; None if nothing is promised.
        share: The party's share of the noise of the sum, if the parties bring it.
    """

    kind: ClassVar[str]
    run: str
    round: int
    grid: FixedPoint
    event: Event | None
    share: NoiseShare | None = None

    def __post_init__(self) -> None:
        if type(self.run) is not str or not 0 < len(self.run) <= _LONGEST_NAME:
            raise ValueError(f"run must be a name of at most {_LONGEST_NAME} characters.")
        if not self.run.isprintable():
            raise ValueError(f"run must be a name of printable characters, got {self.run!r}.")
        _require_index(round=self.round)
        if self.share is not None and self.event is None:
            raise ValueError("event must be given with a share of noise: a share is sized for it.")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GradientQuery(Query):
    """Σ over a party's records of the gradient at θ, each clipped to norm C, times its weight.

    Attributes:
        theta: The point, float64 (d,).
        clip_norm: C.
        sampling_rate: Poisson rate at which each record joins; 1 is full batch.
        weights: "proportional": the sum itself; "equal": times n₍₁₎/n_j.
        local: Noise that the party adds itself, if any.
        centre: Public a, (d,): (g − a)/b is clipped and summed instead of g; None means zero.
        scale: Public b > 0, (d,); None means one.
        counted: Whether one number more follows: how many of the records have a vector that was
            not longer than C.
    """

    kind: ClassVar[str] = "gradient"
    theta: NDArray[np.float64]
    clip_norm: float
    sampling_rate: float = 1.0
    weights: Weights = "proportional"
    local: LocalNoise | None = None
    centre: NDArray[np.float64] | None = None
    scale: NDArray[np.float64] | None = None
    counted: bool = False

    def __post_init__(self) -> None:
        Query.__post_init__(self)
        object.__setattr__(self, "theta", _point(self.theta))
        require_positive(clip_norm=self.clip_norm)
        require_rate(sampling_rate=self.sampling_rate)
        require_choice(WEIGHTS, weights=self.weights)
        for name in ("centre", "scale"):
            if (vector := getattr(self, name)) is not None:
                object.__setattr__(self, name, _point(vector, name, shape=self.theta.shape))
        if self.scale is not None and not (self.scale > 0).all():
            raise ValueError("scale must be positive in every coordinate.")
        by_parties = self.local is not None or self.share is not None
        if self.counted and (by_parties or self.weights == "equal"):
            raise ValueError(
                "counted must be False with noise of the parties or equal weights, got True."
            )
        if self.local is not None and self.share is not None:
            raise ValueError("local and share must not both be given: one noise a release.")
        if self.sampling_rate != 1 and (self.local is not None or self.share is not None):
            raise ValueError(
                f"sampling_rate must be 1 with noise of the parties, got {self.sampling_rate!r}: "
                "how sampling amplifies it is not known here."
            )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ErmQuery(Query):
    """The certified minimiser of a party's own regularised risk, times its weight.

    Attributes:
        regulariser: λ > 0.
        tolerance: The gradient norm that the party must certify.
        weights: "proportional": n_j/N; "equal": 1/m.
        local: Noise that the party adds to its answer itself, if any.
        objective: Noise that the party adds to its *objective*, if any.
    """

    kind: ClassVar[str] = "erm"
    regulariser: float
    tolerance: float
    weights: Weights = "proportional"
    local: LocalNoise | None = None
    objective: ObjectiveNoise | None = None

    def __post_init__(self) -> None:
        Query.__post_init__(self)
        require_positive(regulariser=self.regulariser, tolerance=self.tolerance)
        require_choice(WEIGHTS, weights=self.weights)
        if sum(noise is not None for noise in (self.local, self.objective, self.share)) > 1:
            raise ValueError(
                "only one of local, objective and share must be given: one noise a release."
            )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RiskGradientQuery(Query):
    """Σ over a party's records of the exact gradient at θ: one exchange of a joint fit.

    Nothing is clipped and nothing is noisy: the server learns an exact sum, which it must be
    trusted with. Many exchanges serve the one release at the end.

    Attributes:
        theta: The point, float64 (d,).
        exchange: Which exchange of the fit, from 0.
        headroom: So many times its size a party's records may be, for the bound on the sum.
    """

    kind: ClassVar[str] = "risk-gradient"
    theta: NDArray[np.float64]
    exchange: int
    headroom: float = 1.0

    def __post_init__(self) -> None:
        Query.__post_init__(self)
        object.__setattr__(self, "theta", _point(self.theta))
        _require_index(exchange=self.exchange)
        require_positive(headroom=self.headroom)
        if self.share is not None:
            raise ValueError("share must be None: a joint fit needs exact sums.")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LossQuery(Query):
    """Σ over a party's records of min(loss, clip) at each of k points: k numbers.

    Each record's clipped loss is rounded down to the grid before it is summed, so that the sum is
    one of integers, and adding, removing or replacing a record moves each of the k by at most
    ``clip``, without a term for rounding; adding one moves none of them down. As for gradients
    (`fedpriv.learning.clipping.clipped_sum`), the losses of all other records must come out alike.

    Attributes:
        points: The k points, float64 (k, d).
        clip: The bound on one record's loss.
    """

    kind: ClassVar[str] = "loss"
    points: NDArray[np.float64]
    clip: float

    def __post_init__(self) -> None:
        Query.__post_init__(self)
        points = np.array(self.points, dtype=np.float64)
        if points.ndim != 2 or not len(points) or not np.isfinite(points).all():
            raise ValueError(f"points must be finite vectors, (k, d), got shape {points.shape}.")
        points.flags.writeable = False
        object.__setattr__(self, "points", points)
        require_positive(clip=self.clip)
        if self.share is not None:
            raise ValueError("share must be None: losses are selected from, and get no noise.")


QUERIES: dict[str, type[Query]] = {
    query.kind: query for query in (GradientQuery, ErmQuery, RiskGradientQuery, LossQuery)
}


def _point(
    theta: NDArray[np.float64], name: str = "theta", *, shape: tuple[int, ...] | None = None
) -> NDArray[np.float64]:
    """A read-only copy of a finite float64 vector."""
    vector = np.array(theta, dtype=np.float64)
    wrong = vector.ndim != 1 or vector.shape != (shape or vector.shape)
    if wrong or not np.isfinite(vector).all():
        raise ValueError(f"{name} must be a finite vector, got shape {vector.shape}.")
    vector.flags.writeable = False
    return vector


def _require_index(**parameters: int) -> None:
    for name, value in parameters.items():
        if type(value) is not int or value < 0:
            raise ValueError(f"{name} must be an integer of at least 0, got {value!r}.")
