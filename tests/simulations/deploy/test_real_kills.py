"""One run through many deaths: SIGKILL at every step, of every process, over the real wire.

Real SuperLink, SuperNodes and workers on the loopback, with TLS and node keys. Answers are masked
in active mode, and the parties bring the noise: a second answer would be a second draw.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv.data import Dataset, Records, bound, partition, read_schema, read_table
from fedpriv.federation.deployed.journal import Journal
from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.privacy.ledger import Ledger
from fedpriv.simulations.deploy.members.membership import wait_until_up
from fedpriv.simulations.deploy.run.client import open_signed
from fedpriv.simulations.deploy.run.lock import server_of
from fedpriv.simulations.deploy.run.public_facts import bounds_of, prepare_deployed
from fedpriv.simulations.deploy.run.submission import submit
from fedpriv.simulations.run.prepare import build_strategy
from fedpriv.simulations.run.streams import streams
from fedpriv.simulations.server_app import FAILURE
from tests.simulations.deploy import fates
from tests.simulations.deploy.standing import (
    BOUND,
    FOUR,
    HELD,
    model,
    standing,
    superlink,
    wait_until,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fedpriv.simulations.deploy.folders import PartyFolder
    from fedpriv.simulations.experiment.file import Experiment
    from tests.simulations.deploy.standing import Standing

EXCHANGES = ("join", "advertise", "share", "answer", "confirm", "reveal")  # of a masked sum
# Who loses its reply has dropped out of the round: with two of them a sum over four fails. The
# fourth party, east, is never killed.
FIRST_LIFE = {
    "north": (
        "join journalled worker",
        "advertise journalled supernode",
        "share unread worker",
        "answer journalled worker",
        "confirm journalled supernode",
    ),
    "south": (
        "join journalled supernode",
        "advertise unread worker",
        "share journalled worker",
        "answer journalled supernode",
        "confirm unread worker",
        "reveal journalled supernode",
    ),
    "west": (
        "join unread worker",
        "advertise journalled worker",
        "share journalled supernode",
        "answer unread worker",
        "reveal journalled worker",
    ),
}
# At each step but "join", before which nothing is asked, and "confirm", where one party drops out.
FAILED_SUMS = 4
SECOND_LIFE = {
    "north": ("join unread supernode", "answer unread supernode", "confirm journalled worker"),
    "south": ("advertise unread supernode", "confirm unread supernode", "reveal unread worker"),
    "west": ("share unread supernode", "reveal unread supernode"),
}
EVERYBODY, FEWER = (0, 1, 2, 3), (1, 2, 3)


@dataclass
class Story:
    """What happened to the run, and what is left."""

    live: Standing
    experiment: Experiment
    directory: Path
    config: str
    failure: str = ""
    deaths: list[str] = field(default_factory=list)
    resent: list[bool] = field(default_factory=list)
    answers: dict[tuple[str, int], set[bytes]] = field(default_factory=lambda: defaultdict(set))
    paid: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    released: list[int] = field(default_factory=list)
    result: dict[str, Any] | None = None

    def inspect(self, folder: PartyFolder) -> None:
        """A party is down: what is in its journal, and what it would say to the same message."""
        death = fates.deaths(folder.root)[-1]
        self.deaths.append(death["order"])
        if " journalled " in death["order"]:
            flower, node = fates.node(folder.root)
            host = open_signed(str(folder.policy), self.config, flower=flower, node=node)
            request, reply = ((folder.root / name).read_bytes() for name in ("request", "reply"))
            self.resent.append(host.handle(request) == reply)
        for run in {run for run, _ in self.live.reserved(folder)}:
            given = Journal(folder.root / "state").given(run)
            if given is not None:
                self.answers[folder.root.name, given.release].add(given.digest)

    def watch(self) -> bool:
        return self.live.watch(meanwhile=self.inspect)

    def server_died(self) -> bool:
        self.watch()
        return bool(fates.deaths(self.live.server.root))


@pytest.fixture(scope="module")
def story() -> Iterator[Story]:
    """Three lives of one run.

    In the first, parties are killed at every step, so that every sum fails. In the second they are
    killed again, and the run goes on; then the ServerApp is, with its first release in the
    ledger. In the third a party drops out for good, and the SuperLink is killed.
    """
    with standing(min_noise=0.001) as live:
        experiment = live.written(
            "clinics",
            strategy={"rounds": 2},
            privacy={"noise_at": "parties"},
            run={"dropout": 0.25},
        )
        for name, orders in FIRST_LIFE.items():
            live.orders(live.party(name), *orders)
        fates.patience(live.server.root, attempts=FAILED_SUMS)
        submitted = live.begin(experiment)
        config = (submitted.directory / "config.toml").read_text()
        story = Story(live, experiment, submitted.directory, config)
        assert live.end(story.directory, meanwhile=story.watch) is None
        wait_until(story.watch, what="the last restart of the first life")
        story.failure = (story.directory / FAILURE).read_text()
        story.paid = {folder.root.name: live.reserved(folder) for folder in live.parties}
        _second_life(story)
        _third_life(story)
        yield story


def _second_life(story: Story) -> None:
    live = story.live
    fates.patience(live.server.root, attempts=3)  # a party may be slow to come back
    for name, orders in SECOND_LIFE.items():
        live.orders(live.party(name), *orders)
    fates.give(live.server.root, "release committed worker")
    submit(story.directory, live.server)
    wait_until(story.server_died, what="the second life")
    wait_until(story.watch, what="the last restart of the second life")
    wait_until(lambda: server_of(story.directory) is None, what="the end of its ServerApp")
    story.released = [round_ for round_, kind in server_rows(live) if kind == "committed"]
    live.start(live.server, "worker")


def _third_life(story: Story) -> None:
    """A SuperLink may die with a message that it has noted as delivered: it is asked for again."""
    live = story.live
    fates.patience(live.server.root, attempts=3, seconds=20.0)
    live.orders(live.party("north"), "answer journalled worker", gone=True)
    fates.give(live.server.root, "confirm asked superlink")
    submit(story.directory, live.server)
    wait_until(story.server_died, what="the third life")
    live.start(live.server, "superlink")
    assert wait_until_up(live.server, superlink(live.server), seconds=BOUND)
    story.result = live.end(story.directory)


def server_rows(live: Standing) -> list[tuple[int, str]]:
    with Ledger.open(live.server.root / "clinics.ledger", read_only=True) as ledger:
        ledger.verify()
        return [(int(row.round or 0), str(row.kind)) for row in ledger.rows() if row.run]


def expected(story: Story, members: tuple[tuple[int, ...], ...]) -> Any:
    """The same run in one computation, over the parties that were in each sum."""
    experiment = story.experiment
    prepared = prepare_deployed(experiment, sizes=HELD)
    strategy = build_strategy(prepared, run="vectorized")
    for numbers in members:
        query = strategy.ask()
        assert query is not None
        some = prepare_deployed(experiment, sizes=tuple(HELD[j] for j in numbers))
        federation = VectorizedFederation(
            partition(bound(pooled(story.live, numbers), bounds_of(experiment)), kind="natural"),
            task=some.task,
            sampling=streams(prepared, "sampling", run="vectorized"),
        )
        strategy.learn(federation.sum(query))
    return strategy.theta


def pooled(live: Standing, numbers: tuple[int, ...]) -> Dataset:
    """The records of some of the parties."""
    schema = read_schema(live.server.schema)
    tables = [read_table(live.parties[j].root / "records.csv", schema)[0] for j in numbers]
    facts = tables[0]
    return Dataset(
        name=facts.name,
        task=facts.task,
        train=Records(
            X=np.concatenate([table.train.X for table in tables]),
            y=np.concatenate([table.train.y for table in tables]),
            party=np.repeat(np.arange(len(tables)), [len(table.train) for table in tables]),
        ),
        test=facts.test,
        feature_names=facts.feature_names,
        max_norm=facts.max_norm,
        party_names=tuple(FOUR[j] for j in numbers),
        classes=facts.classes,
    )


def test_every_process_of_a_party_was_killed_at_every_step(story: Story) -> None:
    moments = [f"{step} {point}" for step in EXCHANGES for point in ("unread", "journalled")]
    wanted = [f"{moment} {victim}" for moment in moments for victim in ("worker", "supernode")]
    assert sorted(story.deaths) == sorted(wanted)


def test_a_party_that_was_killed_with_its_reply_gives_the_same_bytes_again(story: Story) -> None:
    assert len(story.resent) == 2 * len(EXCHANGES)
    assert all(story.resent)


def test_a_release_that_is_asked_for_again_and_again_gets_one_answer_of_a_party(
    story: Story,
) -> None:
    assert {key for key, _ in story.answers} == FIRST_LIFE.keys()
    assert {len(digests) for digests in story.answers.values()} == {1}


def test_a_run_that_has_too_few_parties_left_stops_and_says_so(story: Story) -> None:
    assert "no sum for release 0" in story.failure
    assert "Nothing was revealed" in story.failure
    # Every party answered, in vain, and paid for one release.
    assert {name: len(rows) for name, rows in story.paid.items()} == dict.fromkeys(FOUR, 1)


def test_a_server_that_was_killed_after_it_paid_draws_no_noise_again(story: Story) -> None:
    assert story.released == [0]
    rows = Counter(server_rows(story.live))
    assert {row: count for row, count in rows.items() if row[1] in ("reserved", "committed")} == {
        (round_, kind): 1 for round_ in (0, 1) for kind in ("reserved", "committed")
    }


def test_no_party_pays_twice_for_a_round(story: Story) -> None:
    for folder in story.live.parties:
        rows = story.live.reserved(folder)
        assert len({run for run, _ in rows}) == 1
        assert [round_ for _, round_ in rows] == [0, 1]


def test_the_model_is_that_of_the_ledger_and_of_the_parties_that_were_there(story: Story) -> None:
    """Two models with independent noise of a known scale.

    Each coordinate of the difference is Gaussian with a standard deviation below 3.2 times that of
    one step's noise: 20 of these are exceeded with probability below 1e-9.
    """
    assert story.result is not None, (story.directory / FAILURE).read_text()
    theta = model(story.directory)
    with Ledger.open(story.live.server.root / "clinics.ledger", read_only=True) as ledger:
        prepared = prepare_deployed(story.experiment, sizes=HELD)
        replay = build_strategy(prepared, run=story.result["run"], release=True, ledger=ledger)
        assert replay.ask() is None
    np.testing.assert_array_equal(replay.theta, theta)
    tolerance = 20 * story.result["noise_stddev"]
    wanted = expected(story, (EVERYBODY, FEWER))
    np.testing.assert_allclose(theta, wanted, rtol=0, atol=tolerance)
    assert np.abs(expected(story, (EVERYBODY, EVERYBODY)) - wanted).max() > 2 * tolerance
