"""Hostile requests to a deployed party: two answers for one payment, extremes, and the disk."""

from __future__ import annotations

import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv.federation.party.guard import QueryRefused
from fedpriv.federation.party.party import Party
from fedpriv.federation.protocol.wire import Ask, Join
from fedpriv.federation.queries import encoding as codec
from fedpriv.federation.queries.kinds import GradientQuery
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import GaussianEvent
from fedpriv.secagg import FixedPoint
from fedpriv.secagg.errors import SecureAggregationError
from tests.federation.deployed.fresh_parties import never
from tests.federation.deployed.villains import RUN, Villain, clear_of_three

if TYPE_CHECKING:
    from pathlib import Path

    from fedpriv.federation.queries.kinds import Query
    from fedpriv.secagg.numbers.fixed_point import Ring

pytestmark = pytest.mark.usefixtures("any_kind")


# Two answers for one payment.


def gradient(villain: Villain, round_: int = 0, **changes: Any) -> GradientQuery:
    query = GradientQuery(
        run=villain.host(0).engagement.run,
        round=round_,
        grid=FixedPoint(step=2.0**-20, bits=64),
        event=GaussianEvent(relative_noise=10.0, adjacency=Adjacency.REPLACE_ONE),
        theta=np.full(3, 0.1),
        clip_norm=1.0,
    )
    return replace(query, **changes)


def answer(villain: Villain, query: Query) -> Ring:
    """Of a fresh process."""
    with villain.journal(0).held():
        return villain.host(0).party.answer(query)


def test_a_release_that_was_begun_is_answered_to_the_query_that_began_it_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A party that failed after it paid answers that query when it is asked again, and no other."""
    villain = Villain(clear_of_three(tmp_path))
    with monkeypatch.context() as patched:
        patched.setattr("fedpriv.federation.party.party.Party.compute", never)
        with pytest.raises(AssertionError):
            answer(villain, gradient(villain))
    with pytest.raises(QueryRefused, match="release 0 of this run was begun already"):
        answer(villain, gradient(villain, theta=np.ones(3)))
    answer(villain, gradient(villain))
    with pytest.raises(QueryRefused, match="answered already"):
        answer(villain, gradient(villain, theta=np.ones(3)))
    assert len(villain.deployment.reserved("north")) == 1


def test_two_queries_for_one_release_at_once_get_one_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    villain = Villain(clear_of_three(tmp_path))
    compute = Party.compute

    def slowly(party: Party, query: Query) -> Ring:
        time.sleep(0.2)  # long enough for all to have found the reservation
        return compute(party, query)

    monkeypatch.setattr(Party, "compute", slowly)
    queries = [gradient(villain, theta=np.full(3, 0.1 * n)) for n in range(4)]

    def ask(query: GradientQuery) -> bool:
        try:
            answer(villain, query)
        except QueryRefused:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(ask, queries)) == 1
    assert len(villain.deployment.reserved("north")) == 1


def test_an_answer_that_was_cut_short_on_the_disk_is_not_computed_again(tmp_path: Path) -> None:
    """Whatever is left of it: the party would rather say nothing than draw noise twice."""
    villain = Villain(clear_of_three(tmp_path))
    answer(villain, gradient(villain))
    (path,) = (tmp_path / "parties" / "north" / "state" / "answers").iterdir()
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises((QueryRefused, SecureAggregationError)):
            answer(villain, gradient(villain, theta=np.ones(3)))


def test_a_state_directory_that_was_put_back_gets_no_second_answer(tmp_path: Path) -> None:
    """The ledger is newer than the journal: what it committed is not answered again."""
    villain = Villain(clear_of_three(tmp_path))
    answers = tmp_path / "parties" / "north" / "state" / "answers"
    answer(villain, gradient(villain, 0))
    (path,) = answers.iterdir()
    earlier = path.read_bytes()
    answer(villain, gradient(villain, 1))
    path.write_bytes(earlier)
    for asked in (gradient(villain, 1), gradient(villain, 1, theta=np.ones(3))):
        with pytest.raises(QueryRefused, match="not in the state directory any more"):
            answer(villain, asked)


# What a query may say.


def spelled(query: GradientQuery, **changes: Any) -> bytes:
    """The query with values in its header that no honest server could write there."""
    data = codec.to_bytes(query)
    length = int.from_bytes(data[10:14], "big")
    values = {**json.loads(data[14 : 14 + length]), **changes}
    header = json.dumps(values, sort_keys=True, separators=(",", ":")).encode()
    return data[:10] + len(header).to_bytes(4, "big") + header + data[14 + length :]


GAUSSIAN = {"adjacency": "replace-one", "kind": "gaussian"}
EXTREMES: tuple[dict[str, Any], ...] = (
    {"round": 2**63},
    {"round": 2**64},
    {"round": -1},
    {"round": True},
    {"round": 0.0},
    {"round": None},
    {"clip_norm": float("nan")},
    {"clip_norm": float("inf")},
    {"clip_norm": -0.0},
    {"clip_norm": 10**400},
    {"clip_norm": "1.0"},
    {"grid": {"step": 5e-324, "bits": 64}},
    {"grid": {"step": 2.0**-20, "bits": 64.0}},
    {"sampling_rate": -0.0},
    {"sampling_rate": 1 + 2.0**-52},
    {"weights": "equals"},
    {"event": {**GAUSSIAN, "relative_noise": float("nan")}},
    {"event": {**GAUSSIAN, "relative_noise": 0.0}},
    {"event": {**GAUSSIAN, "relative_noise": -1.0}},
    {"event": {**GAUSSIAN, "relative_noise": 10.0, "sampling_rate": 0.1}},
    {"theta": [0]},
    {"theta": [3, 1]},
    {"theta": [-3]},
    {"theta": [2**62]},
    {"theta": None},
    {"kind": "erm"},
    {"kind": ["gradient"]},
    {"more": 1},
)


@pytest.mark.parametrize("changes", EXTREMES, ids=str)
def test_extreme_values_are_refused_and_nothing_is_paid(
    tmp_path: Path, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    villain = Villain(clear_of_three(tmp_path))
    monkeypatch.setattr("fedpriv.data.tables.files.read_table", never)
    asked = spelled(gradient(villain), **changes)
    ask = Ask(run=RUN, round=0, party=0)
    assert len(villain.ask(0, Join(run=RUN, round=0, party=0), ask, query=asked)) == 1
    assert "QueryRefused" in villain.refusals[-1]
    assert not (tmp_path / "parties" / "north" / "north.ledger").exists() or not (
        villain.deployment.reserved("north")
    )


@pytest.mark.parametrize("name", ["\ud800", "\x00", "\n", "x" * 200, "\u202e"])
def test_a_run_has_a_name_that_can_be_stored_and_shown(tmp_path: Path, name: str) -> None:
    """A name of megabytes went into the ledger with every release."""
    villain = Villain(clear_of_three(tmp_path))
    run = f"{villain.host(0).engagement.run}-{name}"
    ask = Ask(run=RUN, round=0, party=0)
    asked = spelled(gradient(villain), run=run)
    assert len(villain.ask(0, Join(run=RUN, round=0, party=0), ask, query=asked)) == 1
    assert "malformed" in villain.refusals[-1]
    assert not list(tmp_path.rglob("*.ledger"))


# What is left on the disk.


def test_a_name_with_a_path_in_it_leaves_the_state_directory_as_it_is(tmp_path: Path) -> None:
    villain = Villain(clear_of_three(tmp_path))
    before = {path for path in tmp_path.rglob("*") if "state" not in path.parts}
    run = f"{villain.host(0).engagement.run}-/../../../../escape"
    answer(villain, gradient(villain, run=run))
    made = {path for path in tmp_path.rglob("*") if "state" not in path.parts} - before
    assert {path.name for path in made} <= {"north.ledger", "north.ledger-wal", "north.ledger-shm"}
    (stored,) = (tmp_path / "parties" / "north" / "state" / "answers").iterdir()
    assert re.fullmatch("[0-9a-f]{64}", stored.name)


def test_answers_of_old_runs_are_forgotten_and_never_given_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that makes up runs does not fill the disk, and gets nothing twice."""
    monkeypatch.setattr("fedpriv.federation.deployed.journal._ANSWERS", 3)
    villain = Villain(clear_of_three(tmp_path))
    name = villain.host(0).engagement.run
    event = GaussianEvent(relative_noise=100.0, adjacency=Adjacency.REPLACE_ONE)
    runs = [gradient(villain, run=f"{name}-{n}", event=event) for n in range(5)]
    for query in runs:
        answer(villain, query)
    assert len(list((tmp_path / "parties" / "north" / "state" / "answers").iterdir())) == 3
    with pytest.raises(QueryRefused, match="not in the state directory any more"):
        answer(villain, replace(runs[0], theta=np.ones(3)))
    answer(villain, runs[4])
    assert len(villain.deployment.reserved("north")) == 5
