"""A strategy of ours runs in Flower's own loop, with real ClientApps on an in-process grid."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.federation.party.guard import Policy
from fedpriv.federation.party.party import Party
from fedpriv.federation.protocol.clear_messages import answer_message
from tests.federation.worlds import (
    build,
    linear_task,
    party_data,
    random_data,
    streams,
    train,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import NoReturn

SIZES, WIDTH = (20, 35, 8), 3
TASK = linear_task(SIZES, WIDTH, regulariser=0.1)
SERVER = 1
DROPPED = Error(code=1, reason="gone")


@pytest.fixture(autouse=True)
def _task_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Flower's runtime tells a process before it runs a ServerApp."""
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, SERVER)


def client_app(index: int) -> ClientApp:
    party = Party(
        random_data(SIZES, WIDTH).party(index),
        task=TASK,
        sampling=streams(index, "party"),
        policy=Policy(unpaid=True),
    )
    app = ClientApp()

    @app.train()
    def answer(message: Message, context: Context) -> Message:
        del context
        return answer_message(message, party)

    return app


class InProcessGrid(Grid):
    """Hands every message to the ClientApp of its node, and its reply back."""

    def __init__(self, *, slow_start: int = 0, absent: frozenset[int] = frozenset()) -> None:
        self.apps = {101 + index: client_app(index) for index in range(len(SIZES))}
        self.slow_start = slow_start
        self.absent = absent
        self.sent = 0

    def get_node_ids(self) -> Iterable[int]:
        self.slow_start -= 1
        return list(self.apps)[: 1 if self.slow_start >= 0 else None]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        del timeout
        return [self.deliver(message) for message in messages]

    def deliver(self, message: Message) -> Message:
        self.sent += 1
        node = message.metadata.dst_node_id
        message.metadata.__dict__["_message_id"] = f"m{self.sent}"
        if node in self.absent:
            return Message(DROPPED, reply_to=message)
        context = Context(run_id=1, node_id=node, node_config={}, state=RecordDict(), run_config={})
        return self.apps[node](message, context)

    def refuse(self, *_: object) -> NoReturn:
        raise NotImplementedError

    set_run = create_message = push_messages = pull_messages = refuse  # type: ignore[assignment]

    @property
    def run(self) -> NoReturn:
        raise NotImplementedError


def start() -> ArrayRecord:
    return ArrayRecord({"theta": Array(np.zeros(WIDTH))})


def vectorized() -> VectorizedFederation:
    return VectorizedFederation(random_data(SIZES, WIDTH), task=TASK, sampling=streams(0, "party"))


@pytest.mark.parametrize(
    ("name", "options", "rounds", "tolerance"),
    [
        ("gradient-perturbation", {"rounds": 12}, 12, 1e-4),
        ("output-perturbation", {}, 1, 1e-5),
        ("output-perturbation", {"law": "l2-laplace", "weights": "equal"}, 1, 1e-5),
        ("objective-perturbation", {}, 60, 1e-6),
        ("non-private", {}, 1, 1e-5),
        ("pooled", {}, 60, 1e-6),
    ],
)
def test_flowers_own_loop_ends_with_the_model_of_the_vectorized_engine(
    name: str, options: dict[str, Any], rounds: int, tolerance: float
) -> None:
    """Within the grid, the number of parties and rounds; and, for fits, their tolerance."""
    flower = build(name, TASK, **options)
    result = flower.start(InProcessGrid(), start(), num_rounds=rounds)
    ours = train(build(name, TASK, **options), vectorized())
    np.testing.assert_allclose(flower.theta, ours.theta, rtol=0, atol=tolerance)
    assert result.arrays is not None
    assert (result.arrays["theta"].numpy() == flower.theta).all()
    assert np.abs(ours.theta).max() > 100 * tolerance


def test_no_message_is_sent_after_the_last_release() -> None:
    grid = InProcessGrid()
    strategy = build("gradient-perturbation", TASK, rounds=2)
    strategy.start(grid, start(), num_rounds=5)
    assert grid.sent == 2 * len(SIZES)
    assert strategy.round == 2


def test_the_first_round_waits_until_every_party_has_arrived() -> None:
    grid = InProcessGrid(slow_start=2)
    build("output-perturbation", TASK).start(grid, start(), num_rounds=1)
    assert grid.sent == len(SIZES)


def test_a_party_that_drops_out_is_left_out_of_the_average() -> None:
    strategy = build("non-private", TASK)
    strategy.start(InProcessGrid(absent=frozenset({102})), start(), num_rounds=1)
    data, expected = random_data(SIZES, WIDTH), np.zeros(WIDTH)
    for index, size in ((0, 20), (2, 8)):
        own, task = data.party(index), linear_task((size,), WIDTH, regulariser=0.1)
        alone = VectorizedFederation(
            party_data(own.X, own.y.astype(np.float32), (size,)),
            task=task,
            sampling=streams(0, "p"),
        )
        expected += train(build("non-private", task), alone).theta * size / 28
    np.testing.assert_allclose(strategy.theta, expected, atol=1e-5)


def test_a_round_that_nobody_answers_is_asked_again() -> None:
    grid = InProcessGrid(absent=frozenset({101, 102, 103}))
    strategy = build("output-perturbation", TASK)
    strategy.start(grid, start(), num_rounds=2)
    assert strategy.round == 0
    assert grid.sent == 2 * len(SIZES)
    grid.absent = frozenset()
    strategy.start(grid, start(), num_rounds=1)
    assert strategy.round == 1


def test_a_node_that_answers_twice_stops_the_round() -> None:
    class Doubling(InProcessGrid):
        def send_and_receive(
            self, messages: Iterable[Message], *, timeout: float | None = None
        ) -> Iterable[Message]:
            replies = list(super().send_and_receive(messages, timeout=timeout))
            return [*replies, replies[0]]

    strategy = build("output-perturbation", TASK)
    with pytest.raises(ValueError, match="answered twice"):
        strategy.start(Doubling(), start(), num_rounds=1)
    assert strategy.round == 0
