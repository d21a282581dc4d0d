"""Deployed party: it pays from its own budget before it uses a record, and answers once.

The order of an answer; what is written is durable before the next step:

    check the policy and the plan, and that the budget would pay
    → make sure that the records can be used, are those of the ledger and as many as the roster says
    → draw a secret, from which all randomness of this release follows: into the journal
    → reserve in the party's ledger: the release, or with the first one the whole plan
    → compute → store the answer in the journal, erase the secret → commit its digest in the ledger
    → keep the ledger's head in the journal → the answer leaves, masked

**One draw for each release, whatever happens after it.** A party that fails or is killed before the
answer is stored has let nothing out. Asked again, it computes the same answer from the same secret:
no failure, of the solver, the disk or the machine, and no server that provokes one, gets a release
drawn again until it pleases. Another query for a release that was begun is refused, and so is one
whose secret is gone. Killed later, a party finds its answer, and sends those bytes.

**Nothing is paid for what cannot be had.** Whether the records can be used does not depend on the
query, and is looked at before the budget is touched. Nor does it depend on facts of the whole file:
see `fedpriv.data.tables.release_rules`.

**The ledger is the one that it was.** The journal keeps its length and head. A ledger in which that
row is missing, an old copy or a new one, has forgotten what was spent, and pays for nothing. After
both were put back from a backup, a run that the ledger knew then is not answered any more: its
draws and answers are gone, and some may have been given after the backup.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from functools import cached_property
from logging import getLogger
from typing import TYPE_CHECKING

from fedpriv.data import Files, table_identity
from fedpriv.federation.deployed.guard import check_plan, check_terms
from fedpriv.federation.deployed.journal import LedgerMark
from fedpriv.federation.deployed.one_draw import require_one_draw, require_remembered
from fedpriv.federation.deployed.own_tables import OwnTable
from fedpriv.federation.deployed.paying import foreseen, plan_to_pay, require_affordable, reserve
from fedpriv.federation.deployed.stated_plan import require_planned
from fedpriv.federation.deployed.variates import computed
from fedpriv.federation.party.answered import SALT_BYTES, Given, recalled
from fedpriv.federation.party.guard import QueryRefused
from fedpriv.federation.party.party import Party
from fedpriv.privacy.ledger import Ledger, LedgerError, LedgerMissing, create_if_first
from fedpriv.privacy.randomness import SECRET_BYTES, RandomStream

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fedpriv.data import Records
    from fedpriv.federation.deployed.engagement import Engagement
    from fedpriv.federation.deployed.journal import Journal
    from fedpriv.federation.deployed.policy import PartyFile
    from fedpriv.federation.deployed.stated_plan import StatedPlan
    from fedpriv.federation.party.answered import Answers
    from fedpriv.federation.queries.base import Query
    from fedpriv.privacy.ledger.view import LedgerView
    from fedpriv.secagg.numbers.fixed_point import Ring

_LOG = getLogger("fedpriv.party")


class DeployedParty:
    """A deployed party: `fedpriv.federation.party.party.Party`, in charge of its own budget.

    Guarantee. All answers that this party ever gives, to any servers and runs, cost its records at
    most the budget of its file, as `fedpriv.federation.deployed.guard` charges them, if the file,
    the ledger and the journal are not tampered with. Of one release of a run at most one answer
    leaves: the same query again gets the same integers, from the journal; another query for that
    release, or for one before it, is refused. A release has one draw of randomness, of the
    operating system's: its sample, its noise and its linear term are the same however often it is
    begun.

    A joint fit is an exception to the second sentence: its exchanges have no noise of the party's,
    many of them serve one release, and each is computed when it is asked for.

    Args:
        file: What the party's own file says.
        number: Which party of the roster it is.
        size: How many records the roster states for it: as many as there are where their number is
            public, else a declared number.
        engagement: The run that asks.
        journal: Where answers are kept. It must be held while a query is answered.
        files: Where its records come from: the disk, or what was read from it before.
        plan: What it joined the run under, where a plan was stated.
    """

    def __init__(
        self,
        file: PartyFile,
        *,
        number: int,
        size: int,
        engagement: Engagement,
        journal: Journal,
        files: Files | None = None,
        plan: StatedPlan | None = None,
    ) -> None:
        self._plan = plan
        self._file = file
        self._number = number
        self._size = size
        self._engagement = engagement
        self._journal = journal
        self._files = files or Files()

    @property
    def size(self) -> int:
        """n_j, as the roster states it: public, and not read off the records."""
        return self._size

    def under(self, plan: StatedPlan) -> DeployedParty:
        """The party in a run that it joined under ``plan``."""
        return DeployedParty(
            self._file,
            number=self._number,
            size=self._size,
            engagement=self._engagement,
            journal=self._journal,
            files=self._files,
            plan=plan,
        )

    def engage(self, plan: StatedPlan) -> None:
        """Look whether all of a plan may be answered and can be paid for, before it is joined.

        Nothing is paid. Where no release is one of a sample, each is looked at when it comes.

        Raises:
            QueryRefused: The policy or the budget forbids it.
        """
        if plan.sampled:
            file = self._file
            check_plan(plan, self._engagement, file.policy, file.adjacency, file.unit)
            with _faults(file.name), self._ledger() as ledger:
                require_affordable(plan, ledger)

    def answer(self, query: Query, answers: Answers | None = None) -> Ring:
        """The answer to ``query``, in fixed point, paid for. It is kept in the journal.

        Raises:
            QueryRefused: The policy, the budget, the ledger or the journal forbids it, and no
                record was used; or the records are not those of the ledger and the roster, and
                nothing was paid.
        """
        file, journal = self._file, self._journal
        if answers is not None and answers is not journal:
            raise ValueError("answers must be the journal of the party: they must outlive it.")
        if journal.cancelled(query.run):
            raise QueryRefused("this run was cancelled, for good.")
        if journal.attested(query.run):
            raise QueryRefused("this run is over: this party has signed the statement of it.")
        event = check_terms(query, self._engagement, file.policy, file.adjacency, file.unit)
        with _faults(file.name), self._ledger() as ledger:
            if (plan := plan_to_pay(self._plan, ledger, event)) is not None:
                require_planned(query, plan)
            self.require_not_left(ledger, query.run)
            roster, last = self._engagement.roster, journal.given(query.run)
            given = recalled(query, last, roster=roster)
            require_one_draw(query, given, foreseen(ledger, query, event, plan))
            require_remembered(query, last, ledger, journal)
            if given is not None and not given.pending and not query.joint_fit:
                reservation, vector = reserve(ledger, query, event, plan), given.vector
            else:
                records = self._held_out(ledger) if query.held_out else self._checked(ledger)
                if given is None:
                    given = _begun(query, roster)
                    journal.note(
                        query.run,
                        first=last is None,
                        shown=self._engagement.shown,
                        plan=None if self._plan is None else self._plan.digest,
                        own_noise=query.noise_by_party,
                    )
                    journal.give(query.run, given)
                reservation = reserve(ledger, query, event, plan)
                party = self._party(records, given.secret if given.pending else None)
                vector = computed(query, party, journal)
                if given.pending:
                    given = given.answered(vector)
                    journal.give(query.run, given)
            ledger.commit(reservation, given.digest)
            journal.mark(LedgerMark.of(ledger))
        return vector

    @contextmanager
    def account(self) -> Iterator[LedgerView]:
        """The party's ledger, to look at what was paid for; refuses if there is none."""
        file = self._file
        with _faults(file.name):
            if not file.ledger.exists():
                raise QueryRefused("this party has no ledger: it has paid for nothing.")
            with Ledger.open(
                file.ledger, adjacency=file.adjacency, unit=file.unit, read_only=True
            ) as ledger:
                self._require_latest(ledger)
                yield ledger

    def _checked(self, ledger: Ledger) -> Records:
        """The records, which can be used, are as many as the roster says, and are the ledger's."""
        records = self._records
        self._require_count(len(records))
        self._party(records, None)  # holds them against the task, and draws nothing
        with _unusable(self._file.name):
            identity = self._read.identity()
        ledger.bind_data(identity, whom=self._read.whom(self._file.unit))
        return records

    def _held_out(self, ledger: Ledger) -> Records:
        """The records that the party's file names for evaluation, which are the ledger's from now.

        Never those that it learns from: a model looks better on them than it is. By naming them the
        owner says that the ledger covers the people in them, to all of whom each answer is charged.
        """
        file = self._file
        if file.test is None:
            raise QueryRefused("this party names no held-out records in party.test.")
        with _unusable(file.name):
            table = OwnTable.read(file.test, schema=file.schema, files=self._files)
            own, held_out = table_identity(file.data), table.identity()
            # By file, not by content: whether two tables hold the same is for no refusal to tell.
            if file.test.samefile(file.data):
                raise ValueError("party.test must be another table than party.data.")
            records = self._engagement.records(table.dataset)
        self._party(records, None)
        ledger.bind_data(own)
        ledger.add_data(held_out, reason="party.test, held out for evaluation")
        return records

    @cached_property
    def _read(self) -> OwnTable:
        file, run = self._file, self._engagement
        with _unusable(file.name):
            return OwnTable.read(file.data, schema=file.schema, files=self._files, run=run)

    @cached_property
    def _records(self) -> Records:
        with _unusable(self._file.name):
            return self._engagement.records(self._read.dataset)

    def _require_count(self, count: int) -> None:
        """Where n_j is public, it is the roster's; else how many there are decides nothing."""
        if self._file.counts_public and count != self._size:
            raise QueryRefused(
                f"the roster states {self._size} records for {self._file.name!r}, and its data "
                "file has another number."
            )

    def _party(self, records: Records, secret: bytes | None) -> Party:
        """The party, all of whose randomness follows from ``secret``; None if it needs none."""

        def stream(label: str) -> RandomStream:
            if secret is None:
                return RandomStream.from_os()
            return RandomStream.from_secret(secret, label)

        with _unusable(self._file.name):
            return Party(
                records,
                number=self._number,
                size=self._size,
                task=self._engagement.task,
                sampling=lambda _: stream("sample"),
                noise=lambda _: stream("noise"),
                coin_hidden=True,
            )

    @contextmanager
    def _ledger(self) -> Iterator[Ledger]:
        """The party's ledger, of exactly the budget in its file; made before its first run only."""
        file = self._file
        try:
            create_if_first(
                file.ledger,
                used_by="an answer of this party" if self._journal.used else None,
                create=lambda: file.terms.new_ledger(file.ledger, name=file.name),
            )
        except LedgerMissing:  # which says where it was: for the owner alone
            raise QueryRefused(
                "this party has answered before, and its ledger is gone: put it back from a copy. "
                "A new one would forget what was spent."
            ) from None
        with file.terms.open_ledger(file.ledger) as ledger:
            self._require_latest(ledger)
            yield ledger

    def require_not_left(self, ledger: LedgerView, run: str) -> None:
        """Refuse a run that was left for good: what was answered in it may not be known here."""
        left, began = self._journal.left, ledger.began(run)
        if left is not None and began is not None and began <= left.rows:
            raise QueryRefused(
                "this party was put back from a backup, and left all runs that began before it."
            )

    def _require_latest(self, ledger: Ledger) -> None:
        """Refuse a ledger that is older than the journal, or another one."""
        mark = self._journal.ledger
        if mark is None and not self._journal.used:
            self._journal.mark(LedgerMark.of(ledger))  # from now on, this one and no other
        elif mark is None or ledger.hash_of(mark.rows) != mark.head.hex():
            raise QueryRefused(
                "this party's ledger is older than its state directory, or is another one: it has "
                "forgotten what was spent. Put back its newest copy."
            )


def _begun(query: Query, roster: bytes) -> Given:
    """A release before anything is computed: its one draw, unless it has no randomness."""
    salt = os.urandom(SALT_BYTES)
    if query.joint_fit:
        return Given.to(query, salt=salt, roster=roster)
    return Given.to(query, salt=salt, secret=os.urandom(SECRET_BYTES), roster=roster)


@contextmanager
def _unusable(name: str) -> Iterator[None]:
    """Records that cannot be used are a refusal; what is wrong is for the log of their owner alone.

    It is one sentence whatever is wrong with them.
    """
    try:
        yield
    except QueryRefused:
        raise
    except ValueError as error:
        _LOG.warning("party %s: %s", name, error)
        raise QueryRefused("the records of this party cannot be used.") from None


@contextmanager
def _faults(name: str) -> Iterator[None]:
    """A disk or a ledger that fails is a refusal; why, and no path, is told to its owner alone."""
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
