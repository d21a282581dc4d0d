"""Hostile schemas: ranges at the ends of what numbers there are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.audit.examination import findings
from tests.audit.neighbours import GRADIENTS, INFERENCE, Case, table

if TYPE_CHECKING:
    from pathlib import Path

    from tests.audit.laboratory import Laboratory

WHOLE = {"scaling": "divide", "test_fraction": 0.0}


@dataclass(frozen=True, kw_only=True)
class Ranged(Case):
    """A case whose ages have a range of their own.

    Attributes:
        ends: Of the range.
    """

    ends: tuple[float, float]

    def schema(self) -> dict[str, Any]:
        found = super().schema()
        low, high = self.ends
        found["columns"]["age"] = {"kind": "number", "min": low, "max": high, "fill": low}
        return found


@pytest.mark.parametrize("ends", [(0.0, 5e-324), (-8e307, 8e307)])
@pytest.mark.parametrize("model", [{}, {"name": "squared"}], ids=["logistic", "linear"])
def test_coefficients_of_no_unit_are_refused_before_they_are_paid_for(
    model: dict[str, Any], ends: tuple[float, float], laboratory: Laboratory, tmp_path: Path
) -> None:
    """They were divided by zero, when the release was in the ledger and no file was written."""
    case = Ranged(name="fit", strategy=INFERENCE, model=model, data=WHOLE, ends=ends)
    done = laboratory.run(case, table(case.task), tmp_path / "one")
    assert (done.code, (tmp_path / "one" / "own.ledger").exists()) == (2, False)
    assert "column 'age' must have a range" in done.said


@pytest.mark.parametrize(
    "ends", [(0.0, 5e-324), (-8e307, 8e307), (1.0, 1.0000000000000002), (-1e-320, 1e-320)]
)
def test_a_range_of_any_length_shows_no_record(
    ends: tuple[float, float], laboratory: Laboratory, tmp_path: Path
) -> None:
    """What was tried, and found nothing."""
    case = Ranged(name="ranged", strategy={**GRADIENTS, "rounds": 1}, ends=ends)
    assert findings(case, laboratory, tmp_path) == []
