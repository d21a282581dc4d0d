"""Flower's SuperNode, which polls often, waits for nothing for ever, and fetches no code.

Its loop takes all that it uses from its own module, so that is where it is changed:

- Pauses. Flower's looks every three seconds for messages, for each of the two or three exchanges of
  a round of secure aggregation, and every half second for what its worker replied: nearly all of
  the time of a deployed run. Here it asks again at once, and its server holds the question
  (`fedpriv.simulations.deploy.flower.held`), as it does its worker's.
- Waits. Every message gets a reply in time (`fedpriv.simulations.deploy.flower.node_state`), and
  its content is there within a minute, or it is left.
- Code. The app bundle of a run is neither fetched nor unpacked; of the run's config no more is
  accepted than an experiment can need.
- Answers. They come from the one server, and have a limit
  (`fedpriv.simulations.deploy.flower.fleet_client`).
- Errors. A server that answers nonsense is asked again later: Flower's loop would end, and its
  process stay; or its heartbeats (`fedpriv.simulations.deploy.flower.heartbeats`).
"""

from __future__ import annotations

import os
import time
import traceback
from functools import partial
from logging import ERROR
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from flwr.app import Error, Message
from flwr.common.constant import ErrorCode
from flwr.supercore import log
from flwr.supercore.fab import Fab
from flwr.supercore.inflatable.inflatable_utils import pull_objects
from flwr.supercore.run import RunNotRunningException
from flwr.supernode import fleet_http_connection
from flwr.supernode import main as api
from flwr.supernode import start_client_internal as loop
from flwr.supernode.cli.flower_supernode import flower_supernode
from flwr.supernode.nodestate import nodestate_factory
from flwr.supernode.servicer.runtime import runtime_handlers
from flwr.supernode.start_client_internal import _insert_message, _pull_and_store_message

from fedpriv.simulations.deploy.flower.deadlines import PULL_SECONDS, max_seconds
from fedpriv.simulations.deploy.flower.fleet_client import BoundedFleetClient, bounded_message
from fedpriv.simulations.deploy.flower.heartbeats import persistent
from fedpriv.simulations.deploy.flower.held import News, held_by_supernode
from fedpriv.simulations.deploy.flower.middleware import lean
from fedpriv.simulations.deploy.flower.node_state import PartyState
from fedpriv.simulations.deploy.flower.pace import Pace
from fedpriv.simulations.deploy.flower.patches import put_in_place
from fedpriv.simulations.deploy.flower.run_config import ConfigRefused, own_config
from fedpriv.simulations.deploy.folders import PartyFolder
from fedpriv.simulations.deploy.health.heartbeat import Beat, Heart, heartbeat_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from fastapi import FastAPI
    from flwr.proto.message_pb2 import ObjectTree
    from flwr.proto.runtime_pb2 import AcquireTaskRequest, AcquireTaskResponse

    Pull = Callable[..., int | None]
    Acquire = Callable[[AcquireTaskRequest, PartyState], AcquireTaskResponse]

POLL_SECONDS = 0.05
"""Between two requests to the server during a run, which holds each until there is news."""
_IDLE_SECONDS = 2.0
_REPLY_SECONDS = 0.02  # a look into this process's own memory
_FLOWERS_PAUSE = 3.0  # after a request that found no message; its other pauses await the worker


def main() -> None:
    """Run Flower's SuperNode, by ``python -m``, with the options of flower-supernode."""
    put_in_place(changes())
    try:
        flower_supernode()
    except Exception:
        traceback.print_exc()
    log(ERROR, "the SuperNode ends: its loop has ended")
    os._exit(1)  # its server for the worker is a thread that would stay, and look alive


def changes() -> tuple[tuple[ModuleType, str, object], ...]:
    """What is described above: the module of Flower's, the name in it, and what it becomes."""
    pause = paused(Pace(shortest=POLL_SECONDS, longest=_IDLE_SECONDS))
    messages = News()
    return (
        (loop, "time", SimpleNamespace(sleep=pause)),
        (
            loop,
            "pull_objects",
            partial(while_running(bounded_message(pull_objects)), max_time=PULL_SECONDS),
        ),
        (loop, "get_fused_config_from_fab", lambda _bundle, run: own_config(run)),
        (loop, "_pull_and_store_message", careful(_pull_and_store_message, messages)),
        (nodestate_factory, "InMemoryNodeState", PartyState),
        (fleet_http_connection, "HeartbeatSender", persistent),
        (fleet_http_connection, "FleetHttpClient", BoundedFleetClient),
        (api, "create_app", partial(held_app, api.create_app, messages)),
        (runtime_handlers, "acquire_task", one_at_a_time(runtime_handlers.acquire_task)),
    )


def paused(pace: Pace) -> Callable[[float], None]:
    """The replacement of `time.sleep` in Flower's loop."""

    def pause(seconds: float) -> None:
        if seconds >= _FLOWERS_PAUSE:
            time.sleep(pace.pause)
        else:  # a message is being answered
            pace.came()
            time.sleep(_REPLY_SECONDS)

    return pause


def held_app(create: Callable[..., FastAPI], messages: News, **given: Any) -> FastAPI:
    """The server for the worker, which holds its request for a task until a message has come."""
    app = create(**given)
    app.user_middleware = [held_by_supernode(messages), *lean(app.user_middleware)]
    return app


def careful(pull: Pull, messages: News) -> Pull:
    """Take a message without its run's code; reply at once if the run's config is refused."""
    heart = Heart(path=None)

    def pulled(**given: Any) -> int | None:
        taken: list[Message] = []
        state, party = given["state"], Path(str(given["node_config"].get("party", "")))

        def receive() -> tuple[Message, ObjectTree] | None:
            received: tuple[Message, ObjectTree] | None = given["receive"]()
            heart.path = heartbeat_file(PartyFolder(party.parent), "supernode")
            heart.beat(Beat())  # the server was heard
            if received is not None:
                taken.append(received[0])
                state.most = max_seconds(party)
            return received

        changed = {
            "receive": receive,
            "get_fab": no_bundle,
            "confirm_message_received": while_running(given["confirm_message_received"]),
        }
        try:
            run = pull(**given | changed)
        except ConfigRefused as refusal:
            reply = Message(Error(ErrorCode.INVALID_FAB, str(refusal)), reply_to=taken[0])
            _insert_message(reply, state, given["object_store"])
            return taken[0].metadata.run_id
        except Exception as error:
            log(ERROR, "a message could not be taken: %s", error)
            return None
        if run is not None:
            messages.announce()
        return run

    return pulled


def while_running(call: Callable[..., Any]) -> Callable[..., Any]:
    """Call the server for a message that is being taken; if its run has ended, with an error.

    Flower says that, and whatever else the server forbids, by something that is no `Exception`. Its
    own handler lets it pass, and what has come of the message would stay. Without its content, the
    worker would wait for that, while others are in need of it. With it, the reply would be sent in
    the place of the next message's, and each one after that for its predecessor: for ever too late.
    """

    def called(*given: Any, **options: Any) -> Any:
        try:
            return call(*given, **options)
        except RunNotRunningException:
            raise ConnectionError("its run has ended, or it was withdrawn.") from None

    return called


def no_bundle(fab_hash: str, _run: int) -> Fab:
    """What stands for a run's app bundle; the server is not asked for it."""
    return Fab(hash_str=fab_hash, content=b"", verifications={})


def one_at_a_time(acquire: Acquire) -> Acquire:
    """A worker that asks for a task has none: what it had taken was lost with its process."""

    def acquired(request: AcquireTaskRequest, state: PartyState) -> AcquireTaskResponse:
        state.lose_tasks()
        return acquire(request, state)

    return acquired


if __name__ == "__main__":
    main()
