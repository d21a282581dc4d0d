"""The kinds of noise schedule. An optimal one has σ_t² ∝ q_t^(−1/2), by `allocation`'s Lemma."""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fedpriv._validate import require_count, require_open_unit, require_positive
from fedpriv.privacy.schedules.influence import descent_influence, momentum_influence
from fedpriv.privacy.schedules.schedule import Schedule

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Uniform(Schedule):
    """The same noise in every round."""

    name: ClassVar[str] = "uniform"

    def log_noise(self, rounds: int) -> NDArray[np.float64]:
        """The same in every round."""
        return np.zeros(rounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dynamic(Schedule):
    """Optimal noise for descent that contracts by γ: σ_t² ∝ γ^(−(T−t)/2), falling.

    With Σσ_t⁻² = R the noise term of the bound falls from T(1−γ^T)/(1−γ)/R, uniform, to
    ((1−γ^(T/2))/(1−√γ))²/R (Hong, Wang and Zhou 2022).

    Attributes:
        gamma: γ = 1 − μ/M; public.
    """

    name: ClassVar[str] = "dynamic"
    gamma: float

    def __post_init__(self) -> None:
        require_open_unit(gamma=self.gamma)

    def log_noise(self, rounds: int) -> NDArray[np.float64]:
        """By the Lemma."""
        return -descent_influence(rounds, gamma=self.gamma) / 4


@dataclass(frozen=True, slots=True, kw_only=True)
class MomentumAware(Schedule):
    """Optimal noise for debiased momentum: least a little before the end, then rising again.

    Attributes:
        gamma: γ, the contraction of the noiseless descent; public.
        beta: β, the momentum.
    """

    name: ClassVar[str] = "momentum"
    gamma: float
    beta: float

    def __post_init__(self) -> None:
        require_open_unit(gamma=self.gamma, beta=self.beta)

    def log_noise(self, rounds: int) -> NDArray[np.float64]:
        """By the Lemma."""
        return -momentum_influence(rounds, gamma=self.gamma, beta=self.beta) / 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Exponential(Schedule):
    """σ_t ∝ decay^t: every round has ``decay`` times the noise of the one before.

    With decay = γ^(1/4) it is `Dynamic`.
    """

    name: ClassVar[str] = "exponential"
    decay: float

    def __post_init__(self) -> None:
        require_positive(decay=self.decay)

    def log_noise(self, rounds: int) -> NDArray[np.float64]:
        """Powers of the decay."""
        return np.asarray(log(self.decay) * np.arange(rounds))


@dataclass(frozen=True, slots=True, kw_only=True)
class Step(Schedule):
    """The noise is multiplied by ``factor`` after every ``every`` rounds."""

    name: ClassVar[str] = "step"
    every: int
    factor: float

    def __post_init__(self) -> None:
        require_count(every=self.every)
        require_positive(factor=self.factor)

    def log_noise(self, rounds: int) -> NDArray[np.float64]:
        """Powers of the factor."""
        return np.asarray(log(self.factor) * (np.arange(rounds) // self.every))


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured(Schedule):
    """Optimal noise for an influence measured on public data, or known otherwise.

    Attributes:
        influence: q_1 … q_T > 0, in any unit.
    """

    name: ClassVar[str] = "influence"
    influence: tuple[float, ...]

    def __post_init__(self) -> None:
        require_positive(**{f"influence[{t}]": q for t, q in enumerate(self.influence)})

    def log_noise(self, rounds: int) -> NDArray[np.float64]:
        """By the Lemma; only for the measured number of rounds."""
        if rounds != len(self.influence):
            raise ValueError(
                f"influence must have one entry per round, {rounds}; got {len(self.influence)}."
            )
        return np.asarray(-np.log(self.influence) / 4)
