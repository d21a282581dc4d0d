"""Heartbeats that go on: whatever one of them meets, the next one is sent.

Flower sends them from a thread, which ends at the first answer that it does not expect, such as a
single 500 of a server whose database was busy. Nobody notices: the node goes on to ask for
messages, and the server, which takes it for gone after a minute, has none for it any more. The
party had no part in any run until it was restarted.
"""

from __future__ import annotations

from logging import WARNING
from typing import TYPE_CHECKING

from flwr.supercore import log
from flwr.supercore.heartbeat import HeartbeatSender

if TYPE_CHECKING:
    from collections.abc import Callable


def persistent(beat: Callable[[], bool]) -> HeartbeatSender:
    """Flower's sender of heartbeats, for which one that raises an error has failed: it tries again.

    It waits longer after each failure, up to 20 seconds.
    """

    def tried() -> bool:
        try:
            return beat()
        except Exception as error:
            log(WARNING, "a heartbeat failed, and is sent again: %s", error)
            return False

    return HeartbeatSender(tried)
