"""A plan that grows: it never admits more than its budget, and states its budget, not its luck."""

from __future__ import annotations

import json
from dataclasses import replace
from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.privacy.accountants import account
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget, BudgetExceeded
from fedpriv.privacy.events import GaussianEvent
from fedpriv.privacy.mechanisms import GaussianMechanism
from fedpriv.privacy.mechanisms.selection import ReportNoisyMax
from fedpriv.privacy.planning.adaptive_plan import AdaptivePlan, Release
from fedpriv.privacy.planning.filters import GdpFilter, PrivacyFilter, RdpFilter
from fedpriv.privacy.statement import RunFacts, TrustModel, make_statement, to_text

BUDGET = Budget(epsilon=1.0, delta=1e-6)
ADJACENCY = Adjacency.ADD_REMOVE


def gaussian(relative: float, sensitivity: float = 2.0) -> GaussianMechanism:
    return GaussianMechanism(
        sensitivity=sensitivity, stddev=relative * sensitivity, adjacency=ADJACENCY
    )


def plan(fresh: PrivacyFilter | None = None) -> AdaptivePlan:
    return AdaptivePlan(
        strategy="made",
        query="a sum",
        released="noisy sums",
        filter=fresh or GdpFilter(budget=BUDGET, adjacency=ADJACENCY),
        parties=2,
        records=100,
        smallest_party=10,
        dimension=3,
        step=2.0**-20,
    )


@given(noises=st.lists(st.floats(0.5, 200), max_size=40))
def test_whatever_is_proposed_what_is_admitted_fits_the_budget(noises: list[float]) -> None:
    grown = plan()
    for noise in noises:
        try:
            grown = grown.admit(gaussian(noise))
        except BudgetExceeded:
            assert not grown.affords(gaussian(noise))
    if grown.made:
        report = account(grown.releases, delta=BUDGET.delta, accountant="gdp")
        assert report.epsilon is not None
        assert report.epsilon <= BUDGET.epsilon * (1 + 1e-9)


def test_the_last_affordable_release_is_not_lost_to_rounding() -> None:
    """Seven equal shares of a budget are seven releases, although the sum of shares is not it."""
    share = sqrt(7) / sqrt(plan().filter.limit)
    grown = plan()
    for _ in range(7):
        grown = grown.admit(gaussian(share))
    assert not grown.affords(gaussian(1e4))


def test_a_plan_promises_its_budget_whatever_was_spent() -> None:
    grown = plan().admit(gaussian(50.0))
    assert grown.epsilon == BUDGET.epsilon
    assert 0 < grown.filter.epsilon < BUDGET.epsilon / 2


def test_affording_several_means_all_of_them_together() -> None:
    half = gaussian(sqrt(2) / sqrt(plan().filter.limit))
    assert plan().affords(half, half)
    assert not plan().affords(half, half, gaussian(1e3))
    assert not plan().made


@pytest.mark.parametrize(
    "fresh",
    [
        GdpFilter(budget=BUDGET, adjacency=ADJACENCY),
        RdpFilter.for_releases(
            budget=BUDGET, event=GaussianEvent(relative_noise=20.0, adjacency=ADJACENCY)
        ),
    ],
    ids=["gdp", "rdp"],
)
def test_the_history_of_a_plan_replays_to_the_same_plan(fresh: PrivacyFilter) -> None:
    releases: list[tuple[str, Release]] = [("norm", gaussian(20.0)), ("", gaussian(15.0, 0.5))]
    if isinstance(fresh, RdpFilter):
        chosen = ReportNoisyMax(epsilon=0.05, sensitivity=1.0, adjacency=ADJACENCY)
        releases.append(("choice", chosen))
    grown = plan(fresh)
    for part, release in releases:
        grown = grown.admit(release, part=part)
    assert plan(fresh).replayed(json.loads(json.dumps(grown.history()))) == grown
    assert grown.part() == (releases[1][1],)
    assert grown.rounds == len(releases)


def test_a_plan_without_releases_needs_a_fresh_filter() -> None:
    used = plan().filter.admit(gaussian(20.0).event())
    with pytest.raises(ValueError, match="filter must be fresh"):
        replace(plan(), filter=used)


def test_a_release_under_another_adjacency_is_refused() -> None:
    other = replace(gaussian(20.0), adjacency=Adjacency.REPLACE_ONE)
    with pytest.raises(ValueError, match="adjacency"):
        plan().admit(other)


def test_the_statement_names_the_filter_its_budget_and_every_part() -> None:
    grown = plan().admit(gaussian(40.0), part="norm").admit(gaussian(30.0)).admit(gaussian(60.0))
    statement = make_statement(
        grown,
        facts=RunFacts(
            run="r", data="made", simulated=True, randomness="seeded", sampler="full batch"
        ),
        trust=TrustModel(secure_aggregation="ideal"),
    )
    text = " ".join(to_text(statement).split())
    assert "(epsilon, delta) = (1, 1e-06)" in text
    assert "accountant: gdp-filter (GDP filter" in text
    assert "chosen on the way: norm 80, main 60 to 120" in text
    assert "exactly mu-GDP" not in text
    assert statement.gdp_mu == pytest.approx(sqrt(grown.filter.limit))
    values = json.loads(json.dumps(statement.to_dict(), allow_nan=False))
    assert values["plan"]["releases"] == {"norm": 1, "main": 2}


def test_a_statement_of_a_run_that_released_nothing_can_be_written() -> None:
    statement = make_statement(
        plan(),
        facts=RunFacts(
            run="r", data="made", simulated=True, randomness="seeded", sampler="full batch"
        ),
        trust=TrustModel(secure_aggregation="ideal"),
    )
    assert "nothing was released" in to_text(statement)
