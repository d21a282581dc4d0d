"""A party of a deployment: it pays from its own budget before it uses a record, and answers once.

The order of an answer, each step durable before the next:

    check the policy → reserve in the party's ledger → take the records, compute → store the answer
    in the journal → commit its digest in the ledger → the answer leaves, masked

A party that is killed before the answer is stored has let nothing out; it computes it when asked
again, under the same reservation. Killed later, it finds the answer, and sends those bytes.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from functools import cached_property
from hashlib import sha256
from logging import getLogger
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.data import DataError, Files, bound, table_identity
from fedpriv.federation import codec
from fedpriv.federation.guard import Policy, QueryRefused
from fedpriv.federation.journal import SALT_BYTES, Given
from fedpriv.federation.party import Party
from fedpriv.federation.party_guard import check_terms
from fedpriv.federation.queries import RiskGradientQuery
from fedpriv.privacy.accountants import UnsupportedEvent
from fedpriv.privacy.budget import BudgetExceeded
from fedpriv.privacy.ledger import Ledger, LedgerError
from fedpriv.privacy.randomness import RandomStream

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fedpriv.data import Dataset
    from fedpriv.federation.journal import Journal
    from fedpriv.federation.party_guard import Engagement
    from fedpriv.federation.party_policy import PartyFile
    from fedpriv.federation.queries import Query
    from fedpriv.privacy.events import Event
    from fedpriv.privacy.ledger import Reservation
    from fedpriv.secagg.fixed_point import Ring

_LOG = getLogger("fedpriv.party")
_FIT = sha256(b"every exchange of a joint fit").digest()


class DeployedParty:
    """What one party does with a query: `fedpriv.federation.party.Party`, in charge of its budget.

    Guarantee. All answers that this party ever gives, to any servers and runs, cost its records at
    most the budget of its file, as `fedpriv.federation.party_guard` charges them, if the file, the
    ledger and the journal are not tampered with. Of one release of a run at most one answer leaves:
    the same query again gets the same integers, from the journal; another query for that release,
    or for one before it, is refused. All randomness is the operating system's.

    A joint fit is an exception to the second sentence: its exchanges have no noise of the party's,
    many of them serve one release, and each is computed when it is asked for.

    Args:
        file: What the party's own file says.
        size: How many records the roster states for it.
        engagement: The run that asks.
        journal: Where answers are kept. It must be held while a query is answered.
        files: Where its records come from: the disk, or what was read from it before.
    """

    def __init__(
        self,
        file: PartyFile,
        *,
        size: int,
        engagement: Engagement,
        journal: Journal,
        files: Files | None = None,
    ) -> None:
        self._file = file
        self._size = size
        self._engagement = engagement
        self._journal = journal
        self._files = files or Files()

    @property
    def size(self) -> int:
        """n_j, as the roster states it; the records are counted when they are read."""
        return self._size

    def answer(self, query: Query) -> Ring:
        """The answer to ``query``, in fixed point, paid for.

        Raises:
            QueryRefused: The policy, the budget or the journal forbids it, and no record was used;
                or the records are not those of the ledger and the roster.
        """
        file = self._file
        event = check_terms(query, self._engagement, file.policy, file.adjacency)
        fit = isinstance(query, RiskGradientQuery)
        asked = _FIT if fit else sha256(codec.to_bytes(query)).digest()
        with _faults(file.name), self._ledger() as ledger:
            last = self._journal.given(query.run)
            if last is not None and (last.release, last.query) != (query.round, asked):
                _require_later(query, last)
                last = None
            reservation = _reserve(ledger, query, event)
            if last is not None and not fit:
                vector = last.vector
            else:
                _require_unanswered(reservation, last)
                vector = self._computed(ledger, query)
            if last is None:
                last = Given(
                    release=query.round,
                    query=asked,
                    salt=os.urandom(SALT_BYTES),
                    vector=np.zeros(0, np.uint64) if fit else vector,
                    shared=int(query.share is not None),
                )
                self._journal.give(query.run, last)
            ledger.commit(reservation, last.digest)
        return vector

    def _computed(self, ledger: Ledger, query: Query) -> Ring:
        """Read the records, make sure that the ledger is theirs, and compute."""
        party = self._party
        with _unreadable(self._file.name):
            ledger.bind_data(table_identity(self._file.data))
        return party.answer(query)

    @cached_property
    def _dataset(self) -> Dataset:
        with _unreadable(self._file.name):
            return self._files.table(self._file.data, schema=self._file.schema)

    @cached_property
    def _party(self) -> Party:
        records = bound(self._dataset, self._engagement.bounds).train
        if len(records) != self._size:
            raise QueryRefused(
                f"the roster states {self._size} records for {self._file.name!r}, and its data "
                "file has another number."
            )
        return Party(
            records,
            task=self._engagement.task,
            sampling=_fresh,
            noise=_fresh,
            policy=Policy(queries=self._file.policy.queries),
        )

    @contextmanager
    def _ledger(self) -> Iterator[Ledger]:
        """The party's ledger, of exactly the budget in its file; made before its first run only."""
        file = self._file
        if not file.ledger.exists():
            if self._journal.answered:
                raise QueryRefused(
                    "this party has answered before, and its ledger is gone: put it back from a "
                    "copy. A new one would forget what was spent."
                )
            Ledger.create(
                file.ledger,
                data_name=file.name,
                budget=file.budget,
                adjacency=file.adjacency,
                composition=file.composition,
            ).close()
        with Ledger.open(file.ledger, budget=file.budget, adjacency=file.adjacency) as ledger:
            yield ledger


def _reserve(ledger: Ledger, query: Query, event: Event) -> Reservation:
    """Pay, or find that it was paid for."""
    try:
        return ledger.reserve(event, run=query.run, round=query.round)
    except BudgetExceeded:
        raise QueryRefused(
            f"what is left of this party's budget does not pay for release {query.round}."
        ) from None
    except UnsupportedEvent:
        raise QueryRefused(
            f"this party's ledger adds up by a rule that has no price for {event.kind} releases."
        ) from None


def _require_later(query: Query, last: Given) -> None:
    if query.round <= last.release:
        raise QueryRefused(
            f"release {last.release} of this run was answered already: what is asked now for "
            f"release {query.round} would be a second answer."
        )


def _require_unanswered(reservation: Reservation, last: Given | None) -> None:
    if reservation.status == "committed" and last is None:
        raise QueryRefused(
            f"release {reservation.round} of this run was answered already, and the answer is not "
            "in the state directory any more. Another one would be a second draw of noise."
        )


@contextmanager
def _unreadable(name: str) -> Iterator[None]:
    """What is wrong with records is for the log of their owner alone."""
    try:
        yield
    except DataError as error:
        _LOG.warning("party %s: %s", name, error)
        raise QueryRefused("the records of this party cannot be used.") from None


@contextmanager
def _faults(name: str) -> Iterator[None]:
    """A disk or a ledger that fails is a refusal: no answer leaves, and no path is told.

    What is wrong with them is for the log of their owner alone.
    """
    try:
        yield
    except LedgerError as error:
        _LOG.warning("party %s: %s", name, error)
        raise QueryRefused(
            f"this party's ledger does not take the release: {type(error).__name__}."
        ) from None
    except OSError as error:
        _LOG.warning("party %s: %s", name, error)
        raise QueryRefused(
            f"this party's disk does not take the answer: {type(error).__name__}."
        ) from None


def _fresh(_round: int) -> RandomStream:
    """Of the operating system: no seed of anybody reaches it."""
    return RandomStream.from_os()
