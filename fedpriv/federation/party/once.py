"""One draw of noise a round: a party that adds noise answers each round of a run once."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from fedpriv.federation.party.guard import QueryRefused
from fedpriv.federation.queries.encoding import to_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedpriv.federation.queries.kinds import Query
    from fedpriv.secagg.numbers.fixed_point import Ring


class OncePerRound:
    """Remembers the last answer of every run.

    Guarantee. Of one round of one run at most one answer is ever computed. Two would carry two
    draws of noise, and their mean has less noise than was paid for. The same query again gets the
    same integers; another query for that round, or one for an earlier round, is refused.

    Not covered: a process that has forgotten. Whoever runs a party as a fresh process for every
    message must store the reply with the message, and send the stored bytes again.
    """

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, bytes, Ring]] = {}

    def answer(self, query: Query, compute: Callable[[], Ring]) -> Ring:
        """What was answered to this very query before, or else what ``compute`` returns now.

        Raises:
            QueryRefused: The round was answered, or passed over, under another query.
        """
        asked = sha256(to_bytes(query)).digest()
        last = self._last.get(query.run)
        if last is not None and last[:2] == (query.round, asked):
            return last[2].copy()
        if last is not None and query.round <= last[0]:
            raise QueryRefused(
                f"round {last[0]} of this run was answered already, to another query than this "
                f"one for round {query.round}: a second draw of noise would reveal the first."
            )
        answer = compute()
        self._last[query.run] = (query.round, asked, answer.copy())
        return answer
