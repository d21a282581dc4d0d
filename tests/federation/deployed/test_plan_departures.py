"""Departures from a stated plan: refused before anything is read or paid, and never mended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fedpriv.federation.deployed.journal import Journal
from fedpriv.federation.party.guard import QueryRefused
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import GaussianEvent
from fedpriv.privacy.ledger import Ledger
from tests.federation.deployed.stated_plans import (
    ask,
    cost,
    deployed,
    event,
    join,
    north,
    query,
    rows,
    stated,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.federation.deployed.deployments import Deployment

A = Adjacency.ADD_REMOVE

# Departures.


OTHER = event(3.0, 0.1)


@pytest.mark.parametrize(
    ("round_", "change", "reason"),
    [
        (0, {"event": event(2.9)}, "another event"),
        (0, {"event": event(30.0)}, "another event"),
        (2, {"event": event(3.0)}, "another event"),
        (0, {"event": OTHER, "sampling_rate": 0.1}, "another event"),
        (
            0,
            {"event": GaussianEvent(relative_noise=30.0, adjacency=A), "sampling_rate": 1.0},
            "ano",
        ),
        (0, {"sampling_rate": 0.1}, "asks for a sample of 0.1"),
        (0, {"clip_norm": 0.5}, "clips to 0.5"),
        (3, {}, "has 3 releases"),
        (99_999, {}, "has 3 releases"),
    ],
)
def test_a_query_that_departs_is_refused_before_anything_is_read_or_paid(
    sampling: Deployment,
    monkeypatch: pytest.MonkeyPatch,
    round_: int,
    change: dict[str, Any],
    reason: str,
) -> None:
    def read(*_args: object) -> None:
        raise AssertionError("a record was read")

    monkeypatch.setattr("fedpriv.data.tables.files.read_table", read)
    assert not join(sampling, stated(sampling)).refusal
    reply = ask(sampling, query(sampling, round_, **change))
    assert reason in reply.refusal
    assert rows(sampling) == []


def test_a_query_of_another_run_does_not_use_the_plan(sampling: Deployment) -> None:
    assert not join(sampling, stated(sampling)).refusal
    other = query(sampling, run=f"{north(sampling).engagement.run}-2")
    assert "another run than the plan" in ask(sampling, other).refusal
    assert rows(sampling) == []


def test_releases_may_be_left_out_and_never_come_back(sampling: Deployment) -> None:
    assert not join(sampling, stated(sampling)).refusal
    assert not ask(sampling, query(sampling, 1)).refusal
    assert "second answer" in ask(sampling, query(sampling, 0)).refusal
    assert not ask(sampling, query(sampling, 2)).refusal
    assert rows(sampling) == ["declared", "reserved", "reserved"]


def test_a_sampled_query_is_no_release_of_a_plan_of_full_batches(tmp_path: Path) -> None:
    deployment = deployed(tmp_path, clear=True, composition="rdp")
    full = GaussianEvent(relative_noise=30.0, adjacency=A)
    plan = stated(deployment, steps=((full, 3),))
    assert not join(deployment, plan).refusal
    assert "another event" in ask(deployment, query(deployment)).refusal
    assert rows(deployment) == []


def test_without_a_plan_a_sampled_release_is_charged_alone(tmp_path: Path) -> None:
    """Noise that is chosen on the way has no plan: its divergence is what a filter adds up."""
    deployment = deployed(tmp_path, clear=True, composition="rdp")
    assert not join(deployment, b"").refusal
    assert not ask(deployment, query(deployment)).refusal
    assert rows(deployment) == ["reserved"]


# Where journal and ledger meet.


@pytest.mark.parametrize("moment", ["declare", "reserve", "commit"])
@pytest.mark.parametrize("after", [False, True])
def test_a_party_that_fails_at_a_write_pays_once_and_draws_once(
    sampling: Deployment, monkeypatch: pytest.MonkeyPatch, moment: str, after: bool
) -> None:
    """The same query again gets the answer of the same draw, and the plan is charged once."""
    written = getattr(Ledger, moment)

    def fail(*arguments: Any, **more: Any) -> None:
        if after:
            written(*arguments, **more)
        raise OSError("the disk is gone")

    plan, journal = stated(sampling), Journal(sampling.home("north") / "state")
    with journal.held():
        party = north(sampling).party.under(plan)
        monkeypatch.setattr(Ledger, moment, fail)
        with pytest.raises(QueryRefused, match="does not take the answer: OSError"):
            party.answer(query(sampling))
        monkeypatch.undo()
        given = journal.given(plan.run)
        assert given is not None
        secret = given.secret
        first = north(sampling).party.under(plan).answer(query(sampling))
        again = north(sampling).party.under(plan).answer(query(sampling))
    assert (first == again).all()
    if moment != "commit":  # the sample of the draw that was begun, and no other
        assert given.pending
        expected = north(sampling).party._party(north(sampling).party._records, secret)
        assert (expected.compute(query(sampling)) == first).all()
    assert rows(sampling) == ["declared", "reserved"]
    with sampling.ledger("north") as ledger:
        assert ledger.spent().guarantee.epsilon == cost()
