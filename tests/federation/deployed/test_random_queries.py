"""Queries at random, in several places of several runs, to a party that is killed at random.

What is asked is taken from an honest question and changed: rounds, runs, points, rates, noise,
grids, clips, plans, what belongs to other strategies, and bits. The party is killed before or after
anything that it writes. Whatever comes: a release has one answer, its ledger has paid for that
before it leaves, once and for what was stated, and an independent accountant finds no more spent
than the ledger says. Nothing but a refusal comes back, and no lock stays.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent
from dp_accounting.pld import PLDAccountant

from fedpriv.federation.deployed import journal
from fedpriv.federation.protocol.errands import Cancel
from fedpriv.federation.protocol.wire import Ask, ClearAnswer, Join, Reply, Request
from fedpriv.federation.queries import encoding as codec
from fedpriv.federation.queries.kinds import GradientQuery, MomentsQuery
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import GaussianEvent, PoissonGaussianEvent, PureEvent
from fedpriv.privacy.ledger import Ledger
from fedpriv.secagg import FixedPoint
from fedpriv.secagg.errors import SecureAggregationError
from tests.federation.deployed import stated_plans, test_deployed_training
from tests.federation.deployed.deployments import Deployment

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fedpriv.federation.deployed.stated_plan import StatedPlan
    from fedpriv.federation.queries.base import Query
    from fedpriv.federation.queries.local_training import LocalTrainingQuery
    from fedpriv.privacy.events import Event

    Asked = GradientQuery | LocalTrainingQuery | MomentsQuery

A = Adjacency.ADD_REMOVE
OFF = {"secure_aggregation": "off"}  # one message is one answer
SEATS = [bytes([number]) * 32 for number in range(65, 69)]
MESSAGES = 160


class Killed(BaseException):
    """The machine is off: no handler of the product's sees it."""


def whole_parties(folder: Path) -> tuple[Deployment, list[Asked], None]:
    deployment = test_deployed_training.deployed(
        folder,
        strategy={"name": "scaffold"},
        policy=OFF,
        experiment={"run": OFF},
        budget={"adjacency": "add-remove", "unit": "party", "epsilon": 50.0},
    )
    asked = test_deployed_training.query(deployment, control=np.full(3, 0.1))
    return deployment, [asked], None


def samples(folder: Path) -> tuple[Deployment, list[Asked], StatedPlan]:
    strategy = {"name": "second-order", "sampling_rate": 0.2, "rounds": 3}
    deployment = Deployment(
        folder=folder,
        policy={**OFF, "strategies": [strategy["name"]], "queries": ["gradient", "moments"]},
        budget={"adjacency": "add-remove", "composition": "basic", "epsilon": 50.0},
        experiment={"strategy": strategy, "privacy": {"adjacency": "add-remove"}, "run": OFF},
    )
    run = f"{deployment.host('north').engagement.run}-1"
    common: dict[str, Any] = {
        "run": run,
        "round": 0,
        "grid": FixedPoint(step=2.0**-20, bits=64),
        "event": stated_plans.event(),
        "sampling_rate": 0.2,
    }
    gradient = GradientQuery(**common, theta=np.zeros(3), clip_norm=1.0)
    steps: tuple[tuple[Event, int], ...] = ((stated_plans.event(), 30),)
    plan = replace(stated_plans.stated(deployment), run=run, clip=None, epsilon=30.0, steps=steps)
    return deployment, [gradient, gradient, MomentsQuery(**common)], plan


@dataclass
class Siege:
    """What was asked so far, and what came of it."""

    deployment: Deployment
    honest: list[Asked]
    plan: StatedPlan | None
    any: random.Random
    seen: list[bytes] = field(default_factory=list)
    rounds: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    answers: dict[tuple[str, int], set[bytes]] = field(default_factory=lambda: defaultdict(set))
    events: dict[tuple[str, int], Event] = field(default_factory=dict)
    deaths: int = 0

    def __post_init__(self) -> None:
        self.host = self.deployment.host("north")

    def values(self, name: str, query: Asked) -> list[Any]:
        """What a hostile server may put in the place of one field."""
        run, event = self.honest[0].run, self.honest[0].event
        assert event is not None
        terms: dict[str, Any] = {"adjacency": A, "unit": event.unit}
        sampled = ((3.0, 0.1), (30.0, 0.5), (1e9, 0.2), (0.6, 0.2))
        vectors = [None, np.full(3, 1e308), np.full(3, -1e200), np.full(2, 0.1), np.zeros(3)]
        known: dict[str, list[Any]] = {
            "run": [run, f"{run}1", f"{run}2", run[:-3], f"{run}-evaluation-1", "other"],
            "round": [0, 1, 5, query.round + 1, 2**40],
            "event": [
                *(
                    PoissonGaussianEvent(relative_noise=z, sampling_rate=q, **terms)
                    for z, q in sampled
                ),
                GaussianEvent(relative_noise=20.0, **terms),
                PureEvent(epsilon=0.1, **terms),
            ],
            "grid": [FixedPoint(step=2.0**e, bits=b) for e, b in ((-60, 64), (0, 32), (-18, 32))],
            "sampling_rate": [0.1, 0.5, 1.0],
            "party_rate": [0.1, 0.5, 1.0],
            "clip_norm": [None, 1e-300, 0.5, 1e300],
            "cohort": [1, 2],
            "counting": [0.5, 1e6],
            "weights": ["equal", "proportional"],
            "seed": [1, 2],
        }
        return vectors if name in ("theta", "control", "centre", "scale") else known.get(name, [])

    def question(self) -> bytes:
        """An honest question, one that was asked before, or one that is changed."""
        if self.seen and self.any.random() < 0.35:
            return self.any.choice(self.seen)
        query = self.any.choice(self.honest)
        self.rounds[query.run] += self.any.random() < 0.1
        query = replace(query, round=max(0, self.rounds[query.run] - (self.any.random() < 0.2)))
        for _ in range(self.any.choice((0, 0, 1, 1, 2))):
            name = self.any.choice(fields(query)).name
            if values := self.values(name, query):
                try:
                    query = replace(query, **{name: self.any.choice(values)})
                except ValueError:
                    continue
        data = bytearray(codec.to_bytes(query))
        if self.any.random() < 0.05:
            data[self.any.randrange(len(data))] ^= 1 << self.any.randrange(8)
        self.seen = [*self.seen[-40:], bytes(data)]
        return bytes(data)

    def plans(self) -> bytes:
        """The plan that was stated, or another one."""
        if self.plan is None or self.any.random() < 0.1:
            return b""
        other: list[dict[str, Any]] = [
            {"run": "other"},
            {"epsilon": 1e-3},
            {"clip": 0.5},
            {"delta": 1e-7},
        ]
        changes = self.any.choice(other) if self.any.random() < 0.2 else {}
        return replace(self.plan, **changes).to_bytes()

    def step(self) -> None:
        """One message, from the first to the last byte."""
        place: dict[str, Any] = {"run": self.any.choice(SEATS), "party": 0}
        query, chance = b"", self.any.random()
        if chance < 0.12:
            message: Any = Join(**place, round=0, plan=self.plans())
        elif chance < 0.122:
            name = f"{self.honest[0].run}2".encode()
            message = Cancel(**place, round=0, name=name, seats=b"")
        else:
            message, query = Ask(**place, round=self.any.randrange(6)), self.question()
        request = Request(messages=(message,), query=query)
        try:
            reply = Reply.from_bytes(self.host.handle(request.to_bytes()))
        except SecureAggregationError:
            return  # which a worker turns into a failed task
        except Killed:
            self.deaths += 1
            self.host = self.deployment.host("north")
            return
        for answer in reply.messages:
            if isinstance(answer, ClearAnswer):
                self.note(codec.from_bytes(query), answer)

    def note(self, query: Query, answer: ClearAnswer) -> None:
        key = (query.run, query.round)
        self.answers[key].add(answer.vector.tobytes())
        assert len(self.answers[key]) == 1
        assert query.event is not None
        assert self.events.setdefault(key, query.event) == query.event
        with self.deployment.ledger("north") as ledger:
            rows = [row.kind for row in ledger.rows() if (row.run, row.round) == key]
        assert rows == ["reserved", "committed"]

    def require_charged(self) -> None:
        """By an accountant that has no line in common with the ledger's."""
        accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE)
        for event in self.events.values():
            if isinstance(event, GaussianEvent | PoissonGaussianEvent):
                noise, rate = (
                    GaussianDpEvent(event.relative_noise),
                    getattr(event, "sampling_rate", 1),
                )
                accountant.compose(PoissonSampledDpEvent(rate, noise) if rate < 1 else noise)
        with self.deployment.ledger("north") as ledger:
            ledger.verify()
            spent = ledger.spent()
        assert spent.within_budget
        assert accountant.get_epsilon(spent.guarantee.delta) <= spent.guarantee.epsilon + 1e-3


def deadly(monkeypatch: pytest.MonkeyPatch, siege: Siege) -> None:
    """Kill the party, now and then, before or after it writes anything."""

    def maybe(write: Callable[..., Any]) -> Callable[..., Any]:
        def written(*arguments: Any, **more: Any) -> Any:
            if siege.any.random() < 0.02:
                raise Killed
            done = write(*arguments, **more)
            if siege.any.random() < 0.02:
                raise Killed
            return done

        return written

    monkeypatch.setattr(journal, "_write", maybe(journal._write))
    for name in ("declare", "reserve", "commit", "bind_data"):
        monkeypatch.setattr(Ledger, name, maybe(getattr(Ledger, name)))


@pytest.mark.parametrize("kind", [whole_parties, samples])
def test_whatever_is_asked_a_release_has_one_answer_that_was_paid_for(
    kind: Callable[[Path], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o700)
    deployment, honest, plan = kind(tmp_path)
    siege = Siege(deployment, honest, plan, random.Random(3))  # noqa: S311
    with monkeypatch.context() as patch:
        deadly(patch, siege)
        for _ in range(MESSAGES):
            siege.step()
    assert len(siege.answers) > 2
    assert siege.deaths > 2
    siege.require_charged()
