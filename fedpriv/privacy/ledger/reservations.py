"""What a ledger hands out: reservations of single releases, declarations of whole runs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from fedpriv._validate import require_count
from fedpriv.privacy.ledger.storage.chain import canonical_json
from fedpriv.privacy.unit import Unit
from fedpriv.privacy.written_events import event_from_dict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fedpriv.privacy.events import Event
    from fedpriv.privacy.ledger.composition import Block, Cost
    from fedpriv.privacy.ledger.spend import Spend


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """A release that has been paid for.

    Attributes:
        run: which run.
        round: which round of it.
        event: the one kind of release that it allows.
        status: ``committed`` once its release is stored.
        release: the stored bytes: publish these, and compute nothing again.
        spent: by the whole ledger, when this was reserved or found.
    """

    run: str
    round: int
    event: Event
    status: Literal["reserved", "committed"]
    release: bytes | None
    spent: Spend


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """A run that has been paid for as a whole.

    Attributes:
        run: which run.
        block: its releases, as (event, count) pairs.
        cost: in the measure of the ledger's composition, and of δ directly.
        spent: by the whole ledger, when this was declared or found.
    """

    run: str
    block: Block
    cost: Cost
    spent: Spend


def merged(releases: Iterable[tuple[Event, int]]) -> Block:
    """Releases as a value: equal events merged, in the order of their first mention."""
    counts: dict[Event, int] = {}
    for event, count in releases:
        require_count(count=count)
        counts[event] = counts.get(event, 0) + count
    if not counts:
        raise ValueError("releases must name at least one event, got none.")
    return tuple(counts.items())


@lru_cache(maxsize=4096)
def event_json(event: Event) -> str:
    """An event as a row records it: equal events look the same, whether numbers are 1 or 1.0."""
    return canonical_json(_event_values(event))


def declaration_to_dict(block: Block, delta: float | None) -> dict[str, object]:
    """What the row of a declared run records."""
    return {"releases": [[_event_values(event), count] for event, count in block], "delta": delta}


def declaration_from_dict(detail: dict[str, object]) -> tuple[Block, float | None]:
    """Inverts `declaration_to_dict`."""
    releases, delta = detail["releases"], detail["delta"]
    if not isinstance(releases, list) or not isinstance(delta, float | None):
        raise ValueError("a declaration lists releases, and a delta or none")
    return tuple((recorded_event(event), int(count)) for event, count in releases), delta


def recorded_event(values: dict[str, Any]) -> Event:
    """The event of a row. Rows from before events had a unit are about records: see `Settings`."""
    return event_from_dict({"unit": Unit.RECORD.value, **values})


def allowances(detail: Mapping[str, Any]) -> Counter[str]:
    """How often each event may be reserved under a declared run, by what its row records.

    Literally, so that a run declared before events had a unit allows no event that has one:
    otherwise releases it already made would not be found.
    """
    return Counter({canonical_json(values): count for values, count in detail["releases"]})


def _event_values(event: Event) -> dict[str, Any]:
    counts = {field.name for field in fields(event) if field.type == "int"}
    return {
        name: float(value) if isinstance(value, int) and name not in counts else value
        for name, value in event.to_dict().items()
    }
