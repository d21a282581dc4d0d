"""Coefficient table: estimate, standard error, interval and p-value of every coefficient.

All of it follows from an `Estimate`, and so from released numbers: to publish it costs nothing
more. Intervals are those of the normal law: what is released has far more records than
coefficients.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from scipy.special import ndtr, ndtri

from fedpriv._validate import require_open_unit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedpriv.inference.estimate import Estimate

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficient:
    """One line of the table; without an interval all but the estimate is None.

    Attributes:
        name: Of the coefficient.
        estimate: Its value.
        stderr: Its standard error, over sampling and noise.
        low: The lower end of its interval.
        high: The upper end.
        p_value: Of the hypothesis that it is zero, two-sided.
    """

    name: str
    estimate: float
    stderr: float | None = None
    low: float | None = None
    high: float | None = None
    p_value: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CoefficientTable:
    """The coefficients of a model, in the units of its table.

    Attributes:
        rows: One per coefficient.
        confidence: Of the intervals.
        refusal: Why there are no intervals, and what would do; empty if there are.
    """

    rows: tuple[Coefficient, ...]
    confidence: float = CONFIDENCE
    refusal: str = ""

    @classmethod
    def of(
        cls,
        estimate: Estimate,
        names: Sequence[str],
        *,
        confidence: float = CONFIDENCE,
        refusal: str = "",
    ) -> CoefficientTable:
        """The table of one estimate.

        Raises:
            ValueError: There is no covariance, and no reason for it: a table without intervals
                says why it has none.
        """
        require_open_unit(confidence=confidence)
        values, errors = estimate.values, estimate.stderr
        if (errors is None) != bool(refusal):
            raise ValueError("refusal must be given where there is no covariance, and only there.")
        if errors is None:
            rows = [
                Coefficient(name=name, estimate=float(value))
                for name, value in zip(names, values, strict=True)
            ]
            return cls(rows=tuple(rows), confidence=confidence, refusal=refusal)
        z = float(ndtri((1 + confidence) / 2))
        rows = [
            Coefficient(
                name=name,
                estimate=float(value),
                stderr=float(error),
                low=float(value - z * error),
                high=float(value + z * error),
                p_value=float(2 * ndtr(-abs(value) / error)),
            )
            for name, value, error in zip(names, values, errors, strict=True)
        ]
        return cls(rows=tuple(rows), confidence=confidence)

    def to_dict(self) -> dict[str, Any]:
        """The table as JSON-ready values."""
        return {
            "confidence": self.confidence,
            "refusal": self.refusal or None,
            "rows": [asdict(row) for row in self.rows],
        }
