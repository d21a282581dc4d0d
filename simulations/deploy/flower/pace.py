"""How often a program looks for work that nobody announces."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_LOOKS = 20


@dataclass(kw_only=True)
class Pace:
    """Often while there is work, seldom when there is none.

    The pause is a twentieth of the time that nothing has come, within limits: so nothing waits for
    much longer than it would have taken to come, and an idle machine is idle.

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
        """There was work."""
        self._last = self.clock()

    @property
    def pause(self) -> float:
        """Seconds to wait before the next look."""
        return min(max((self.clock() - self._last) / _LOOKS, self.shortest), self.longest)
