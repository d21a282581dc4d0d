"""Deadline of a task at a party: what the message allows, and never more than the party does.

It is min(created + ttl, now + ``max_seconds`` of the policy), worked out on receipt: a server that
states a year, or a moment that has not come yet, gets as much as the party allows. The clocks of
server and party must agree to a fraction of a ttl; `fedpriv doctor` compares them.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from fedpriv.federation.deployed.policy import MOST_SECONDS, read_party

if TYPE_CHECKING:
    from pathlib import Path

    from flwr.app import Metadata

PULL_SECONDS = 60.0
"""For the content of a message, once it was announced."""


class Overdue(Exception):
    """The deadline of a message has passed."""


def max_seconds(party: Path) -> float:
    """How long a task may take at the party of this file, or of one that cannot be read."""
    try:
        return read_party(party).policy.max_seconds
    except ValueError:  # whoever needs the file reports it
        return MOST_SECONDS


def require_in_time(left: float) -> None:
    """Raise `Overdue` unless there is time left."""
    if left <= 0:
        raise Overdue("the message came after its deadline.")


def seconds_left(message: Metadata, *, most: float) -> float:
    """How long a message that was received now may be worked on; not positive if it is late."""
    left = message.created_at + message.ttl - time.time()
    return left if left < most else most  # and not `min`, which would let NaN through
