"""Answered once: one answer to each release of a run, opened over one set of parties.

Two answers to one release would carry two draws of noise, and their mean has less noise than was
paid for. Two sums over different parties with the same noise shares would reveal, by their
difference, the answers of a few parties with only those parties' shares. Both rules are enforced
here, for every party. They depend on the latest answer of a run, a `Given`, which `Answers` keeps:
in memory in a simulation, on disk in a deployment.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np

from fedpriv.federation.party.guard import QueryRefused
from fedpriv.federation.queries.encoding import to_bytes
from fedpriv.privacy.randomness import SECRET_BYTES
from fedpriv.secagg.errors import OutOfOrder
from fedpriv.secagg.primitives.codec import Fixed, Ids, Layout, Number, Packed, Vector
from fedpriv.secagg.primitives.kinds import Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedpriv.federation.queries.base import Query
    from fedpriv.secagg.numbers.fixed_point import Ring

SALT_BYTES = 32
ROSTER_BYTES = 32
ONLY_ROSTER = bytes(ROSTER_BYTES)
"""What stands for the roster where there are no epochs of it."""
_ERASED = bytes(SECRET_BYTES)
_FIT = sha256(b"every exchange of a joint fit").digest()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Given(Packed):
    """The answer to one query of a run, before its masks, or how it will be drawn: private.

    Attributes:
        release: Which release of the run the query serves.
        query: The query's `digest_of`.
        roster: The digest of the roster that the run began under, where the roster has epochs: the
            numbers in ``opened`` name other parties in another epoch. Otherwise zeros.
        salt: Random, where a ledger keeps the digest, so that it does not reveal the answer.
        secret: The source of all randomness of the answer; zeros once the answer is known, and
            where it has no randomness.
        vector: The answer; empty if a repeated query recomputes the same answer.
        shared: 1 if the answer carries a share of the noise of the sum, else 0.
        seat: The 32-byte name of the masked run in which it was last given; zeros if in the clear.
        masks: The round of that masked run.
        opened: The parties of the opened sum that includes this answer; empty if none was opened.
    """

    kind: ClassVar[int] = Kind.GIVEN
    layout: ClassVar[Layout] = {
        "release": Number(8),
        "query": Fixed(32),
        "roster": Fixed(ROSTER_BYTES),
        "salt": Fixed(SALT_BYTES),
        "secret": Fixed(SECRET_BYTES),
        "vector": Vector(),
        "shared": Number(1),
        "seat": Fixed(32),
        "masks": Number(4),
        "opened": Ids(),
    }
    release: int
    query: bytes
    vector: Ring
    shared: int
    roster: bytes = ONLY_ROSTER
    salt: bytes = bytes(SALT_BYTES)
    secret: bytes = _ERASED
    seat: bytes = bytes(32)
    masks: int = 0
    opened: tuple[int, ...] = ()

    @classmethod
    def to(
        cls, query: Query, *, salt: bytes, secret: bytes = _ERASED, roster: bytes = ONLY_ROSTER
    ) -> Given:
        """The entry for the answer to ``query`` before it is computed."""
        return cls(
            release=query.round,
            query=digest_of(query),
            roster=roster,
            salt=salt,
            secret=secret,
            vector=np.zeros(0, np.uint64),
            shared=int(query.share is not None),
        )

    @property
    def pending(self) -> bool:
        """Whether the answer is still to be computed, from the secret."""
        return self.secret != _ERASED

    def answered(self, vector: Ring) -> Given:
        """The same, with its answer, and without the secret."""
        return replace(self, vector=vector, secret=_ERASED)

    @property
    def digest(self) -> bytes:
        """The ledger's entry: a commitment to this answer that reveals nothing about it."""
        return sha256(self.salt + self.query + self.vector.tobytes()).digest()


class Answers(Protocol):
    """Where the latest answer of every run is kept."""

    def given(self, name: str) -> Given | None:
        """The latest answer of the run that queries call ``name``."""
        ...

    def give(self, name: str, given: Given) -> None:
        """Store it in place of the last; only then may anything derived from it leave the party."""
        ...


class LatestAnswers:
    """`Answers` in memory: lost when the process ends."""

    def __init__(self) -> None:
        self._given: dict[str, Given] = {}
        self.remembered = b""  # of earlier rounds, where answers depend on them

    def given(self, name: str) -> Given | None:
        """The latest answer of the run that queries call ``name``."""
        return self._given.get(name)

    def give(self, name: str, given: Given) -> None:
        """Replace it."""
        self._given[name] = given


def digest_of(query: Query) -> bytes:
    """The digest that identifies a release's query; all exchanges of a joint fit share one."""
    return _FIT if query.joint_fit else sha256(to_bytes(query)).digest()


def recalled(query: Query, last: Given | None, *, roster: bytes = ONLY_ROSTER) -> Given | None:
    """The answer begun or given for this very query; None if the query is for a later release.

    Raises:
        QueryRefused: The run began under another roster, or the release was begun, answered or
            passed over under another query.
    """
    if last is not None and last.roster != roster:
        raise QueryRefused(
            "this run began under another epoch of the roster, and belongs to it: start a new one."
        )
    if last is None or (last.release, last.query) == (query.round, digest_of(query)):
        return last
    if query.round <= last.release:
        what = "begun" if last.pending else "answered"
        raise QueryRefused(
            f"release {last.release} of this run was {what} already: what is asked now for "
            f"release {query.round} would be a second answer."
        )
    return None


def answered_once(query: Query, answers: Answers, compute: Callable[[], Ring]) -> Ring:
    """The earlier answer to this very query, if any; otherwise what ``compute`` returns.

    An answer is kept if it contains the party's noise; otherwise recomputing gives the same answer.

    Raises:
        QueryRefused: The release was answered, or passed over, under another query.
    """
    given = recalled(query, answers.given(query.run))
    if given is not None and query.noise_by_party:
        return given.vector.copy()
    vector = compute()
    if given is None:
        given = Given.to(query, salt=bytes(SALT_BYTES))
        if query.noise_by_party:
            given = given.answered(vector.copy())
        answers.give(query.run, given)
    return vector


def require_opening(
    given: Given | None, *, run: bytes, masks: int, survivors: tuple[int, ...]
) -> Given:
    """The answer in the sum to be opened over ``survivors``.

    The party helps to open only its latest answer, and only where it was last given: for an earlier
    one, it may have forgotten with which parties it was opened.

    Raises:
        OutOfOrder: It is another sum, or the release was already opened over other parties.
    """
    if given is None or (given.seat, given.masks) != (run, masks):
        raise OutOfOrder("This party has gone on to another sum, or answered in none.")
    if given.shared and given.opened not in ((), survivors):
        raise OutOfOrder("This release was opened over other parties already.")
    return given
