"""Colours, marks and dashes of curves, distinguishable by colour and by shape.

A strategy with noise at every party has the colour of the one with noise on the sum, and a dashed
line with hollow marks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

NEUTRAL = 7
"""The colour of what is no strategy with noise: levels to compare with."""

LOCAL = "local-"


def styles(strategies: Mapping[str, str]) -> dict[str, tuple[int, int, bool]]:
    """By curve, its colour, its mark and whether it is dashed; ``strategies`` by curve.

    >>> styles({"a": "output", "b": "local-output", "c": "gradient"})
    {'a': (0, 0, False), 'b': (0, 0, True), 'c': (1, 1, False)}
    """
    given: dict[str, tuple[int, int, bool]] = {}
    own = [name for name, strategy in strategies.items() if not strategy.startswith(LOCAL)]
    for place, name in enumerate(own):
        given[name] = place % NEUTRAL, place, False
    paired: set[str] = set()
    for name, strategy in strategies.items():
        if name in given:
            continue
        twin = next(
            (
                other
                for other in own
                if LOCAL + strategies[other] == strategy and other not in paired
            ),
            None,
        )
        if twin is None:
            place = len(given)
            given[name] = place % NEUTRAL, place, True
        else:
            paired.add(twin)
            given[name] = given[twin][0], given[twin][1], True
    return {name: given[name] for name in strategies}
