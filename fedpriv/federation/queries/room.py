"""Room: how many records, or persons, the sum of one party has place for before it is clamped.

To clamp an answer moves no two answers of one party apart. Who is exchanged for another may leave
one party, though, and join another. What their parts have in common cancels in the sum of both
answers; if one of the two is clamped, it does not. So wherever a sensitivity rests on such
cancelling, no answer may be clamped, and there is room for all there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedpriv.federation.task import HEADROOM

if TYPE_CHECKING:
    from fedpriv.federation.task import Task

_ROOM_FOR_PERSONS = 64


def room(task: Task, size: int) -> int:
    """How many records, or persons, the counts of a party of ``size`` have place for.

    Where all records stay in place, nobody changes parties. Elsewhere a party may hold all there
    are, whatever was declared of it alone: one number for all, or a hash, says next to nothing
    about a single party.
    """
    if task.in_place:
        return HEADROOM * size
    return max(HEADROOM * task.records, _ROOM_FOR_PERSONS * size if task.persons else 0)
