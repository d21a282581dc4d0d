"""Flower's SuperNode, polling for messages twice per second while there are any.

Flower's own looks every three seconds, for each of the two or three exchanges of a round of secure
aggregation, and every half second for what its worker replied: nearly all of the time of a deployed
run. Its loop takes the pauses from nowhere but its own source, so they are shortened where that
source asks for them.
"""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import TYPE_CHECKING

from flwr.supernode import start_client_internal as loop
from flwr.supernode.cli.flower_supernode import flower_supernode

from fedpriv.simulations.deploy.flower.pace import Pace

if TYPE_CHECKING:
    from collections.abc import Callable

POLL_SECONDS = 0.5
"""Between two requests to the server during a run; every one costs the server a signature check."""
_IDLE_SECONDS = 2.0
_REPLY_SECONDS = 0.02  # a look into this process's own memory
_FLOWERS_PAUSE = 3.0  # after a request that found no message; its other pauses await the worker


def main() -> None:
    """Run Flower's SuperNode, by ``python -m``, with the options of flower-supernode."""
    pause = paused(Pace(shortest=POLL_SECONDS, longest=_IDLE_SECONDS))
    setattr(loop, "time", SimpleNamespace(sleep=pause))  # noqa: B010 - no name of its interface
    flower_supernode()


def paused(pace: Pace) -> Callable[[float], None]:
    """The replacement of `time.sleep` in Flower's loop."""

    def pause(seconds: float) -> None:
        if seconds >= _FLOWERS_PAUSE:
            time.sleep(pace.pause)
        else:  # a message is being answered
            pace.came()
            time.sleep(_REPLY_SECONDS)

    return pause


if __name__ == "__main__":
    main()
