"""Openings of a release: over which parties a server has asked for its sum to be opened.

Where the parties contribute the noise, a party helps to open a release over one set of parties only
(`fedpriv.federation.party.answered`). If opening a sum fails midway, some parties may already be
bound to its set; a sum over any other set, even all parties, then always fails. So the server
remembers the set and asks for it again as soon as its parties are present.

But it does not ask for the same set for ever. Perhaps nobody is bound, and one of its parties
refuses to answer or misbehaves: then the others are enough. Perhaps two sets were asked for in
turn, and most parties are bound to the earlier one. So attempts alternate.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    Set = tuple[int, ...]


class Openings:
    """The sets of parties over which the latest release was to be opened, in memory.

    Args:
        release: The digest of its query.
        sets: Tuples of increasing party numbers, the latest set last.
        attempts: How often a set was asked for again.
    """

    def __init__(self, release: str = "", sets: Iterable[Set] = (), attempts: int = 0) -> None:
        self._release, self._sets, self._attempts = release, list(sets), attempts

    def note(self, query: bytes, parties: Set) -> None:
        """Remember a set, before any of its parties is asked to open it."""
        release = sha256(query).hexdigest()
        if release != self._release:
            self._release, self._sets, self._attempts = release, [], 0
        if parties not in self._sets:
            self._sets.append(parties)
            self.keep(self._release, self._sets, self._attempts)

    def to_repeat(self, query: bytes, there: Collection[int], *, others: bool) -> Set | None:
        """The set to ask for again, if all its parties are present; None to ask everybody.

        Attempts cycle through the sets, latest first, then everybody. While a party of a set is
        absent, nobody knows who is bound to it. Other sets may still be tried: a bound party
        refuses.

        Args:
            query: The query of the release.
            there: The parties that are present.
            others: Whether to alternate between complete sets and everybody. If all sign a set
                before any reveals, this binds nobody to a set that is not opened; otherwise it may.
        """
        if sha256(query).hexdigest() != self._release:
            return None
        turns: list[Set | None] = [s for s in reversed(self._sets) if set(s) <= set(there)]
        if not turns:
            return None
        if others:
            turns.append(None)
        turn = turns[self._attempts % len(turns)]
        self._attempts += 1
        self.keep(self._release, self._sets, self._attempts)
        return turn

    def keep(self, release: str, sets: list[Set], attempts: int) -> None:
        """Persist them, where a server may be restarted."""
