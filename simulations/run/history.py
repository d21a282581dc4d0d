"""History of a run: metrics, noise and bytes, exchange by exchange; kept in its checkpoint."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

from fedpriv.simulations.run.metrics.evaluation import Score, rounds_between
from fedpriv.simulations.run.metrics.noise import acting_noise
from fedpriv.simulations.run.metrics.training_metrics import (
    TRAINING,
    TrainingMetrics,
    TrainingScore,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedpriv.federation.engines.grid import GridFederation
    from fedpriv.federation.exchange_report import Report
    from fedpriv.federation.federation import Federation, Sum
    from fedpriv.federation.queries.kinds import Query
    from fedpriv.federation.strategy.base import SumStrategy
    from fedpriv.privacy.planning.plan import Plan
    from fedpriv.simulations.run.prepare import Prepared


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What is known after one exchange with the parties; None where it was not computed."""

    round: int
    epsilon: float | None
    accuracy: float | None = None
    loss: float | None = None
    clipped: float | None = None
    seconds: float | None = None
    objective: float | None = None
    excess_risk: float | None = None
    optimality_gap: float | None = None


@dataclass(kw_only=True)
class Record:
    """What a run leaves behind, exchange by exchange. Survives a restart by `state`.

    Attributes:
        prepared: the experiment.
        strategy: what learns.
        release: whether the run is real: then nothing about the records is written down, neither
            the share of clipped gradients nor, unless the test set is public, a metric.
        metrics: whether to compute metrics on the way; the last model is always scored.
        rounds: one entry per exchange; of a real run one per release: how many exchanges a joint
            fit needs depends on the records.
        exchanges: how many there were; private.
        bytes_sent: by one party to the server.
        noise: see `acting_noise`; of the releases that the plan knows.
        before: seconds of earlier sessions of the run.
    """

    prepared: Prepared
    strategy: SumStrategy
    release: bool = False
    metrics: bool = True
    rounds: list[Round] = field(default_factory=list)
    exchanges: int = 0
    bytes_sent: int = 0
    noise: float | None = None
    before: float = 0.0
    started: float = field(default_factory=perf_counter)

    def __post_init__(self) -> None:
        self._plan: Plan | None = None
        self._spending: Callable[[int], float] | None = None
        experiment, data = self.prepared.experiment, self.prepared.data.dataset
        every = experiment.run.evaluate_every
        # Of a release it is refused before a record is read; what is measured here is unpaid.
        measured = experiment.run.training_metrics and not self.release
        self.training = TrainingMetrics.of(self.prepared) if measured else None
        self._training_every = 1 if every == "auto" else every
        self._federation: GridFederation | None = None
        self._received = 0
        self._every = (
            rounds_between(test_records=len(data.test), train_records=len(data.train))
            if every == "auto"
            else every
        )
        self.started = perf_counter()  # finding the minimum is no part of the training

    def follow(self, federation: Federation) -> None:
        """Take the bytes from the exchanges of a federation that has real ones."""
        if self.prepared.experiment.run.ideal:
            return
        from fedpriv.federation.engines.grid import GridFederation  # it imports Flower

        self._federation = federation if isinstance(federation, GridFederation) else None

    @property
    def report(self) -> Report | None:
        """What the exchanges since the last start cost; None if all parties share a process."""
        return None if self._federation is None else self._federation.report

    @property
    def seconds(self) -> float:
        """Of training, over all starts of the run."""
        return self.before + perf_counter() - self.started

    @property
    def made(self) -> int:
        """How many rounds there were: of a real run, releases.

        A release found in the ledger was made, though not in this process.
        """
        made = self.strategy.round
        return made if self.release else max(len(self.rounds), made)

    def add(self, query: Query, answer: Sum) -> Round | None:
        """Note one exchange; what is known after it, for whoever watches.

        None where exchanges are concealed: then a release is noted, and nothing before it.
        """
        concealed = self.strategy.concealed
        if concealed and self.strategy.round == len(self.rounds):
            return None
        self.exchanges += 1
        plan = self.strategy.plan
        if plan is not None and plan is not self._plan:  # with every release that it is told of
            self._plan, self._spending = plan, plan.spending()
            self.noise = acting_noise(query, plan, self.prepared.task)
        if not concealed:
            self.bytes_sent += self._sent(query)
        due = self.metrics and not self.release and self.exchanges % self._every == 0
        score = self.score() if due else None
        training = self._training_score()
        added = Round(
            round=self.exchanges,
            epsilon=self._epsilon(query),
            accuracy=score.accuracy if score else None,
            loss=score.loss if score else None,
            clipped=None if self.release else answer.diagnostics.get("clipped"),
            seconds=self.seconds,
            **asdict(training),
        )
        if not self.release:
            self.rounds.append(added)
        elif self.made > (self.rounds[-1].round if self.rounds else 0):
            self.rounds.append(replace(added, round=self.made, seconds=None))
        return added

    def _sent(self, query: Query) -> int:
        """Bytes from one party to the server since the last sum, on average over the parties."""
        task, report = self.prepared.task, self.report
        if report is None:
            return query.answer_width(task) * query.grid.bits // 8
        before, self._received = self._received, report.total.received
        return round((self._received - before) / task.parties)

    def _epsilon(self, query: Query) -> float | None:
        """What was spent up to now; None where nothing is promised."""
        return None if self._spending is None else self._spending(query.round + 1)

    def score(self) -> Score | None:
        """Metrics of the current model, if they may be computed."""
        if self.release and not self.prepared.experiment.data.public_test:
            return None
        return self.prepared.evaluator.score(self.strategy.theta)

    def _training_score(self) -> TrainingScore:
        """Training metrics of the current model, where a simulation asks for them."""
        due = self.metrics and self.exchanges % self._training_every == 0
        if self.training is None or not due:
            return TrainingScore()
        return self.training.score(self.strategy.theta)

    def rows(self) -> list[dict[str, Any]]:
        """The columns of metrics.csv; training metrics are among them if they were asked for."""
        left_out = () if self.training is not None else TRAINING
        return [
            {key: value for key, value in asdict(entry).items() if key not in left_out}
            for entry in self.rounds
        ]

    def state(self) -> dict[str, Any]:
        """All that `restore` needs."""
        columns = {
            name: [getattr(entry, name) for entry in self.rounds] for name in Round.__slots__
        }
        return {
            "strategy": self.strategy.checkpoint(),
            "rounds": columns,
            "noise": self.noise,
            "exchanges": self.exchanges,
            "bytes_sent": self.bytes_sent,
            "seconds": self.seconds,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        self.strategy.restore(state["strategy"])
        self._plan = self.strategy.plan
        self._spending = None if self._plan is None else self._plan.spending()
        columns = state["rounds"]
        self.rounds = [
            Round(**dict(zip(columns, entry, strict=True)))
            for entry in zip(*columns.values(), strict=True)
        ]
        self.noise, self.exchanges = state["noise"], state["exchanges"]
        self.bytes_sent = state["bytes_sent"]
        self.before = state["seconds"]
