"""Budgets as experiment files state them: a number, or "inf" for a simulation without noise.

JSON has no infinity, so "inf" is what files, results and rows write for it, everywhere.
"""

from __future__ import annotations

from math import inf
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

INFINITE: Literal["inf"] = "inf"
"""ε of a run without noise."""

NO_RELEASE = (
    "privacy.epsilon = 'inf' adds no noise, and a model without noise may reveal any record: it is "
    "for simulations alone. Give privacy.epsilon a number for a release, a ledger or a deployment."
)
"""What everything says that would make a promise."""


def _in_words(epsilon: Any) -> Any:
    return INFINITE if epsilon == inf else epsilon


Epsilon = Annotated[
    Annotated[float, Field(gt=0)] | Literal["inf"],
    BeforeValidator(_in_words),
]
"""ε; TOML's own inf is the same as "inf"."""


def stated(epsilon: float | None) -> float | str | None:
    """A budget as JSON states it."""
    return INFINITE if epsilon == inf else epsilon


def shown(epsilon: float) -> str:
    """A budget as tables, plots and sentences print it."""
    return "∞" if epsilon == inf else f"{epsilon:g}"
