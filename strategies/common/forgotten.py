"""State that a user's strategy forgets to save: a warning before a run is resumed.

A resumed run has the model and what `_state` returned. Anything else that changed from round to
round is back to what `__init__` made, so that the run ends at another model. Privacy does not
depend on it: the releases are paid for, and never drawn again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping


def remembered(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The current numbers and arrays among the attributes."""
    return {
        name: np.array(value)
        for name, value in attributes.items()
        if isinstance(value, int | float | np.ndarray | np.generic)
    }


def forgotten(
    before: Mapping[str, Any], now: Mapping[str, Any], state: Mapping[str, Any]
) -> list[str]:
    """Attributes that changed and appear in the state neither by name nor by value."""
    saved, values = {name.strip("_") for name in state}, remembered(state).values()
    return sorted(
        name
        for name, value in remembered(now).items()
        if not (name in before and np.array_equal(value, before[name]))
        and name.strip("_") not in saved
        and not any(np.array_equal(value, each) for each in values)
    )
