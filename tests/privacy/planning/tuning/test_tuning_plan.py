"""Plans of a paid tuning: the largest trial that fits, one event, one charge, and refusals."""

from __future__ import annotations

import json
from dataclasses import replace
from math import hypot, sqrt
from typing import TYPE_CHECKING, Any

import pytest

from fedpriv.privacy.accountants import ACCOUNTANTS, UnsupportedEvent, account, account_all
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget, BudgetExceeded
from fedpriv.privacy.events import GaussianEvent, TuningEvent
from fedpriv.privacy.ledger import Kind, Ledger
from fedpriv.privacy.mechanisms import GaussianMechanism
from fedpriv.privacy.planning.gradient import gradient_plan, laplace_gradient_plan
from fedpriv.privacy.planning.tuning.trials import (
    base_mu,
    calibrate_trials,
    score_noise,
    trial_budget,
    tuning_releases,
)
from fedpriv.privacy.planning.tuning.tuning import BestOfTrials, TuningPlan, trial_mu
from fedpriv.privacy.trial_count import TrialCount
from fedpriv.privacy.tuning_profile import tuning_epsilon
from fedpriv.privacy.unit import Unit
from fedpriv.privacy.written_events import event_from_dict

if TYPE_CHECKING:
    from pathlib import Path

    from fedpriv.privacy.planning.fixed_plan import FixedPlan

ONE, JOIN = Adjacency.REPLACE_ONE, Adjacency.ADD_REMOVE
BUDGET = Budget(epsilon=1.0, delta=1e-6)
LAW = TrialCount.with_mean(10.0)
FACTS: dict[str, Any] = {"sizes": (50, 40), "dimension": 3, "step": 2.0**-20, "adjacency": ONE}
EVENT = TuningEvent(base_mu=0.1, eta=0.0, gamma=LAW.gamma, adjacency=ONE)


def trial(mu: float, *, rounds: int = 4, clip: float = 1.0, share: float = 0.1) -> FixedPlan:
    budget = trial_budget(mu, score_share=share, delta=BUDGET.delta)
    return gradient_plan(
        budget=budget, rounds=rounds, sensitivity=2 * clip, clip_norm=clip, **FACTS
    )


def tuning(mu: float, *trials: FixedPlan, **changes: Any) -> TuningPlan:
    noise = score_noise(mu, score_share=0.1, sensitivity=2.0, adjacency=ONE, unit=Unit.RECORD)
    best = BestOfTrials(base_mu=mu, law=LAW, score=noise, adjacency=ONE)
    values: dict[str, Any] = {
        "strategy": "tuned",
        "query": "sums",
        "released": "the best",
        "budget": BUDGET,
        "mechanisms": (best,),
        "trials": trials,
        "parties": 2,
        "records": 90,
        "smallest_party": 40,
        "dimension": 3,
        "step": 2.0**-10,
    }
    return TuningPlan(**{**values, **changes})


@pytest.mark.parametrize("accountant", ["auto", "basic", "rdp"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_the_largest_trial_that_fits_is_found_and_proved(accountant: str, epsilon: float) -> None:
    budget = Budget(epsilon=epsilon, delta=1e-6)
    mu = base_mu(budget=budget, law=LAW, adjacency=ONE, accountant=accountant)

    def spent(base: float) -> float:
        return (
            account([(replace(EVENT, base_mu=base), 1)], delta=1e-6, accountant=accountant).epsilon
            or 0.0
        )

    assert spent(mu) <= epsilon < spent(mu * (1 + 1e-6))


def test_the_profile_rule_is_what_auto_takes() -> None:
    reports = {report.accountant: report for report in account_all([(EVENT, 1)], delta=1e-6)}
    priced = {name for name, report in reports.items() if report.epsilon is not None}
    assert priced == {"basic", "advanced", "rdp"}
    chosen = account([(EVENT, 1)], delta=1e-6)
    assert chosen.epsilon == tuning_epsilon(mu=0.1, law=LAW, delta=1e-6)
    assert chosen.epsilon == min(r.epsilon for r in reports.values() if r.epsilon is not None)
    for name in ACCOUNTANTS.keys() - priced:
        assert "cannot cost tuning releases" in str(reports[name].reason)


def test_a_tuning_beside_other_releases_takes_the_smaller_bound() -> None:
    """And adds up by either; n of them cost what n single ones do."""
    other = GaussianEvent(relative_noise=20.0, adjacency=ONE)
    releases = [(EVENT, 2), (other, 3)]
    bounds = [account(releases, delta=1e-6, accountant=name).epsilon for name in ("basic", "rdp")]
    assert account(releases, delta=1e-6).epsilon == min(b for b in bounds if b is not None)
    for name in ("basic", "rdp"):
        fresh = ACCOUNTANTS[name](adjacency=ONE)
        twice = fresh.compose(EVENT).compose(EVENT).epsilon(1e-6)
        assert fresh.compose(EVENT, 2).epsilon(1e-6) == pytest.approx(twice, rel=1e-12)


def test_the_event_is_inert_and_reads_back() -> None:
    assert event_from_dict(json.loads(json.dumps(EVENT.to_dict()))) == EVENT
    assert EVENT.to_dict()["rule"] == "truncated-negative-binomial"
    for name, bad in (("base_mu", 0.0), ("gamma", 1.0), ("eta", -1.0), ("rule", "fixed")):
        with pytest.raises(ValueError, match=f"{name} must"):
            event_from_dict({**EVENT.to_dict(), name: bad})


@pytest.mark.parametrize("adjacency", [ONE, JOIN])
def test_noise_of_a_trial_of_equal_releases(adjacency: Adjacency) -> None:
    found = calibrate_trials(budget=BUDGET, law=LAW, rounds=101, adjacency=adjacency)
    mu = base_mu(budget=BUDGET, law=LAW, adjacency=adjacency)
    assert found.noise_multiplier == pytest.approx(adjacency.sum_sensitivity * sqrt(101) / mu)
    (event, count), *_ = tuning_releases(found.releases, LAW)
    assert (event.kind, count) == ("tuning", 1)
    assert found.epsilon <= 1.0


def test_a_plan_is_one_event_that_covers_every_trial_with_its_score() -> None:
    mu = base_mu(budget=BUDGET, law=LAW, adjacency=ONE)
    trials = (trial(mu), trial(mu, rounds=9, clip=0.3))
    plan = tuning(mu, *trials)
    assert plan.releases == [(replace(EVENT, base_mu=mu), 1)]
    assert plan.epsilon <= 1.0
    assert plan.gdp_mu is plan.zcdp_rho is None
    for each in trials:
        whole = hypot(trial_mu(each), plan.best.score_mu)
        assert mu * (1 - 1e-8) < whole <= mu  # nothing is wasted, and nothing is over
    assert plan.best.score_mu**2 == pytest.approx(0.1 * mu**2)
    written = json.loads(json.dumps(plan.to_dict()))
    assert [each["rounds"] for each in written["trials"]] == [4, 9]
    assert written["mechanisms"][0]["law"] == {"eta": 0.0, "gamma": LAW.gamma}
    assert "profile rule" in plan.method


def test_a_trial_that_costs_more_or_is_not_gaussian_is_refused() -> None:
    mu = base_mu(budget=BUDGET, law=LAW, adjacency=ONE)
    with pytest.raises(ValueError, match=r"trials\[1\] must cost no more"):
        tuning(mu, trial(mu), trial(1.001 * mu))
    with pytest.raises(ValueError, match="must cost no more"):  # all of μ, and a score beside it
        tuning(mu, trial(mu, share=1e-6))
    pure = laplace_gradient_plan(
        budget=Budget(epsilon=0.1, delta=0.0),
        rounds=2,
        sensitivity=2.0,
        clip_norm=1.0,
        law="l2-laplace",
        **FACTS,
    )
    with pytest.raises(ValueError, match="must be planned with Gaussian noise on full batches"):
        tuning(mu, pure)
    with pytest.raises(ValueError, match="must have the records of all others"):
        tuning(mu, trial(mu), records=91)
    with pytest.raises(ValueError, match="one release and at least one setting"):
        tuning(mu)
    with pytest.raises(BudgetExceeded):
        tuning(1.01 * mu, trial(mu))
    loud = GaussianMechanism(sensitivity=1.0, stddev=1e3, adjacency=ONE)
    with pytest.raises(ValueError, match="BestOfTrials"):
        tuning(mu, trial(mu), mechanisms=(loud,))


def test_a_budget_without_delta_is_refused_with_a_remedy() -> None:
    with pytest.raises(ValueError, match="delta must be positive"):
        base_mu(budget=Budget(epsilon=1.0, delta=0.0), law=LAW, adjacency=ONE)
    with pytest.raises(ValueError, match="accountant must be one of auto, basic, rdp"):
        base_mu(budget=BUDGET, law=LAW, adjacency=ONE, accountant="pld")


@pytest.mark.parametrize(("composition", "share"), [("basic", 1.0), ("rdp", 0.8), ("auto", 1.0)])
def test_a_ledger_charges_a_tuning_once(composition: str, share: float, tmp_path: Path) -> None:
    mu = base_mu(
        budget=Budget(epsilon=share, delta=1e-6),
        law=LAW,
        adjacency=ONE,
        accountant="rdp" if composition == "rdp" else "auto",
    )
    event, path = replace(EVENT, base_mu=mu), tmp_path / "own.ledger"
    with Ledger.create(
        path, data_name="x", budget=BUDGET, adjacency=ONE, composition=composition
    ) as ledger:
        ledger.declare("tuned", [(event, 1)], delta=1e-6)
        spent = ledger.spent().guarantee.epsilon
        reservation = ledger.reserve(event, run="tuned", round=0)
        ledger.declare("tuned", [(event, 1)], delta=1e-6)  # taken up again
        ledger.commit(ledger.reserve(event, run="tuned", round=0), b"best")
        assert ledger.spent().guarantee.epsilon == spent
        assert 0.5 < spent <= 1.0
        assert reservation.release is None
        charged = [row for row in ledger.rows() if row.amount]
        assert [row.kind for row in charged] == [Kind.DECLARED]
        assert ledger.verify().rows == 5


def test_a_ledger_without_a_price_refuses_before_anything_is_spent(tmp_path: Path) -> None:
    with Ledger.create(
        tmp_path / "own.ledger", data_name="x", budget=BUDGET, adjacency=ONE, composition="gdp"
    ) as ledger:
        rows = ledger.length
        with pytest.raises(UnsupportedEvent, match="gdp composition cannot price tuning releases"):
            ledger.require_room("tuned", [(EVENT, 1)], delta=1e-6)
        with pytest.raises(UnsupportedEvent, match="Nothing was charged"):
            ledger.declare("tuned", [(EVENT, 1)], delta=1e-6)
        assert ledger.length == rows
