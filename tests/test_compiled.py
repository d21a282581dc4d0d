"""Compiled loops."""

import numpy as np
import pytest

from fedpriv._compiled import compiled


def add_up(values: np.ndarray) -> float:
    total = 0.0
    for i in range(len(values)):
        total += values[i]
    return total


def add_up_loosely(values: np.ndarray) -> float:  # kept code goes by the name of the function
    total = 0.0
    for i in range(len(values)):
        total += values[i]
    return total


def test_a_loop_is_compiled_where_its_code_can_be_kept_nowhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("numba.core.caching.CacheImpl._locator_classes", [])
    assert compiled()(add_up)(np.arange(5.0)) == 10.0


def test_nothing_about_floating_point_changes_unless_it_is_named() -> None:
    """Regrouped, as vector instructions do it, the ones are not lost in the large number."""
    values = np.array([2.0**53] + [1.0] * 4096)
    assert compiled()(add_up)(values) == 2.0**53
    assert compiled(relaxed={"reassoc", "nsz"})(add_up_loosely)(values) > 2.0**53
