"""The schedule interface: the noise of every round, relative to the others."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fedpriv._validate import require_count
from fedpriv.privacy.planning.calibration import calibrate
from fedpriv.privacy.schedules.allocation import gain, scaled_noise
from fedpriv.privacy.unit import DEFAULT_UNIT, Unit

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fedpriv.privacy.adjacency import Adjacency
    from fedpriv.privacy.budget import Budget
    from fedpriv.privacy.planning.calibration import Calibration


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule(ABC):
    """A noise schedule, fixed before the first release from public facts. Use a subclass.

    Guarantee. A schedule spends Σσ_t⁻² = R exactly, whatever its shape, and R is what exact
    Gaussian accounting allows: full-batch rounds with noise σ_t, in units of the sensitivity, are
    together √R-GDP (Dong, Roth and Su 2022, Cor. 2). Its shape changes the utility alone.
    """

    name: ClassVar[str]

    @abstractmethod
    def log_noise(self, rounds: int) -> NDArray[np.float64]:
        """ln σ_1 … ln σ_T up to a common term."""

    def noise(self, rounds: int, *, total: float) -> NDArray[np.float64]:
        """σ_1 … σ_T with Σσ_t⁻² = ``total``."""
        require_count(rounds=rounds)
        return scaled_noise(self.log_noise(rounds), total=total)

    def shape(self, rounds: int) -> tuple[float, ...]:
        """σ_1 … σ_T in units of the uniform noise of the same cost."""
        return tuple(self.noise(rounds, total=float(rounds)).tolist())

    def gain(self, log_influence: NDArray[np.float64]) -> float:
        """How many times less harm than uniform noise, for rounds with this influence."""
        return gain(log_influence, self.noise(len(log_influence), total=1.0))

    def calibrated(
        self,
        *,
        budget: Budget,
        rounds: int,
        adjacency: Adjacency | str,
        sampling_rate: float = 1.0,
        accountant: str = "auto",
        unit: Unit | str = DEFAULT_UNIT,
    ) -> Calibration:
        """All noise multipliers and events of a run within a budget."""
        return calibrate(
            epsilon=budget.epsilon,
            delta=budget.delta,
            rounds=rounds,
            sampling_rate=sampling_rate,
            adjacency=adjacency,
            shape=self.shape(rounds),
            accountant=accountant,
            unit=unit,
        )
