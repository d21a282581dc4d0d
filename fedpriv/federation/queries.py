"""The questions that a server may put to the parties: frozen, versioned, serialisable.

A query states everything that its answer depends on besides the records: the point, the bound, the
sampling, the fixed-point grid, and the event that the release it serves is charged with. The
model, the loss and the bound on features are the `Task`, which every party knows already. All
queries ask for one vector a party, of the dimension of the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fedpriv._validate import require_choice, require_positive, require_rate
from fedpriv.federation.task import WEIGHTS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedpriv.federation.local_noise import LocalNoise
    from fedpriv.federation.task import Weights
    from fedpriv.privacy.events import Event
    from fedpriv.privacy.planning_objective import ObjectiveNoise
    from fedpriv.secagg import FixedPoint


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Query:
    """What every query carries. Use a subclass.

    Attributes:
        run: The run it belongs to.
        round: Which release of the run it serves, from 0.
        grid: The fixed point that answers are rounded to and summed in.
        event: What the release costs; None if nothing is promised.
    """

    kind: ClassVar[str]
    run: str
    round: int
    grid: FixedPoint
    event: Event | None

    def __post_init__(self) -> None:
        if not self.run:
            raise ValueError("run must be a name, got ''.")
        _require_index(round=self.round)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GradientQuery(Query):
    """Σ over a party's records of the gradient at θ, each clipped to norm C, times its weight.

    Attributes:
        theta: The point, float64 (d,).
        clip_norm: C.
        sampling_rate: Poisson rate at which each record joins; 1 is full batch.
        weights: "proportional": the sum itself; "equal": times n₍₁₎/n_j.
        local: Noise that the party adds itself, if any.
    """

    kind: ClassVar[str] = "gradient"
    theta: NDArray[np.float64]
    clip_norm: float
    sampling_rate: float = 1.0
    weights: Weights = "proportional"
    local: LocalNoise | None = None

    def __post_init__(self) -> None:
        Query.__post_init__(self)
        object.__setattr__(self, "theta", _point(self.theta))
        require_positive(clip_norm=self.clip_norm)
        require_rate(sampling_rate=self.sampling_rate)
        require_choice(WEIGHTS, weights=self.weights)
        if self.local is not None and self.sampling_rate != 1:
            raise ValueError(
                f"sampling_rate must be 1 with local noise, got {self.sampling_rate!r}: the local "
                "baseline is full batch."
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
        if self.local is not None and self.objective is not None:
            raise ValueError("local and objective must not both be given: one noise a release.")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RiskGradientQuery(Query):
    """Σ over a party's records of the exact gradient at θ: one exchange of a joint fit.

    Nothing is clipped and nothing is noisy: the server learns an exact sum, which it must be
    trusted with. Many exchanges serve the one release at the end.

    Attributes:
        theta: The point, float64 (d,).
        exchange: Which exchange of the fit, from 0.
    """

    kind: ClassVar[str] = "risk-gradient"
    theta: NDArray[np.float64]
    exchange: int

    def __post_init__(self) -> None:
        Query.__post_init__(self)
        object.__setattr__(self, "theta", _point(self.theta))
        _require_index(exchange=self.exchange)


QUERIES: dict[str, type[Query]] = {
    query.kind: query for query in (GradientQuery, ErmQuery, RiskGradientQuery)
}


def _point(theta: NDArray[np.float64]) -> NDArray[np.float64]:
    """A read-only copy of a finite float64 vector."""
    vector = np.array(theta, dtype=np.float64)
    if vector.ndim != 1 or not np.isfinite(vector).all():
        raise ValueError(f"theta must be a finite vector, got shape {vector.shape}.")
    vector.flags.writeable = False
    return vector


def _require_index(**parameters: int) -> None:
    for name, value in parameters.items():
        if type(value) is not int or value < 0:
            raise ValueError(f"{name} must be an integer of at least 0, got {value!r}.")
