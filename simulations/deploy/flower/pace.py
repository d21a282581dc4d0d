"""Polling pace: how often a program looks for work that nobody announces."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_LOOKS = 20


@dataclass(kw_only=True)
class Pace:
    """The pause between two polls: short while there is work, long when there is none.

    It is a twentieth of the time since the last work, within limits: so the wait for new work grows
    by little, and an idle machine stays idle.

    Attributes:
        shortest: Seconds between two looks while there is work.
        longest: And when there has been none for long.
        clock: Seconds since some moment, never backwards.
    """

    shortest: float
    longest: float
    clock: Callable[[], float] = time.monotonic
    _last: float = field(init=False)

    def __post_init__(self) -> None:
        self._last = self.clock()

    def came(self) -> None:
        """Note that there was work."""
        self._last = self.clock()

    @property
    def pause(self) -> float:
        """Seconds to wait before the next look."""
        return min(max((self.clock() - self._last) / _LOOKS, self.shortest), self.longest)
