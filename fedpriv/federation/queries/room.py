"""Room: how many records, or persons, one party's sum has room for before it is clamped.

Clamping never moves two answers of one party apart. But an exchanged unit may leave one party and
join another. What its parts have in common cancels in the sum of both answers, unless one of them
is clamped. So wherever a sensitivity rests on such cancelling, no answer may be clamped, and there
is room for every unit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedpriv.federation.task import HEADROOM

if TYPE_CHECKING:
    from fedpriv.federation.task import Task

_ROOM_FOR_PERSONS = 64


def room(task: Task, size: int) -> int:
    """How many records, or persons, the counts of a party of ``size`` have room for.

    Where all records stay in place, nobody changes parties. Elsewhere a party may hold all units,
    whatever was declared for it alone: one total number, or a hash, says next to nothing about a
    single party.
    """
    if task.in_place:
        return HEADROOM * size
    return max(HEADROOM * task.records, _ROOM_FOR_PERSONS * size if task.persons else 0)
