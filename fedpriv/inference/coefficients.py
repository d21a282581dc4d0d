"""Coefficient table: estimate, standard error, interval and p-value of every coefficient.

All of it follows from an `Estimate`, and so from released numbers: to publish it costs nothing
more. Intervals are those of the normal law: what is released has far more records than
coefficients.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from scipy.special import ndtr, ndtri

from fedpriv._validate import require_open_unit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
        about: What a coefficient adds to, in words.
        confidence: Of the intervals.
        refusal: Why there are no intervals, and what would do; empty if there are.
        references: The level of every category that its other levels are compared with.
    """

    rows: tuple[Coefficient, ...]
    about: str = ""
    confidence: float = CONFIDENCE
    refusal: str = ""
    references: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        estimate: Estimate,
        names: Sequence[str],
        *,
        about: str = "",
        confidence: float = CONFIDENCE,
        refusal: str = "",
        references: Mapping[str, str] | None = None,
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
        described: dict[str, Any] = {
            "about": about,
            "confidence": confidence,
            "references": dict(references or {}),
        }
        if errors is None:
            bare = (
                Coefficient(name=name, estimate=float(value))
                for name, value in zip(names, values, strict=True)
            )
            return cls(rows=tuple(bare), refusal=refusal, **described)
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
        return cls(rows=tuple(rows), **described)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> CoefficientTable:
        """Invert `to_dict`."""
        return cls(
            rows=tuple(Coefficient(**row) for row in values["rows"]),
            about=values["about"],
            confidence=values["confidence"],
            refusal=values["refusal"] or "",
            references=values["references"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The table as JSON-ready values."""
        return {
            "about": self.about,
            "confidence": self.confidence,
            "refusal": self.refusal or None,
            "references": dict(self.references),
            "rows": [asdict(row) for row in self.rows],
        }

    def lines(self) -> list[str]:
        """The table as text, with what it is about and, where there are none, why."""
        wide = max((len(row.name) for row in self.rows), default=0)
        told = [f"coefficients: {self.about}"] if self.about else []
        interval = f"{100 * self.confidence:g} % interval"
        told.append(
            f"{'':{wide}}  {'estimate':>11}"
            + ("" if self.refusal else f"  {'std. error':>11}  {interval:>26}  {'p':>8}")
        )
        for row in self.rows:
            line = f"{row.name:{wide}}  {row.estimate:>11.5g}"
            if row.stderr is not None and row.p_value is not None:
                ends = f"[{row.low:.5g}, {row.high:.5g}]"
                p = "< 0.0001" if row.p_value < 1e-4 else f"{row.p_value:.4f}"
                line += f"  {row.stderr:>11.4g}  {ends:>26}  {p:>8}"
            told.append(line)
        told += [f"{name}: compared with {level}" for name, level in self.references.items()]
        if self.refusal:
            told.append(f"no intervals: {self.refusal}")
        return told
