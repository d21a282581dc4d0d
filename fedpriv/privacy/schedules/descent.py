"""What the theory promises of noisy descent, and how many rounds that suggests."""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING

import numpy as np

from fedpriv._validate import require_count, require_open_unit, require_positive
from fedpriv.privacy.schedules.allocation import harm
from fedpriv.privacy.schedules.influence import descent_influence, momentum_influence

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedpriv.privacy.schedules.schedule import Schedule

# Candidates for the number of rounds: all small ones, then a hundredth apart.
_DENSE = 300
_STRIDE = 1.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Descent:
    """Noisy gradient descent on an M-smooth risk with PL constant μ; public facts only.

    Theorem (Hong, Wang and Zhou 2022, with the constants written out). T full-batch steps of 1/M
    with noise of standard deviation C·σ_t on the sum, and C at least the Lipschitz constant, so
    that nothing is clipped, have an expected excess risk of at most

        γ^T·(f₁ − f*) + (d/2M)·(C/N)²·Σ_t γ^(T−t)·σ_t²,   γ = 1 − μ/M.

    With debiased momentum the q_t of `momentum_influence` stand in for γ^(T−t); the sum is then
    right up to a constant, and only ratios of bounds are meant.

    Attributes:
        smoothness: M.
        strong_convexity: μ < M; λ for a regularised convex loss.
        records: N.
        dimension: d.
        clip_norm: C.
        gap: a bound on f₁ − f*; ln 2 for the logistic loss from zero.
        momentum: β of debiased momentum; 0 for none.
    """

    smoothness: float
    strong_convexity: float
    records: int
    dimension: int
    clip_norm: float = 1.0
    gap: float = log(2)
    momentum: float = 0.0

    def __post_init__(self) -> None:
        require_positive(
            smoothness=self.smoothness,
            strong_convexity=self.strong_convexity,
            clip_norm=self.clip_norm,
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
    def gamma(self) -> float:
        """γ, by which noiseless descent contracts the excess risk in a round."""
        return 1 - self.strong_convexity / self.smoothness

    def influence(self, rounds: int) -> NDArray[np.float64]:
        """ln q_t of every round."""
        if self.momentum == 0:
            return descent_influence(rounds, gamma=self.gamma)
        return momentum_influence(rounds, gamma=self.gamma, beta=self.momentum)

    def bound(self, noise: NDArray[np.float64]) -> float:
        """The bound on the excess risk for the noise σ_1 … σ_T, in units of C on the sum."""
        logs = self.influence(len(noise))
        unit = self.dimension / (2 * self.smoothness) * (self.clip_norm / self.records) ** 2
        forgotten = self.gamma ** len(noise) * self.gap
        return float(forgotten + unit * np.exp(logs.max()) * harm(logs, noise))


def best_rounds(descent: Descent, schedule: Schedule, *, total: float, most: int) -> int:
    """The number of rounds, up to ``most``, with the least bound; it costs no privacy.

    Args:
        descent: the problem.
        schedule: how rounds share the budget.
        total: R = Σσ_t⁻² of the budget: μ(ε, δ)² in units of the sensitivity.
        most: the largest number that can be afforded.

    A long run is looked at every hundredth of its length: the bound is flat around its least.
    """
    require_count(most=most)
    require_positive(total=total)
    tried = [t for t in range(1, _DENSE + 1) if t <= most]
    while tried[-1] < most:
        tried.append(min(most, int(tried[-1] * _STRIDE) + 1))
    return min(tried, key=lambda rounds: descent.bound(schedule.noise(rounds, total=total)))
