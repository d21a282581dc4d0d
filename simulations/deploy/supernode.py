"""Flower's SuperNode, which looks for messages twice a second.

Flower's own looks every three seconds, for each of the two or three exchanges of a round of secure
aggregation: nearly all of the time of a deployed run. Its loop takes the pause from nowhere but its
own source, so the pause is shortened where that source asks for it.
"""

from __future__ import annotations

import time
from types import SimpleNamespace

from flwr.supernode import start_client_internal as loop
from flwr.supernode.cli.flower_supernode import flower_supernode

POLL_SECONDS = 0.5


def main() -> None:
    """Run as ``python -m simulations.deploy.supernode``, with the options of flower-supernode."""
    setattr(loop, "time", SimpleNamespace(sleep=_pause))  # noqa: B010 - no name of its interface
    flower_supernode()


def _pause(seconds: float) -> None:
    time.sleep(min(seconds, POLL_SECONDS))


if __name__ == "__main__":
    main()
