"""Networks so wide that what is added in which order shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.audit.neighbours import Case


@dataclass(frozen=True, kw_only=True)
class Wide(Case):
    """A table of numbers in [-1, 1], of as many parties as there are in `ALONE`."""

    columns: int = 16

    def schema(self) -> dict[str, Any]:
        number = {"kind": "number", "min": -1, "max": 1, "fill": 0}
        return {
            "label": "y",
            "positive": "1",
            "party": "p",
            "out_of_range": "clamp",
            "columns": {
                **{f"x{i:02}": number for i in range(self.columns)},
                "y": {"kind": "category", "values": [0, 1]},
                "p": {"kind": "category", "values": list("abcdefg")},
            },
        }
