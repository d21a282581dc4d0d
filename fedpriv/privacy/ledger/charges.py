"""Charges: how a request becomes a ledger row, each step within one transaction of the store.

A refused transaction is rolled back as a whole, so that a refusal leaves no trace.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

from fedpriv.privacy.ledger.choice import choose_composition, composition_from_dict
from fedpriv.privacy.ledger.errors import LedgerConflict
from fedpriv.privacy.ledger.foresight import paid_by_round, price_of_run
from fedpriv.privacy.ledger.reservations import (
    allowances,
    declaration_to_dict,
    event_json,
)
from fedpriv.privacy.ledger.spend import BudgetRefusal, Spend, nearest_that_fits
from fedpriv.privacy.ledger.storage.chain import Kind, canonical_json

if TYPE_CHECKING:
    from fedpriv.privacy.events import Event
    from fedpriv.privacy.ledger.composition import Block, Composition, Cost
    from fedpriv.privacy.ledger.settings import Settings
    from fedpriv.privacy.ledger.storage.chain import Row
    from fedpriv.privacy.ledger.storage.store import Store


class Charges:
    """The rules of a ledger, applied to its store."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._settings = settings
        self._fixed: Composition | None = None
        self._allowances: dict[str, Counter[str]] = {}

    def spent(self, row: Row | None = None) -> Spend:
        """What was spent up to ``row``, or up to the last one."""
        return self._spend(row or self._store.tail(), self._rule())

    def require_price(self, block: Block, delta: float | None) -> None:
        """Raise `UnsupportedEvent` if a block has no price here, one by one or as a whole."""
        rule = self._rule() or self._choose(block, declared=True)
        rule.price_block(block, delta=delta, spent=self._store.tail().total)

    def require_room(self, run: str, block: Block, delta: float | None) -> None:
        """Raise `BudgetRefusal` if all releases of a run together exceed what is left."""
        rule = self._rule() or self._choose(block, declared=not paid_by_round(block[0][0]))
        spent = self._store.tail()
        cost = price_of_run(rule, block, delta=delta, spent=spent.total)
        before = self._spend(spent, rule)
        if not (after := before.after(cost)).within_budget:
            raise BudgetRefusal(f"run {run!r}", spent=before, asked=after, fits=None)

    def rehearse(self, run: str, block: Block, delta: float | None) -> None:
        """Price a block outside a transaction: slow results are cached, nobody is locked out."""
        if self._store.row(Kind.DECLARED, run) is not None:
            return
        self.require_price(block, delta)

    def declare(self, run: str, block: Block, delta: float | None) -> tuple[Cost, Spend]:
        """Charge a block, unless it was charged before; its cost, and what is spent now."""
        detail = canonical_json(declaration_to_dict(block, delta))
        row = self._store.row(Kind.DECLARED, run)
        if row is not None:
            if row.detail != detail:
                raise LedgerConflict(f"run {run!r} was declared with other releases.")
            return row.cost, self.spent()
        if self._store.has_run(run):
            raise LedgerConflict(
                f"run {run!r} has begun: a run is declared before its first release."
            )
        rule, tail = self._fixed_rule(block, declared=True)
        cost = rule.price_block(block, delta=delta, spent=tail.total)
        before, after = self._spend(tail, rule), self._spend(tail, rule).after(cost)
        if not after.within_budget:
            raise BudgetRefusal(f"run {run!r}", spent=before, asked=after, fits=None)
        self._store.append(tail, kind=Kind.DECLARED, run=run, detail=detail, cost=cost)
        return cost, after

    def reserve(self, event: Event, run: str, round_: int) -> tuple[bytes | None, Spend]:
        """Charge a release, unless charged before; its committed bytes, and what is spent."""
        detail = event_json(event)
        kinds = self._store.kinds(run, round_)
        if Kind.SIMULATED in kinds:
            raise LedgerConflict(f"run {run!r} is recorded as simulated, for ever.")
        if Kind.RESERVED in kinds:
            return self._find(run, round_, detail), self.spent()
        if Kind.DECLARED in kinds:
            return None, self._use_allowance(run, round_, detail)
        return None, self._charge(event, run, round_, detail)

    def _find(self, run: str, round_: int, detail: str) -> bytes | None:
        reserved = self._store.row(Kind.RESERVED, run, round_)
        if reserved is None or reserved.detail != detail:
            raise LedgerConflict(
                f"round {round_} of run {run!r} is reserved for another event than {detail}."
            )
        committed = self._store.row(Kind.COMMITTED, run, round_)
        return None if committed is None else self._store.release(committed)

    def _charge(self, event: Event, run: str, round_: int, detail: str) -> Spend:
        rule, tail = self._fixed_rule(((event, 1),), declared=False)
        cost = rule.price(event)
        before, after = self._spend(tail, rule), self._spend(tail, rule).after(cost)
        if not after.within_budget:
            raise BudgetRefusal(
                f"round {round_} of run {run!r}",
                spent=before,
                asked=after,
                fits=nearest_that_fits(before, event),
            )
        self._store.append(
            tail, kind=Kind.RESERVED, run=run, round=round_, detail=detail, cost=cost
        )
        return after

    def _use_allowance(self, run: str, round_: int, detail: str) -> Spend:
        ordinal = self._store.used(run, detail) + 1
        allowed = self._allowed(run)[detail]
        if ordinal > allowed:
            raise LedgerConflict(
                f"run {run!r} declared {allowed} releases of {detail}, and round {round_} would "
                f"be number {ordinal}. Nothing was released."
            )
        row = self._store.append(
            self._store.tail(),
            kind=Kind.RESERVED,
            run=run,
            round=round_,
            detail=detail,
            ordinal=ordinal,
        )
        return self.spent(row)

    def _allowed(self, run: str) -> Counter[str]:
        """What a run declared; cached, because it never changes and may be long."""
        if run not in self._allowances:
            row = self._store.row(Kind.DECLARED, run)
            self._allowances[run] = allowances(json.loads(row.detail)) if row else Counter()
        return self._allowances[run]

    def _fixed_rule(self, block: Block, *, declared: bool) -> tuple[Composition, Row]:
        """The composition, recorded now if ``block`` is the first charge, and the last row."""
        tail, rule = self._store.tail(), self._rule()
        if rule is None:
            rule = self._choose(block, declared=declared)
            detail = canonical_json(rule.to_dict())
            tail = self._store.append(tail, kind=Kind.COMPOSITION, detail=detail)
        return rule, tail

    def _rule(self) -> Composition | None:
        """The rule fixed at the start, or by the first charge; cached, because it never changes.

        Only ever read before a transaction appends: what is cached cannot be rolled back.
        """
        if self._fixed is None and (row := self._store.row(Kind.COMPOSITION)):
            self._fixed = composition_from_dict(
                json.loads(row.detail),
                budget=self._settings.budget,
                adjacency=self._settings.adjacency,
                unit=self._settings.unit,
            )
        return self._fixed

    def _choose(self, block: Block, *, declared: bool) -> Composition:
        return choose_composition(
            self._settings.composition,
            block,
            declared=declared,
            budget=self._settings.budget,
            adjacency=self._settings.adjacency,
            unit=self._settings.unit,
        )

    def _spend(self, row: Row, rule: Composition | None) -> Spend:
        return Spend(budget=self._settings.budget, composition=rule, total=row.total)
