"""What the releases in a ledger cost, computed apart from the accountants."""

from __future__ import annotations

import json
from math import ceil
from typing import TYPE_CHECKING

import mpmath
import pytest

from fedpriv.privacy.events import GaussianEvent, SkellamEvent
from fedpriv.privacy.ledger import Kind, Ledger
from fedpriv.privacy.written_events import event_from_dict

if TYPE_CHECKING:
    from pathlib import Path

    from fedpriv.privacy.events import Event
    from fedpriv.privacy.ledger import Spend


def charged(path: Path) -> list[Event]:
    """Every release that a ledger paid for, by itself or as part of a declared run."""
    with Ledger.open(path, read_only=True) as ledger:
        rows = [row for row in ledger.rows() if row.kind == Kind.RESERVED]
    return [event_from_dict(json.loads(row.detail)) for row in rows]


def divergence(event: Event, order: float) -> mpmath.mpf:
    """D_α by its closed form, in 50 digits: an oracle that shares no code with the accountants."""
    with mpmath.workdps(50):
        if isinstance(event, GaussianEvent):
            return mpmath.mpf(order) / (2 * mpmath.mpf(event.relative_noise) ** 2)
        assert isinstance(event, SkellamEvent)  # Agarwal, Kairouz and Liu 2021, Thm. 3.5
        a, m = ceil(order), mpmath.mpf(event.variance)
        l1, l2 = mpmath.mpf(event.l1_sensitivity), mpmath.mpf(event.l2_sensitivity)
        more = min(((2 * a - 1) * l2**2 + 6 * l1) / (4 * m**2), 3 * l1 / (2 * m))
        return a * l2**2 / (2 * m) + more


def require_right_to_the_digit(path: Path) -> Spend:
    """What a sound ledger has spent: exactly the sum of its releases' divergences."""
    with Ledger.open(path, read_only=True) as ledger:
        ledger.verify()
        spent = ledger.spent()
    assert spent.composition is not None
    order = spent.composition.to_dict()["order"]
    expected = float(sum(divergence(event, order) for event in charged(path)))
    assert spent.total.amount == pytest.approx(expected, rel=1e-12)
    assert spent.total.amount >= expected * (1 - 1e-15)  # rounded up, if at all
    assert spent.within_budget
    return spent
