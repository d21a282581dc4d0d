"""Foresight: what a whole run will cost a ledger, before any of it is spent.

A run whose last releases do not fit would spend what its first ones cost, and end early with a
model that nobody planned. So before the first release, everything planned is compared with what is
left. This is a courtesy to the owner and not part of the guarantee, which every single reservation
keeps: another run may spend in between, and then the run ends early after all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedpriv.privacy.accountants import UnsupportedEvent
from fedpriv.privacy.events import ApproximateEvent, GaussianEvent, LaplaceEvent, PureEvent

if TYPE_CHECKING:
    from fedpriv.privacy.events import Event
    from fedpriv.privacy.ledger.composition import Block, Composition, Cost


def paid_by_round(event: Event) -> bool:
    """Whether a release is paid for on its own, if its ledger has a price for it.

    Then a run pays for what it uses. Others are declared as a whole: sampled rounds and shares of
    noise may compose better together.
    """
    return isinstance(event, GaussianEvent | LaplaceEvent | PureEvent | ApproximateEvent)


def price_of_run(rule: Composition, block: Block, *, delta: float | None, spent: Cost) -> Cost:
    """What all releases of a run cost after ``spent``, in the way strategies pay for them."""
    if all(paid_by_round(event) for event, _ in block):
        try:
            return rule.price_each(block)
        except UnsupportedEvent:
            pass
    return rule.price_block(block, delta=delta, spent=spent)
