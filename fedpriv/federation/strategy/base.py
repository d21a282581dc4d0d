"""What every strategy does: it asks, gets a sum, and learns.

The order of a private round is fixed here, for all strategies: reserve in the ledger, ask, add
noise, commit the release, and only then move the model. A round that was committed before a crash
is replayed from the ledger: its noise is never drawn again.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fedpriv.federation.queries.bounds import require_minimum
from fedpriv.federation.strategy.flower import FlowerStrategy
from fedpriv.federation.strategy.moved import moved_model
from fedpriv.privacy.accountants import UnsupportedEvent
from fedpriv.privacy.budget import BudgetExceeded
from fedpriv.privacy.ledger.foresight import paid_by_round
from fedpriv.privacy.planning.noise_free import NoiseFree

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from fedpriv.federation.federation import Sum
    from fedpriv.federation.queries.kinds import Query
    from fedpriv.federation.task import Task
    from fedpriv.privacy.events import Event
    from fedpriv.privacy.ledger import Ledger, Reservation
    from fedpriv.privacy.planning.plan import Plan
    from fedpriv.privacy.randomness import RandomStream

_STATE = "state."


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a strategy needs to know about its run.

    Attributes:
        name: The name of the run in queries and ledger.
        noise: The stream of each round: seeded in a simulation, from the OS in a release.
        ledger: Where a release is reserved and committed; None in a simulation.
        release: Whether it is a release, whose ledger may be given later by `SumStrategy.attach`.
    """

    name: str
    noise: Callable[[int], RandomStream]
    ledger: Ledger | None = None
    release: bool = False

    @property
    def real(self) -> bool:
        """Whether what it releases is paid for by a budget."""
        return self.release or self.ledger is not None


class SumStrategy(FlowerStrategy):
    """A learning algorithm of the server that sees sums and nothing else. Use a subclass.

    A subclass says what to ask (`_query`), how a sum becomes a release (`_release`) and what the
    release does to the model (`_update`). It never holds an answer of one party.

    >>> from fedpriv.simulations.experiment.file import parse_experiment
    >>> from fedpriv.simulations.run.prepare import build_federation, build_strategy, prepare
    >>> study = {"data": {"name": "synthetic"}, "strategy": {"name": "output-perturbation"}}
    >>> prepared = prepare(parse_experiment(study))
    >>> strategy = build_strategy(prepared, run="example")
    >>> federation = build_federation(prepared, run="example")
    >>> while (query := strategy.ask()) is not None:
    ...     strategy.learn(federation.sum(query))
    >>> strategy.round, strategy.plan.epsilon <= 1.0
    (1, True)

    Attributes:
        name: Its name in experiments, plans and reports.
        server_also_sees: What the server learns on the way to a release; for the trust model.
        concealed: Whether the number of exchanges must stay secret: no progress, no metric and no
            count of them leaves the run before its release.
        width: The number of coordinates of a release; None if as many as the model.
        task: The problem, with the λ in effect.
        plan: Noise and cost of every release; None for a run without a guarantee: of a strategy
            without noise, or the `NoiseFree` twin of one with it.
        stopped: Why the run ended before its last round; empty if it did not.
        cut_short: Whether the ledger refused a release of a fixed plan because another run had
            spent what was left. A run with adaptive noise ends with the budget, as planned.
    """

    name: ClassVar[str]
    server_also_sees: ClassVar[str] = ""
    concealed: ClassVar[bool] = False
    width: int | None = None

    def __init__(
        self,
        *,
        task: Task,
        plan: Plan | NoiseFree | None,
        run: Run,
        start: NDArray[np.float64] | None = None,
    ) -> None:
        self.task = task
        self.plan = None if isinstance(plan, NoiseFree) else plan
        if self.plan is not None:
            _require_plan_of(self.plan, task, dimension=self.width or task.dimension)
        elif run.real:
            raise ValueError(
                f"plan must be given for a run on a ledger, got {plan!r}: a release without one "
                "has no cost to reserve."
            )
        self._unplanned = 1 if plan is None else plan.rounds
        self.stopped = ""
        self.cut_short = False
        self._run = run
        self._reservation: Reservation | None = None
        self._asked: Query | None = None
        self._round = 0
        self._last: NDArray[np.float64] | None = None
        self._theta = np.zeros(task.dimension) if start is None else np.array(start)

    # What a subclass implements.

    @abstractmethod
    def _query(self) -> Query:
        """The next query of the current round."""

    @abstractmethod
    def _release(self, answer: Sum) -> NDArray[np.float64] | None:
        """The noisy result of the current round; None if the round needs more exchanges."""

    @abstractmethod
    def _update(self, release: NDArray[np.float64]) -> None:
        """Move the model. Everything from here on is post-processing."""

    # What a runner calls.

    def attach(self, run: Run) -> None:
        """Join a run: its name, its noise and its ledger, before the first query.

        A strategy is built, and all its refusals are known, before a run has a name, a directory or
        a ledger. One built for a simulation stays in simulations.
        """
        if self._asked is not None or self._reservation is not None or self._round:
            raise RuntimeError("a strategy that has asked or released belongs to its run.")
        if run.real != self._run.real:
            raise ValueError(
                f"run.release must be {self._run.real}, as when the strategy was built: what may "
                "be released is checked then."
            )
        self._run = run

    @property
    def releases(self) -> int:
        """How many releases the run makes."""
        return self._unplanned if self.plan is None else self.plan.rounds

    @property
    def fixed_clip(self) -> float | None:
        """The clip norm of every query; None if there is none, or it changes during the run.

        A strategy that states it is held to it, by parties that hold it to its plan.
        """
        return None

    @property
    def rounds(self) -> int:
        """The expected number of exchanges; for progress."""
        return self.releases

    @property
    def round(self) -> int:
        """The number of releases so far."""
        return self._round

    @property
    def theta(self) -> NDArray[np.float64]:
        """The current model; read-only."""
        view = self._theta.view()
        view.flags.writeable = False
        return view

    @property
    def last_release(self) -> NDArray[np.float64] | None:
        """The last release, as a ledger keeps it; None before the first. For audits."""
        return self._last

    def ask(self) -> Query | None:
        """The next query, with its release reserved; None when the run is over.

        Raises:
            BudgetExceeded: The ledger refuses the first release. Nothing was asked.
        """
        self._asked = None
        if self._run.release and self._run.ledger is None:
            raise RuntimeError("a release needs its ledger before anything is asked: attach it.")
        while self._round < self.releases and not self.stopped:
            stored = self._reserve()
            if stored is not None:
                self._advance(self._stored(stored))
            elif not self.stopped:
                self._asked = self._query()
                break
        return self._asked

    def learn(self, answer: Sum) -> None:
        """Turn the sum that was asked for into a release, commit it, and move the model."""
        asked, self._asked = self._asked, None
        if asked is None or asked.grid.step != answer.step:
            raise RuntimeError("a sum was learned that was not asked for: nothing was released.")
        require_minimum(asked, len(answer.sizes))
        if self._run.ledger is not None and self._reservation is None:
            raise RuntimeError("a release must be reserved in the ledger. Nothing was released.")
        release = self._release(answer)
        if release is None:
            return
        # Whatever happens to the commit, the next query reads the ledger afresh.
        reservation, self._reservation = self._reservation, None
        if self._run.ledger is not None and reservation is not None:
            self._run.ledger.commit(reservation, release.astype("<f8").tobytes())
        self._last = release
        self._advance(release)

    def checkpoint(self) -> dict[str, Any]:
        """What `restore` needs to continue after the last release: arrays, numbers, all public."""
        state = {f"{_STATE}{name}": value for name, value in self._state().items()}
        return {"round": self._round, "theta": self._theta.copy(), **state}

    def restore(self, checkpoint: Mapping[str, Any]) -> None:
        """Go back to a checkpoint of the same strategy."""
        self._round = int(checkpoint["round"])
        self._theta = np.array(checkpoint["theta"], dtype=np.float64)
        self._reservation = self._asked = None
        self._set_state(
            {
                name.removeprefix(_STATE): value
                for name, value in checkpoint.items()
                if name.startswith(_STATE)
            }
        )

    def _state(self) -> dict[str, Any]:
        """What the next round depends on besides the model."""
        return {}

    def _set_state(self, state: dict[str, Any]) -> None:
        """Restore what `_state` returned."""

    # The order of a private round.

    @property
    def _real(self) -> bool:
        return self._run.real

    def _require_plan(self) -> Plan:
        if self.plan is None:
            raise ValueError(f"plan must be given for {self.name}, got None.")
        return self.plan

    def _event(self) -> Event | None:
        return None if self.plan is None else self.plan.event(self._round)

    def _stream(self, number: int | None = None) -> RandomStream:
        """The stream of the current round, or of another number."""
        stream = self._run.noise(self._round if number is None else number)
        if self._run.ledger is not None and not stream.secure:
            raise RuntimeError(
                "the noise of a release on a ledger must come from RandomStream.from_os(): whoever "
                "knows a seed can subtract it. Nothing was released."
            )
        return stream

    @property
    def _release_length(self) -> int | None:
        """The number of coordinates of a release; None if releases differ in it."""
        return self.width or self.task.dimension

    def _stored(self, data: bytes) -> NDArray[np.float64]:
        """A release of the ledger, which must be of this model."""
        if len(data) % 8 or self._release_length not in (None, len(data) // 8):
            raise ValueError(
                f"the ledger holds a release of {len(data)} bytes for round {self._round} of run "
                f"{self._run.name!r}, and the model has {self.task.dimension} coordinates of 8: "
                "it is the run of another model."
            )
        return np.frombuffer(data, dtype="<f8")

    def _advance(self, release: NDArray[np.float64]) -> None:
        with np.errstate(over="ignore", invalid="ignore"):  # non-finite models are refused next
            self._update(release)
        self._theta = self._moved()
        self._round += 1
        self._reservation = None

    def _moved(self) -> NDArray[np.float64]:
        """The model that the current round left: checked, and in the ball of the task."""
        return moved_model(
            self._theta,
            dimension=self.task.dimension,
            radius=self.task.radius,
            strategy=type(self).__name__ if self.plan is None else self.plan.strategy,
            owner=type(self).__name__,
            after=f"after round {self._round + 1} of {self.releases}",
        )

    def _reserve(self) -> bytes | None:
        """Pay for the current release, once; returns its bytes if it was made before."""
        event, ledger = self._event(), self._run.ledger
        if ledger is None or event is None or self._reservation is not None:
            return None
        try:
            self._reservation = self._pay(ledger, event)
        except BudgetExceeded as refusal:
            if self._round == 0:
                raise
            self.stopped, self.cut_short = str(refusal), True
            return None
        return self._reservation.release

    def _pay(self, ledger: Ledger, event: Event) -> Reservation:
        """Round by round where that is exact, so that a run pays for what it uses; else as a whole.

        Sampled rounds compose better together, and some ledgers cannot price a single Gaussian. A
        run with any of them is declared before its first release, even if that one is not sampled.
        """
        run, plan = self._run.name, self._require_plan()
        if paid_by_round(event) and plan.least_rate == 1:
            try:
                return ledger.reserve(event, run=run, round=self._round)
            except UnsupportedEvent:
                pass
        ledger.declare(run, plan.releases, delta=plan.budget.delta)
        return ledger.reserve(event, run=run, round=self._round)


def _require_plan_of(plan: Plan, task: Task, *, dimension: int) -> None:
    """Refuse a plan made for another problem."""
    facts = {
        "dimension": (plan.dimension, dimension),
        "records": (plan.records, task.records),
        "parties": (plan.parties, task.parties),
        "smallest_party": (plan.smallest_party, task.smallest),
    }
    for name, (planned, actual) in facts.items():
        if planned != actual:
            words = f"its {name} is {planned}, the task's {actual}"
            raise ValueError(f"plan must be made for this task: {words}.")
