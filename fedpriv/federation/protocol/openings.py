"""Openings of a release: over which parties a server has asked for its sum to be opened.

Where the parties bring the noise, a party helps to open a release over one set of parties only
(`fedpriv.federation.party.answered`). If a sum fails while it is being opened, some may have bound
themselves to its set already; a sum over any other set, be it all parties, then fails for ever. So
the server remembers the set, and asks for the same one again as soon as its parties are there.

Nor does it ask for the same one for ever. Perhaps nobody is bound, and one of its parties refuses
to answer, or is up to no good: then the others are enough. Perhaps two sets were asked for, one
after the other, and the earlier one is what most are bound to. So attempts take turns.
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
        sets: Each a tuple of increasing numbers, the latest one last.
        attempts: How often one was asked for again.
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
        """The set to ask for again, if its parties are all there; None to ask whoever is there.

        The latest one first, then the earlier ones, then everybody, and from the beginning.
        Without a party of a set nobody knows who is bound. Others may be asked: who is, refuses.

        Args:
            query: Of the release.
            there: The parties that can be asked.
            others: Whether to ask everybody in turn with sets that are there. It binds nobody to a
                set that is not opened if all sign it before one reveals, and else may.
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
        """Write them down, where a server may be started again."""
