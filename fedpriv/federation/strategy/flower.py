"""A strategy in Flower's own loop: `strategy.start(grid, …)` in a user's ServerApp.

Every round is one train message to each party and its answer, unmasked: the server sees each one,
and must be trusted with them. See docs/flower-app.md; a `GridFederation` masks its sums.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from logging import INFO
from typing import TYPE_CHECKING, ClassVar

from flwr.app import Array, ArrayRecord, MetricRecord
from flwr.serverapp.strategy import Strategy
from flwr.supercore import log

from fedpriv.federation.protocol.clear_messages import query_messages, sum_replies
from fedpriv.privacy.mechanisms.shares import SharedNoise

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from flwr.app import ConfigRecord, Message
    from flwr.serverapp import Grid
    from numpy.typing import NDArray

    from fedpriv.federation.federation import Sum
    from fedpriv.federation.queries.kinds import Query
    from fedpriv.federation.task import Task
    from fedpriv.privacy.planning.plan import Plan

_POLL_SECONDS = 0.1


class FlowerStrategy(Strategy):
    """Flower's interface to a strategy's ask and learn: the same exchange, as messages.

    The party's end is `fedpriv.federation.party.train_app`.
    """

    name: ClassVar[str]
    task: Task
    plan: Plan | None
    _theta: NDArray[np.float64]
    _asked: Query | None

    @abstractmethod
    def ask(self) -> Query | None:
        """The next query, with its release reserved; None when the run is over."""

    @abstractmethod
    def learn(self, answer: Sum) -> None:
        """Turn the sum that was asked for into a release, commit it, and move the model."""

    @property
    @abstractmethod
    def releases(self) -> int:
        """The number of releases of the run."""

    @property
    @abstractmethod
    def round(self) -> int:
        """The number of releases so far."""

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """The query, to every party; nothing when the run is over."""
        self._require_server_noise()
        query = self.ask()
        return [] if query is None else query_messages(query, self._all_nodes(grid))

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Learn from the sum; if nobody answered, the same round is asked again."""
        if self._asked is None:
            return None, None
        answer = sum_replies(replies, self._asked, self.task)
        if answer is None:
            return None, None
        self.learn(answer)
        metrics = MetricRecord({"parties": len(answer.sizes), "releases": self.round})
        return ArrayRecord({"theta": Array(self._theta)}), metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Nothing: a metric on party data would be a release of its own."""
        return []

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Nothing."""
        return None

    def summary(self) -> None:
        """Log what is about to run."""
        log(INFO, "\t├──> %s, %d parties", self.name, self.task.parties)
        if self.plan is None:
            log(INFO, "\t└──> no privacy is promised")
        else:
            log(INFO, "\t└──> %d releases within %s", self.releases, self.plan.budget)

    @property
    @abstractmethod
    def _real(self) -> bool:
        """Whether what it releases is paid for by a budget."""

    def _require_server_noise(self) -> None:
        """Refuse noise that unmasked answers, or a repeated round, would undo."""
        if self.plan is None or self.plan.noise_at == "server":
            return
        if any(isinstance(mechanism, SharedNoise) for mechanism in self.plan.mechanisms):
            raise ValueError(
                "noise_at must be 'server' in Flower's own loop, got 'parties': answers are not "
                "masked, and one party's share of the noise does not protect its own answer."
            )
        if self._real:
            raise ValueError(
                f"a release of {self.name} needs a deployment of fedpriv: in Flower's own loop a "
                "round that fails is asked again, and a party would show a second draw of noise."
            )

    def _all_nodes(self, grid: Grid) -> list[int]:
        """All parties, once they have arrived."""
        while len(nodes := list(grid.get_node_ids())) < self.task.parties:
            time.sleep(_POLL_SECONDS)
        return nodes
