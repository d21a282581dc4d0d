"""Risk bounds for noisy gradient descent, and the number of rounds that they suggest."""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING

import numpy as np

from fedpriv._validate import require_count, require_open_unit, require_positive
from fedpriv.privacy.schedules.allocation import scaled_noise
from fedpriv.privacy.schedules.momentum import momentum_noise, momentum_step_limit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedpriv.privacy.schedules.schedule import Schedule

# Candidates for the number of rounds: all small ones, then one percent apart.
_DENSE = 300
_STRIDE = 1.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Descent:
    """Noisy gradient descent on an M-smooth risk with PL constant μ; public facts only.

    Theorem (Hong, Wang and Zhou 2022, with the constants written out). T full-batch steps of
    η = 1/M with noise of standard deviation C·σ_t on the sum, and C at least the Lipschitz
    constant, so that nothing is clipped, have an expected excess risk of at most

        γ^T·(f₁ − f*) + (η·d/2)·(C/N)²·Σ_t γ^(T−t)·σ_t²,   γ = 1 − ημ.

    Proof. By smoothness and E[noise] = 0, E[f(θ_{t+1})] ≤ f(θ_t) − (η − Mη²/2)·‖∇f(θ_t)‖² +
    (Mη²/2)·d·(Cσ_t/N)², and ‖∇f‖² ≥ 2μ(f − f*).

    With debiased momentum, η and the sum are those of the theorem in `momentum`. Where gradients
    are clipped no bound is known: they are biased, and even without noise descent can end far from
    the minimum.

    Attributes:
        smoothness: M.
        strong_convexity: μ < M; λ for a regularised convex loss.
        records: N.
        dimension: d.
        clip_norm: C.
        lipschitz: G, the largest norm of one record's gradient, without the regulariser's.
        gap: a bound on f₁ − f*; ln 2 for the logistic loss from zero.
        momentum: β of debiased momentum; 0 for none.
    """

    smoothness: float
    strong_convexity: float
    records: int
    dimension: int
    clip_norm: float = 1.0
    lipschitz: float = 1.0
    gap: float = log(2)
    momentum: float = 0.0

    def __post_init__(self) -> None:
        require_positive(
            smoothness=self.smoothness,
            strong_convexity=self.strong_convexity,
            clip_norm=self.clip_norm,
            lipschitz=self.lipschitz,
            gap=self.gap,
        )
        require_count(records=self.records, dimension=self.dimension)
        if not self.strong_convexity < self.smoothness:
            raise ValueError(
                f"strong_convexity must be below smoothness = {self.smoothness!r}, got "
                f"{self.strong_convexity!r}."
            )
        if self.momentum != 0:
            require_open_unit(momentum=self.momentum)

    @property
    def step(self) -> float:
        """η for which the bound holds: 1/M, or less with momentum."""
        if self.momentum == 0:
            return 1 / self.smoothness
        return momentum_step_limit(
            smoothness=self.smoothness,
            strong_convexity=self.strong_convexity,
            beta=self.momentum,
        )

    @property
    def gamma(self) -> float:
        """γ, by which noiseless descent contracts the excess risk per round, or a bound on it."""
        return 1 - self.strong_convexity * self.step

    @property
    def no_bound(self) -> str | None:
        """Why no bound is known; None where there is one."""
        if self.clip_norm >= self.lipschitz:
            return None
        return (
            f"clip = {self.clip_norm:g} is below the Lipschitz constant {self.lipschitz:g}, and "
            "clipped gradients are biased"
        )

    def bound(self, noise: NDArray[np.float64]) -> float:
        """The bound on the excess risk for the noise σ_1 … σ_T, in units of C on the sum."""
        return float(self.bounds(noise)[-1])

    def bounds(self, noise: NDArray[np.float64]) -> NDArray[np.float64]:
        """The bound after each round; an error where none is known."""
        if self.no_bound is not None:
            raise ValueError(
                f"no bound is known: {self.no_bound}. Choose rounds and schedule on public data, "
                f"or clip at {self.lipschitz:g}."
            )
        forgotten = self.gap * self.gamma ** np.arange(1, len(noise) + 1.0)
        return np.asarray(forgotten + self._harm(noise))

    def gain(self, noise: NDArray[np.float64]) -> float:
        """How many times smaller the last bound's noise term is than with uniform noise."""
        uniform = scaled_noise(np.zeros_like(noise), total=float(np.sum(noise**-2.0)))
        return float(self._harm(uniform)[-1] / self._harm(noise)[-1])

    def _harm(self, noise: NDArray[np.float64]) -> NDArray[np.float64]:
        """The noise term of the bound after each round: every round adds to it, γ shrinks it."""
        unit = self.step * self.dimension / 2 * (self.clip_norm / self.records) ** 2
        risen = np.square(noise)
        if self.momentum:
            risen = 2 * momentum_noise(risen, beta=self.momentum)
        from scipy.signal import lfilter  # slow to import, and needed here only

        return np.asarray(lfilter([unit], [1.0, -self.gamma], risen))


def best_rounds(descent: Descent, schedule: Schedule, *, total: float, most: int) -> int:
    """The number of rounds, up to ``most``, with the least bound; it costs no privacy.

    Args:
        descent: the problem.
        schedule: how rounds share the budget.
        total: R = Σσ_t⁻² of the budget: μ(ε, δ)² in units of the sensitivity.
        most: the largest number that can be afforded.

    A long run is sampled at every hundredth of its length: the bound is flat around its minimum.
    """
    require_count(most=most)
    require_positive(total=total)
    tried = [t for t in range(1, _DENSE + 1) if t <= most]
    while tried[-1] < most:
        tried.append(min(most, int(tried[-1] * _STRIDE) + 1))
    return min(tried, key=lambda rounds: descent.bound(schedule.noise(rounds, total=total)))
