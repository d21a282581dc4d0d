"""A budget (ε, δ), and the error raised when it would be exceeded."""

from __future__ import annotations

from dataclasses import dataclass

from fedpriv._validate import require_delta, require_positive

# Spend is compared with a budget up to this relative difference: ten releases of ε = 0.1 fit ε = 1,
# although their floating-point sum need not. It is far below anything a statement prints.
RELATIVE_TOLERANCE = 1e-10


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A privacy budget: the (ε, δ) that may be spent.

    >>> print(Budget(epsilon=1.0, delta=1e-6))
    epsilon = 1, delta = 1e-06
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        require_positive(epsilon=self.epsilon)
        require_delta(delta=self.delta)

    def __str__(self) -> str:
        return f"epsilon = {self.epsilon:g}, delta = {self.delta:g}"


class BudgetExceeded(RuntimeError):
    """A release would spend more than its budget. Nothing was released."""


def within(spent: float, limit: float) -> bool:
    """Whether ``spent`` is at most ``limit``, up to rounding. False for NaN."""
    return spent <= limit * (1 + RELATIVE_TOLERANCE)
