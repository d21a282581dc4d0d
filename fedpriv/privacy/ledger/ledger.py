"""The ledger: what was spent of a data set's privacy budget, durable before anything is released.

The order that guarantees it: ``reserve`` → compute → ``commit`` → publish. What was reserved counts
as spent, whatever happens next. What was not committed must not leave the process.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import fedpriv
from fedpriv._validate import require_delta, require_non_negative
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.ledger.binding import (
    bind_first,
    bind_more,
)
from fedpriv.privacy.ledger.charges import Charges
from fedpriv.privacy.ledger.choice import AUTO, default_composition, fixed_composition
from fedpriv.privacy.ledger.errors import LedgerConflict, LedgerMismatch
from fedpriv.privacy.ledger.fingerprint import SALT_BYTES
from fedpriv.privacy.ledger.reservations import Declaration, Reservation, event_json, merged
from fedpriv.privacy.ledger.settings import Settings, require_name, require_terms
from fedpriv.privacy.ledger.storage.chain import Kind, canonical_json
from fedpriv.privacy.ledger.storage.store import Store
from fedpriv.privacy.ledger.view import LedgerView
from fedpriv.privacy.unit import DEFAULT_UNIT, Unit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fedpriv.privacy.budget import Budget
    from fedpriv.privacy.events import Event
    from fedpriv.privacy.ledger.fingerprint import Part

DEFAULT_TIMEOUT = 30.0


class _Undone(Exception):
    """Ends a transaction that was only made to see its result."""


class Ledger(LedgerView):
    """The budget of one data set, in one file, kept by its owner.

    Guarantee. All releases made under reservations of this ledger are together (ε, δ)-DP for its
    budget, with adaptively chosen queries, noise and runs, if every release has at least the noise
    of its event and none is published before its `commit` returned. Crashes, retries and
    concurrent processes cannot lower what was spent. See `Composition` for the theorems.

    Not covered. Someone with write access who replaces the file by an older or a rewritten one: see
    `verify`. Releases made without the ledger. Records that are in other data sets too.

    >>> from tempfile import TemporaryDirectory
    >>> from fedpriv.privacy.budget import Budget
    >>> budget = Budget(epsilon=1.0, delta=1e-6)
    >>> with TemporaryDirectory() as folder:
    ...     path = f"{folder}/clinic.ledger"
    ...     with Ledger.create(
    ...         path, data_name="clinic", budget=budget, adjacency="replace-one"
    ...     ) as ledger:
    ...         ledger.spent().guarantee.epsilon
    0.0
    """

    @classmethod
    def create(
        cls,
        path: Path | str,
        *,
        data_name: str,
        budget: Budget,
        adjacency: Adjacency | str,
        composition: str | None = None,
        unit: Unit | str = DEFAULT_UNIT,
        timeout: float = DEFAULT_TIMEOUT,
    ) -> Self:
        """Create a ledger for a data set; never over an existing file.

        Its rule is in the chain from the start: no release, however cheap, decides how later ones
        are priced.

        Args:
            path: of the file, on a local disk.
            data_name: what the owner calls the data set.
            budget: for all releases that ever use it.
            adjacency: which data sets the budget compares.
            composition: how spend adds up, permanently: ``gdp``, ``basic``, ``rdp`` at the order
                that is best for Gaussian noise, ``rdp:16`` at order 16; or ``auto``: the first
                charge decides, whoever asks for it. By default, see `default_composition`.
            unit: whose privacy the budget is for: "record", "person" or "party".
            timeout: seconds to wait for other processes that write.
        """
        salt, relation, whose = secrets.token_bytes(SALT_BYTES), Adjacency(adjacency), Unit(unit)
        chosen = default_composition(budget) if composition is None else composition
        rule = fixed_composition(chosen, budget=budget, adjacency=relation, unit=whose)
        settings = Settings(
            data_name=data_name,
            budget=budget,
            adjacency=relation,
            unit=whose,
            composition=AUTO if rule is None else rule.name,
            salt_hash=sha256(salt).hexdigest(),
            version=fedpriv.__version__,
        )
        details = {Kind.CREATED: canonical_json(settings.to_dict())}
        if rule is not None:
            details[Kind.COMPOSITION] = canonical_json(rule.to_dict())
        Store.create(Path(path), salt=salt, details=details)
        return cls.open(path, timeout=timeout)

    @classmethod
    def open(
        cls,
        path: Path | str,
        *,
        budget: Budget | None = None,
        adjacency: Adjacency | str | None = None,
        unit: Unit | str | None = None,
        read_only: bool = False,
        timeout: float = DEFAULT_TIMEOUT,
    ) -> Self:
        """Open an existing ledger.

        Args:
            path: of the file.
            budget: if given, must be the ledger's own.
            adjacency: if given, must be the ledger's own.
            unit: if given, must be the ledger's own.
            read_only: read only; neither lock nor write.
            timeout: seconds to wait for other processes that write.
        """
        require_non_negative(timeout=timeout)
        store = Store(Path(path), read_only=read_only, timeout=timeout)
        try:
            ledger = cls(store)
            _require_own("budget", budget, ledger.settings.budget)
            require_terms(ledger.settings, adjacency=adjacency, unit=unit)
        except BaseException:
            store.close()
            raise
        return ledger

    def bind_data(self, *parts: Part, whom: str | None = None) -> None:
        """Record the fingerprint of the data set, once; later calls only check it.

        Bind the records as their owner recorded them, never what was computed from them: the same
        people, scaled differently, have the same budget.

        Args:
            parts: the whole data set: bytes or arrays, in an order that never changes.
            whom: the column that identifies a person, or party, where that is the unit: as fixed
                as the unit itself. None for records, and where no column does.
        """
        bind_first(self._store, *parts, name=self._settings.data_name, whom=whom)

    def add_data(self, *parts: Part, reason: str) -> None:
        """The owner's word that ``parts`` hold people of this ledger: from now on it covers both.

        For records that were corrected, added, removed or written in another form. What was spent
        stays spent, and every release on any of the bound data is charged to all of them, so that
        nobody's loss exceeds what the ledger says. Does nothing for data already bound.

        Args:
            parts: as for `bind_data`.
            reason: what was changed, for auditors of the ledger: never a value of a record.
        """
        bind_more(self._store, *parts, reason=reason)

    def declare(
        self, run: str, releases: Iterable[tuple[Event, int]], *, delta: float | None = None
    ) -> Declaration:
        """Charge a whole run at once, whose releases are all fixed before its first one.

        It is priced by the tightest accountant for fixed releases. Rounds of the run are then
        reserved as usual, each for one of the declared events, at no further cost; a run that stops
        early gets nothing back. A retry finds the same declaration and charges nothing.

        Args:
            run: a name that has not been used.
            releases: (event, count) pairs.
            delta: what the run may use of δ, if it is priced by (ε, δ): under basic composition,
                where None is all that is left (nothing, if all its releases are pure).

        Raises:
            BudgetRefusal: it does not fit. Nothing was charged.
            LedgerConflict: the run has begun, or was declared with other releases.
        """
        require_name(run=run)
        block = merged(releases)
        if delta is not None:
            require_delta(delta=delta)
            delta = float(delta) + 0.0  # never -0.0, whose sign SQLite does not keep
        self._charges.rehearse(run, block, delta)
        with self._store.writing():
            cost, spent = self._charges.declare(run, block, delta)
        return Declaration(run=run, block=block, cost=cost, spent=spent)

    def reserve(self, event: Event, *, run: str, round: int) -> Reservation:  # noqa: A002
        """Pay for one release, before anything is computed. Durable when it returns.

        A retry of the same round finds the same reservation, with its release if that was
        committed, and charges nothing.

        Args:
            event: the release that is to be made.
            run: which run.
            round: which round of it: an integer from 0 on, used for one release.

        Raises:
            BudgetRefusal: it does not fit. Nothing was charged.
            LedgerConflict: the round was reserved for another event, the event is not one of those
                that the run declared, or the run is simulated.
        """
        require_name(run=run)
        _require_round(round)
        with self._store.writing():
            release, spent = self._charges.reserve(event, run, round)
        return Reservation(
            run=run,
            round=round,
            event=event,
            status="reserved" if release is None else "committed",
            release=release,
            spent=spent,
        )

    def foresee(
        self,
        event: Event,
        *,
        run: str,
        round: int,  # noqa: A002 (its name everywhere)
        declaring: Iterable[tuple[Event, int]] | None = None,
        delta: float | None = None,
    ) -> Literal["new", "reserved", "committed"]:
        """What `reserve` would return; raises what it would raise. Nothing is written.

        For callers that must know whether a release can be paid for before they may pay for it;
        with ``declaring``, as after `declare` with these releases and this ``delta``.
        """
        require_name(run=run)
        _require_round(round)
        block = None if declaring is None else merged(declaring)
        if block is not None:
            self._charges.rehearse(run, block, delta)
        known, release = False, None
        with suppress(_Undone), self._store.writing():
            charges = Charges(self._store, self._settings)  # its cache is discarded with it
            if block is not None:
                charges.declare(run, block, delta)
            known = self._store.row(Kind.RESERVED, run, round) is not None
            release, _ = charges.reserve(event, run, round)
            raise _Undone
        if release is not None:
            return "committed"
        return "reserved" if known else "new"

    def commit(self, reservation: Reservation, release: bytes) -> Reservation:
        """Store the one release of a reservation. Publish it only after this has returned.

        Storing the same bytes again changes nothing; other bytes are refused: they would be a
        second draw of noise. Store the noisy release, never noise, keys or sums.

        Raises:
            LedgerConflict: another release is stored. Reserve again to get it.
        """
        if not isinstance(release, bytes):
            raise ValueError(f"release must be bytes, got {type(release).__name__}.")
        run, round_ = reservation.run, reservation.round
        with self._store.writing():
            reserved = self._store.row(Kind.RESERVED, run, round_)
            if reserved is None or reserved.detail != event_json(reservation.event):
                raise LedgerConflict(f"round {round_} of run {run!r} is not reserved here.")
            committed = self._store.row(Kind.COMMITTED, run, round_)
            if committed is None:
                self._store.append(
                    self._store.tail(),
                    kind=Kind.COMMITTED,
                    run=run,
                    round=round_,
                    detail=canonical_json({}),
                    release=release,
                )
            elif self._store.release(committed) != release:
                raise LedgerConflict(
                    f"round {round_} of run {run!r} has another release already. Discard this one, "
                    "and reserve again to get the stored one."
                )
        return replace(reservation, status="committed", release=release)

    def record_simulation(self, run: str, summary: Mapping[str, Any]) -> None:
        """Record a run that protected nothing and is charged nothing; it can never become real.

        Args:
            run: a name that no real run has used.
            summary: JSON-ready values.
        """
        require_name(run=run)
        detail = canonical_json(dict(summary))
        with self._store.writing():
            recorded = self._store.row(Kind.SIMULATED, run)
            if recorded is not None and recorded.detail == detail:
                return
            if self._store.has_run(run):
                raise LedgerConflict(
                    f"run {run!r} is recorded already, as "
                    f"{'another simulation' if recorded else 'a real run, for ever'}."
                )
            self._store.append(self._store.tail(), kind=Kind.SIMULATED, run=run, detail=detail)


def _require_own(name: str, expected: object, own: object) -> None:
    if expected is not None and expected != own:
        raise LedgerMismatch(
            f"{name} of this ledger is {own}, not {expected}: it is fixed for the life of a data "
            "set."
        )


def _require_round(value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise ValueError(f"round must be an integer of at least 0, got {value!r}.")
