"""Attendance of a round: how many parties are there at each of its steps.

Who leaves a round before a part of the next one's set-up sits that one out: see
`fedpriv.federation.engines.dropouts` for who leaves when.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedpriv.secagg.thresholds import Mode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fedpriv.federation.cost.setting import Setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Attendance:
    """Mean numbers of parties in one round.

    Attributes:
        keyed: Whose keys were listed in its set-up.
        sharers: Who dealt shares there: they are asked.
        answers: Who answered.
        signers: Who confirmed the set of survivors; in semi-honest mode those who answered.
        revealers: Who revealed.
        next_keyed: Who advertised keys for the round after, on the way; 0 if nobody is asked to.
        next_sharers: Who dealt shares for it.
    """

    keyed: float
    sharers: float
    answers: float
    signers: float
    revealers: float
    next_keyed: float
    next_sharers: float


Leavers = tuple[float, float, float]
"""How many parties leave a round before they answer, before they confirm, before they reveal."""


def attendances(
    setting: Setting, leavers: Callable[[int], Leavers] | None = None
) -> Iterator[Attendance]:
    """Every round of a run, in their order. One round alone prepares none after it.

    Args:
        setting: Of the run.
        leavers: Of each round, if they are known; else those that leave in the mean.
    """
    everybody, ahead = float(setting.parties), setting.rounds > 1
    active = setting.mode is Mode.ACTIVE
    keyed = sharers = everybody
    for number in range(setting.rounds):
        silent, unsigned, late = (leavers or setting.leavers)(number)
        answers = sharers - silent
        signers = answers - unsigned if active else answers
        revealers = answers - unsigned - late
        # Keys ride with the confirmation, or else with the answer; shares with what is revealed.
        next_keyed = (everybody - silent - (unsigned if active else 0.0)) if ahead else 0.0
        next_sharers = everybody - silent - unsigned - late if ahead else 0.0
        yield Attendance(
            keyed=keyed,
            sharers=sharers,
            answers=answers,
            signers=signers,
            revealers=revealers,
            next_keyed=next_keyed,
            next_sharers=next_sharers,
        )
        keyed, sharers = next_keyed, next_sharers
