"""Which records a ledger is for: fingerprints of all data that were ever bound to it.

The first data are bound without a question. Any others are the owner's decision, because a program
cannot tell a corrected record from another person. The remedy offered is always to continue with
the same ledger: then nobody's loss exceeds what it says. Another ledger for people who already have
one would be a second budget.

For the unit person or party, a column of the table identifies the unit, and the ledger keeps its
name: what is spent on patients, and what is spent on single visits that a schema calls persons, are
losses of two units, which do not add up.
"""

from __future__ import annotations

import hmac
import json
from typing import TYPE_CHECKING

from fedpriv.privacy.ledger.errors import LedgerMismatch
from fedpriv.privacy.ledger.fingerprint import fingerprint
from fedpriv.privacy.ledger.settings import require_name
from fedpriv.privacy.ledger.storage.chain import Kind, canonical_json

if TYPE_CHECKING:
    from fedpriv.privacy.ledger.fingerprint import Part
    from fedpriv.privacy.ledger.storage.store import Store

_WHOM = "whom"


def bound_fingerprints(store: Store) -> list[str]:
    """The fingerprints of all bound data, in order."""
    return [str(json.loads(row.detail)["fingerprint"]) for row in store.bindings()]


def bind_first(store: Store, *parts: Part, name: str, whom: str | None) -> None:
    """Bind ``parts`` if nothing is bound yet; else refuse parts not bound, or another ``whom``."""
    own = fingerprint(store.salt(), *parts)
    with store.writing():
        if not bound_fingerprints(store):
            named = {} if whom is None else {_WHOM: whom}
            detail = canonical_json({"fingerprint": own, **named})
            store.append(store.tail(), kind=Kind.DATA, detail=detail)
    _require(store, own, name)
    _require_whom(store, whom)


def bind_more(store: Store, *parts: Part, reason: str) -> None:
    """Bind ``parts`` in addition to what is bound."""
    require_name(reason=reason)
    own = fingerprint(store.salt(), *parts)
    with store.writing():
        bound = bound_fingerprints(store)
        if not bound:
            raise LedgerMismatch("no data are bound to this ledger: the first run binds its own.")
        if own not in bound:
            detail = canonical_json({"fingerprint": own, "reason": reason})
            store.append(store.tail(), kind=Kind.DATA, round=len(bound), detail=detail)


def require_bound(store: Store, *parts: Part, name: str) -> None:
    """Raise `LedgerMismatch` unless ``parts`` are bound."""
    _require(store, fingerprint(store.salt(), *parts), name)


def _require(store: Store, presented: str, name: str) -> None:
    bound = bound_fingerprints(store)
    if not bound:
        raise LedgerMismatch("no data are bound to this ledger: call bind_data first.")
    if not any(hmac.compare_digest(own, presented) for own in bound):
        raise LedgerMismatch(
            f"these are not the records of {name!r} that this ledger is bound to. If anybody in "
            "them was in those (records were corrected, added, removed, sorted or written in "
            "another format), they go on with this ledger, and what was spent stays spent: "
            "`fedpriv ledger bind LEDGER --data FILE --reason TEXT`. Else name the ledger that "
            "these people have."
        )


def _require_whom(store: Store, whom: str | None) -> None:
    """Refuse a column other than the one first bound; older ledgers name none."""
    first = next(iter(store.bindings()))
    bound = json.loads(first.detail).get(_WHOM)
    if bound is not None and bound != whom:
        given = "no column" if whom is None else f"column {whom!r}"
        raise LedgerMismatch(
            f"this ledger adds up losses of units that column {bound!r} names, but the schema "
            f"names them by {given}: a unit there may be many here, and their losses do not add "
            f"up. Let the schema name {bound!r} again; or create a separate ledger for the others "
            "with `fedpriv ledger init`: whoever is in the data then loses at most what both "
            "ledgers say together."
        )
