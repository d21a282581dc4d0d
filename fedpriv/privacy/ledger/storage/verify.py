"""Verification of a ledger: every hash, every cost and every rule, from the first row on.

What this can find: any row that was edited, removed, inserted or moved, unless whoever did it
rewrote everything after it and the head. That needs write access to the file, and is detected by a
head hash kept elsewhere, for example in a statement: ``expected_head``.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from math import isfinite
from re import fullmatch
from typing import TYPE_CHECKING, Any

from fedpriv.privacy.ledger.choice import AUTO, composition_from_dict
from fedpriv.privacy.ledger.composition import Cost
from fedpriv.privacy.ledger.errors import LedgerTampered
from fedpriv.privacy.ledger.reservations import allowances, declaration_from_dict, recorded_event
from fedpriv.privacy.ledger.settings import settings_from_dict
from fedpriv.privacy.ledger.spend import Spend
from fedpriv.privacy.ledger.storage.chain import (
    GENESIS,
    THE_LEDGER,
    WHOLE_RUN,
    Kind,
    Row,
    canonical_json,
    require_hash,
    require_release,
)
from fedpriv.privacy.ledger.storage.database import SCHEMA

if TYPE_CHECKING:
    from fedpriv.privacy.ledger.composition import Composition
    from fedpriv.privacy.ledger.settings import Settings
    from fedpriv.privacy.ledger.storage.store import Store

# A cost is recomputed, perhaps on another machine and with another release of a numerical library,
# and may differ from the recorded one by this much.
_RELATIVE_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The result for a ledger that is consistent.

    Attributes:
        rows: the number of rows.
        head: hash of the last one, to keep elsewhere.
        spent: by all of them, recomputed.
        expected_row: the row that had the expected head; rows after it were added since.
    """

    rows: int
    head: str
    spent: Spend
    expected_row: int | None


def verify_store(store: Store, *, expected_head: str | None = None) -> Verification:
    """Check everything; raises `LedgerTampered` at the first wrong row."""
    if expected_head is not None and not fullmatch("[0-9a-f]{64}", expected_head):
        raise ValueError(f"the head must be 64 hexadecimal digits, got {expected_head!r}.")
    with store.reading():
        replay = _Replay(salt=store.salt())
        last: Row | None = None
        expected_row = None
        for row, release in store.rows_and_releases():
            _check_link(row, last)
            require_release(row, release)
            replay.step(row)
            if row.hash.hex() == expected_head:
                expected_row = row.seq
            last = row
        # The rows first: they name the place. Then everything else that could mislead a writer.
        if last is None or store.head() != (last.seq, last.hash):
            raise LedgerTampered("rows are missing at its end, or were added without its head")
        if damage := store.damage():
            raise LedgerTampered(f"SQLite reports {damage}")
        if store.schema() != set(SCHEMA):
            raise LedgerTampered("its tables, indices or triggers are not those of a ledger")
    if expected_head is not None and expected_row is None:
        raise LedgerTampered(
            f"no row has the expected head {expected_head}: the ledger was rewritten, rolled back "
            "to an earlier state, or is another one"
        )
    return Verification(
        rows=last.seq, head=last.hash.hex(), spent=replay.spent, expected_row=expected_row
    )


def _check_link(row: Row, last: Row | None) -> None:
    number, previous = (last.seq + 1, last.hash) if last else (1, GENESIS)
    if row.seq != number:
        raise LedgerTampered("rows before it are missing, or it is out of place", row=row.seq)
    require_hash(row)
    if row.prev_hash != previous:
        raise LedgerTampered("it does not continue the row before it", row=row.seq)


@dataclass(slots=True, kw_only=True)
class _Replay:
    """What the rows so far add up to. Knows the rules, but not how a ledger applies them."""

    salt: bytes
    settings: Settings | None = None
    composition: Composition | None = None
    total: Cost = field(default_factory=Cost)
    simulated: set[str] = field(default_factory=set)
    declared: dict[str, Counter[str]] = field(default_factory=dict)
    used: Counter[tuple[str, str]] = field(default_factory=Counter)
    real: set[str] = field(default_factory=set)
    reserved: set[tuple[str, int]] = field(default_factory=set)
    committed: set[tuple[str, int]] = field(default_factory=set)
    once: set[str] = field(default_factory=set)
    bindings: int = 0
    prices: dict[str, Cost] = field(default_factory=dict)

    @property
    def spent(self) -> Spend:
        budget = self._settings.budget
        return Spend(budget=budget, composition=self.composition, total=self.total)

    @property
    def _settings(self) -> Settings:
        if self.settings is None:
            raise ValueError("a ledger begins with its settings")
        return self.settings

    def step(self, row: Row) -> None:
        """Apply one row, or say what is wrong with it."""
        try:
            cost = self._cost(row)
        except (ValueError, KeyError, TypeError) as error:
            raise LedgerTampered(f"it makes no sense ({error})", row=row.seq) from error
        if not (_agree(row.amount, cost.amount) and _agree(row.delta, cost.delta)):
            raise LedgerTampered(
                f"it charges {row.amount!r} (delta {row.delta!r}) for releases that cost "
                f"{cost.amount!r} (delta {cost.delta!r})",
                row=row.seq,
            )
        self.total = self.total + row.cost
        if row.total != self.total:
            raise LedgerTampered("its totals are not those before it plus its cost", row=row.seq)
        if not self.spent.within_budget:
            raise LedgerTampered("it spends more than the budget", row=row.seq)

    def _cost(self, row: Row) -> Cost:
        """What the row should cost; refuses a row that is not allowed here."""
        detail = _parsed(row.detail)
        kind = Kind(row.kind)
        if (row.release_hash is not None) != (kind is Kind.COMMITTED):
            raise ValueError("a release belongs to a committed row, and to no other")
        if not _in_its_place(row, kind):
            raise ValueError(f"a {kind.value!r} row may not have this run, round or ordinal")
        match kind:
            case Kind.CREATED:
                self._first(kind)
                self.settings = settings_from_dict(detail)
                if self.settings.salt_hash != sha256(self.salt).hexdigest():
                    raise ValueError("the salt of the fingerprint was exchanged")
            case Kind.DATA:
                self._bind(row, detail)
            case Kind.COMPOSITION:
                self._first(kind)
                self._fix(detail)
            case Kind.DECLARED:
                return self._declare(row, detail)
            case Kind.RESERVED:
                return self._reserve(row, detail)
            case Kind.COMMITTED:
                self._commit(row)
            case Kind.SIMULATED:
                if row.run in self.real | self.simulated:
                    raise ValueError("its run was recorded before")
                self.simulated.add(row.run)
        return Cost()

    def _first(self, kind: Kind) -> None:
        if kind in self.once or (kind is Kind.CREATED) != (not self.once):
            raise ValueError(f"a {kind.value!r} row may not stand here")
        self.once.add(kind)

    def _bind(self, row: Row, detail: dict[str, Any]) -> None:
        """The first binding stands for the whole ledger; the others are numbered, with a reason."""
        if Kind.CREATED not in self.once or not isinstance(detail["fingerprint"], str):
            raise ValueError("a 'data' row may not stand here")
        if row.round != (self.bindings or WHOLE_RUN) or (self.bindings and not detail["reason"]):
            raise ValueError("it binds records out of turn, or without a reason")
        self.bindings += 1

    def _fix(self, detail: dict[str, Any]) -> None:
        settings = self._settings
        self.composition = composition_from_dict(
            detail, budget=settings.budget, adjacency=settings.adjacency, unit=settings.unit
        )
        if settings.composition not in (AUTO, self.composition.name):
            raise ValueError(f"the ledger was created for {settings.composition!r} composition")

    def _rule(self) -> Composition:
        if self.composition is None:
            raise ValueError("it charges before a composition was fixed")
        return self.composition

    def _declare(self, row: Row, detail: dict[str, Any]) -> Cost:
        if row.run in self.real | self.simulated:
            raise ValueError("its run began before it was declared")
        block, delta = declaration_from_dict(detail)
        self.real.add(row.run)
        self.declared[row.run] = allowances(detail)
        return self._rule().price_block(block, delta=delta, spent=self.total)

    def _reserve(self, row: Row, detail: dict[str, Any]) -> Cost:
        key = (row.run, row.round)
        if row.run in self.simulated or key in self.reserved:
            raise ValueError("its round was reserved before, or its run is simulated")
        self.real.add(row.run)
        self.reserved.add(key)
        if row.run not in self.declared:
            if row.ordinal is not None:
                raise ValueError("its run was never declared")
            if row.detail not in self.prices:
                self.prices[row.detail] = self._rule().price(recorded_event(detail))
            return self.prices[row.detail]
        self.used[row.run, row.detail] += 1
        used = self.used[row.run, row.detail]
        if row.ordinal != used or used > self.declared[row.run][row.detail]:
            raise ValueError("it is not one of the releases that its run declared")
        return Cost()

    def _commit(self, row: Row) -> None:
        key = (row.run, row.round)
        if key not in self.reserved or key in self.committed:
            raise ValueError("it commits what was not reserved, or was committed before")
        self.committed.add(key)


def _in_its_place(row: Row, kind: Kind) -> bool:
    """Whether writers would find the row where they look for its kind."""
    if row.ordinal is not None and kind is not Kind.RESERVED:
        return False
    if kind is Kind.DATA:
        return row.run == THE_LEDGER and (row.round == WHOLE_RUN or row.round >= 1)
    if kind in (Kind.CREATED, Kind.COMPOSITION):
        return (row.run, row.round) == (THE_LEDGER, WHOLE_RUN)
    of_a_round = kind in (Kind.RESERVED, Kind.COMMITTED)
    return row.run != THE_LEDGER and (row.round >= 0 if of_a_round else row.round == WHOLE_RUN)


@lru_cache(maxsize=1024)
def _parsed(detail: str) -> Any:
    value = json.loads(detail)
    if detail != canonical_json(value):
        raise ValueError("its detail is not canonical")
    return value


def _agree(recorded: float, cost: float) -> bool:
    return isfinite(cost) and abs(recorded - cost) <= _RELATIVE_TOLERANCE * cost
