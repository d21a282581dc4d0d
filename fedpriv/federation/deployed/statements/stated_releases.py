"""Stated releases: what a signed statement is about, and how many of them were made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedpriv.federation.deployed.statements.stated_epsilon import Unsound
from fedpriv.privacy.written_events import event_from_dict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fedpriv.privacy.ledger.composition import Block

_MOST_RELEASES = 10_000_000


def releases_of(document: Mapping[str, Any]) -> Block:
    """The releases that a document states; `Unsound` if they cannot be read."""
    try:
        block = tuple(
            (event_from_dict(event), whole(count))
            for event, count in document["statement"]["releases"]
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Unsound(f"its releases cannot be read: {error}") from None
    counts = [count for _, count in block]
    if not block or min(counts) < 1 or sum(counts) > _MOST_RELEASES:
        raise Unsound("it must state at least one release, and not too many.")
    return block


def made_of(document: Mapping[str, Any]) -> int:
    """How many releases a document says that there were: all, unless the run ended early."""
    stated = sum(count for _, count in releases_of(document))
    made = document["statement"]["run"].get("releases_made")
    if made is None:
        return stated
    if type(made) is not int or not 0 <= made < stated:
        raise Unsound(f"it says that {made!r} of {stated} releases were made, before it ended.")
    return made


def whole(value: Any) -> int:
    """A number that counts something; `ValueError` if it is none."""
    if type(value) is not int or value < 0:
        raise ValueError("a whole number is missing.")
    return value
