"""What a ledger charges and refuses: releases, declared runs, and simulations, which are free."""

from pathlib import Path

import pytest

from fedpriv.privacy.accountants import GdpAccountant, UnsupportedEvent, account
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget, BudgetExceeded
from fedpriv.privacy.events import (
    Event,
    GaussianEvent,
    PoissonGaussianEvent,
    SkellamEvent,
)
from fedpriv.privacy.ledger import BudgetRefusal, Kind, Ledger, LedgerConflict
from fedpriv.privacy.planning.calibration import calibrate
from tests.privacy.ledger.ledgers import fresh, gaussian, kinds, pure

A = Adjacency.ADD_REMOVE
BUDGET = Budget(epsilon=1.0, delta=1e-6)


def sampled(noise: float = 2.0, rate: float = 0.01) -> PoissonGaussianEvent:
    return PoissonGaussianEvent(relative_noise=noise, sampling_rate=rate, adjacency=A)


# Charging.


def test_a_calibrated_run_fits_its_budget_to_the_last_round_and_not_one_more(
    tmp_path: Path,
) -> None:
    plan = calibrate(epsilon=1.0, delta=1e-6, rounds=20, adjacency=A)
    with fresh(tmp_path) as ledger:
        for number in range(20):
            ledger.reserve(gaussian(plan.noise_multiplier), run="run", round=number)
        assert ledger.spent().guarantee.epsilon == pytest.approx(1.0, rel=1e-9)
        with pytest.raises(BudgetRefusal):
            ledger.reserve(gaussian(plan.noise_multiplier), run="run", round=20)
        ledger.verify()


def test_spend_adds_up_over_runs_and_is_there_again_after_closing(tmp_path: Path) -> None:
    with fresh(tmp_path) as ledger:
        ledger.reserve(gaussian(10), run="first", round=0)
        ledger.reserve(gaussian(20), run="second", round=0)
    expected = GdpAccountant(adjacency=A).compose(gaussian(10)).compose(gaussian(20))
    with Ledger.open(tmp_path / "test.ledger", budget=BUDGET, adjacency=A) as again:
        spent = again.spent()
        assert spent.guarantee.epsilon == pytest.approx(expected.epsilon(1e-6), rel=1e-12)
        assert spent.mu == pytest.approx(expected.mu)
        alone = GdpAccountant(adjacency=A).compose(gaussian(10))
        before = again.spent(before_run="second").guarantee.epsilon
        assert before == pytest.approx(alone.epsilon(1e-6))
        assert again.spent(before_run="first").guarantee.epsilon == 0
        assert again.spent(before_run="not yet") == spent


def test_a_refusal_says_what_was_spent_asked_and_left_and_leaves_no_trace(ledger: Ledger) -> None:
    ledger.reserve(gaussian(6), run="run", round=0)
    head, spent = ledger.head, ledger.spent()
    with pytest.raises(BudgetExceeded, match=r"round 1 of run 'run' would spend") as caught:
        ledger.reserve(gaussian(1), run="run", round=1)
    refusal = caught.value
    assert isinstance(refusal, BudgetRefusal)
    assert "Nothing was released" in str(refusal)
    assert refusal.spent == spent
    assert refusal.left == ledger.left()
    assert refusal.asked.guarantee.epsilon > BUDGET.epsilon
    assert (ledger.head, ledger.spent()) == (head, spent)
    assert isinstance(refusal.fits, GaussianEvent)
    assert repr(refusal.fits.relative_noise) in str(refusal)
    ledger.reserve(refusal.fits, run="run", round=1)
    assert ledger.left().share < 1e-5


def test_a_refused_first_charge_does_not_fix_the_composition(ledger: Ledger) -> None:
    with pytest.raises(BudgetRefusal):
        ledger.reserve(gaussian(0.1), run="run", round=0)
    assert kinds(ledger) == [Kind.CREATED]
    ledger.declare("run", [(sampled(), 10)])
    assert ledger.spent().composition is not None
    assert ledger.spent().to_dict()["composition"]["mode"] == "basic"


def test_the_composition_is_recorded_before_the_first_charge(ledger: Ledger) -> None:
    ledger.reserve(gaussian(10), run="run", round=0)
    ledger.reserve(gaussian(10), run="run", round=1)
    assert kinds(ledger) == [Kind.CREATED, Kind.COMPOSITION, Kind.RESERVED, Kind.RESERVED]


def test_undeclared_sampled_rounds_are_held_by_a_renyi_filter(tmp_path: Path) -> None:
    skellam = SkellamEvent(variance=1e6, l1_sensitivity=70, l2_sensitivity=10, adjacency=A)
    with fresh(tmp_path) as ledger:
        for number in range(10):
            ledger.reserve(sampled(), run="run", round=number)
        ledger.reserve(skellam, run="other", round=0)
        spent = ledger.spent()
        assert spent.composition is not None
        assert spent.composition.name == "rdp"
        assert 0 < spent.guarantee.epsilon < 1
        with pytest.raises(BudgetRefusal) as caught:
            ledger.reserve(sampled(noise=0.3, rate=0.5), run="run", round=10)
        assert caught.value.fits is not None
        ledger.verify()
    with Ledger.open(tmp_path / "test.ledger") as again:
        assert again.spent() == spent


def test_a_pure_budget_is_spent_by_sums_of_epsilon(tmp_path: Path) -> None:
    with fresh(tmp_path, Budget(epsilon=1.0, delta=0.0)) as ledger:
        for number in range(10):
            ledger.reserve(pure(0.1), run="run", round=number)
        with pytest.raises(BudgetRefusal):
            ledger.reserve(pure(1e-6), run="run", round=10)
        with pytest.raises(UnsupportedEvent):
            ledger.reserve(gaussian(1e6), run="run", round=10)
        ledger.verify()


@pytest.mark.parametrize("composition", ["gdp", "rdp"])
def test_a_pure_budget_refuses_a_composition_that_could_admit_nothing(
    tmp_path: Path, composition: str
) -> None:
    with pytest.raises(ValueError, match="composition must be basic"):
        fresh(tmp_path, Budget(epsilon=1.0, delta=0.0), composition)
    assert not (tmp_path / "test.ledger").exists()


def test_every_event_must_carry_the_adjacency_of_the_ledger(ledger: Ledger) -> None:
    other = GaussianEvent(relative_noise=100.0, adjacency=Adjacency.REPLACE_ONE)
    with pytest.raises(ValueError, match="do not add up"):
        ledger.reserve(other, run="run", round=0)
    with pytest.raises(ValueError, match="do not add up"):
        ledger.declare("run", [(other, 1)])
    assert kinds(ledger) == [Kind.CREATED]


@pytest.mark.parametrize("round_", [-1, 2**63, 1.0, True, None, "1"])
def test_a_round_is_an_integer_from_zero_on(ledger: Ledger, round_: int) -> None:
    with pytest.raises(ValueError, match="round must be"):
        ledger.reserve(gaussian(10), run="run", round=round_)


@pytest.mark.parametrize("run", ["", "a\nb", "\x1b[31m", "x" * 201, "\ud800", 7, None])
def test_a_run_has_a_printable_name(ledger: Ledger, run: str) -> None:
    with pytest.raises(ValueError, match="run must be"):
        ledger.reserve(gaussian(10), run=run, round=0)


# Declared runs.


def test_a_declared_run_costs_what_the_tightest_accountant_says_and_its_rounds_are_free(
    tmp_path: Path,
) -> None:
    with fresh(tmp_path) as ledger:
        declared = ledger.declare("run", [(sampled(), 300), (gaussian(30), 2)], delta=5e-7)
        report = account([(sampled(), 300), (gaussian(30), 2)], delta=5e-7)
        assert declared.cost.amount == report.epsilon
        assert declared.cost.delta == 5e-7
        for number in range(300):
            ledger.reserve(sampled(), run="run", round=number)
        ledger.reserve(gaussian(30), run="run", round=300)
        ledger.reserve(gaussian(30), run="run", round=301)
        assert ledger.spent() == declared.spent
        assert ledger.spent().guarantee == (report.epsilon, 5e-7)
        for event in (sampled(), gaussian(30), gaussian(31)):
            with pytest.raises(LedgerConflict, match="declared"):
                ledger.reserve(event, run="run", round=302)
        ledger.verify()


def test_an_unsafe_block_is_refused_whole(ledger: Ledger) -> None:
    with pytest.raises(BudgetRefusal, match="run 'run' would spend"):
        ledger.declare("run", [(sampled(noise=0.5, rate=0.3), 1000)])
    assert kinds(ledger) == [Kind.CREATED]


def test_a_declared_run_is_charged_once_however_often_it_is_declared(ledger: Ledger) -> None:
    first = ledger.declare("run", [(gaussian(30), 2), (gaussian(30), 3)])
    assert first.block == ((gaussian(30), 5),)
    assert ledger.declare("run", [(gaussian(30), 5)]) == first
    with pytest.raises(LedgerConflict, match="other releases"):
        ledger.declare("run", [(gaussian(30), 6)])
    assert kinds(ledger).count(Kind.DECLARED) == 1


def test_gaussian_blocks_cost_what_their_rounds_would(ledger: Ledger) -> None:
    ledger.declare("run", [(gaussian(30), 5)])
    exact = GdpAccountant(adjacency=A).compose(gaussian(30), 5)
    assert ledger.spent().guarantee.epsilon == pytest.approx(exact.epsilon(1e-6), rel=1e-12)


def test_a_run_cannot_be_declared_after_it_began(ledger: Ledger) -> None:
    ledger.reserve(gaussian(30), run="run", round=0)
    with pytest.raises(LedgerConflict, match="has begun"):
        ledger.declare("run", [(gaussian(30), 5)])


def test_a_retry_under_a_declared_run_uses_no_second_allowance(ledger: Ledger) -> None:
    ledger.declare("run", [(gaussian(30), 2)])
    for _ in range(3):
        ledger.reserve(gaussian(30), run="run", round=7)
    ledger.reserve(gaussian(30), run="run", round=8)
    with pytest.raises(LedgerConflict, match="declared 2 releases"):
        ledger.reserve(gaussian(30), run="run", round=9)


def test_a_gdp_ledger_refuses_a_sampled_run_and_charges_nothing(tmp_path: Path) -> None:
    with fresh(tmp_path) as ledger:
        ledger.reserve(gaussian(10), run="first", round=0)
        before = ledger.spent()
        with pytest.raises(UnsupportedEvent, match="gdp composition cannot price"):
            ledger.declare("second", [(sampled(noise=8.0), 100)], delta=1e-7)
        assert ledger.spent() == before
        ledger.verify()


def test_a_request_beyond_the_range_of_floats_is_refused_as_over_budget(tmp_path: Path) -> None:
    with fresh(tmp_path) as ledger:
        ledger.reserve(gaussian(10), run="first", round=0)
        with pytest.raises(BudgetExceeded, match="Nothing was released"):
            ledger.reserve(gaussian(1e-200), run="first", round=1)


@pytest.mark.parametrize("releases", [[], [(gaussian(30), 0)], [(gaussian(30), 1.5)]])
def test_a_declaration_names_events_and_counts(
    ledger: Ledger, releases: list[tuple[Event, int]]
) -> None:
    with pytest.raises(ValueError, match="must"):
        ledger.declare("run", releases)


# Simulations.


def test_a_simulation_is_recorded_and_never_charged(ledger: Ledger) -> None:
    ledger.record_simulation("study", {"accuracy": 0.9})
    ledger.record_simulation("study", {"accuracy": 0.9})
    assert ledger.spent().guarantee == (0.0, 0.0)
    (run,) = ledger.runs()
    assert (run.run, run.simulated, run.amount) == ("study", True, 0.0)
    with pytest.raises(LedgerConflict, match="another simulation"):
        ledger.record_simulation("study", {"accuracy": 0.8})


def test_a_simulated_run_can_never_become_real(ledger: Ledger) -> None:
    ledger.record_simulation("study", {})
    with pytest.raises(LedgerConflict, match="simulated"):
        ledger.reserve(gaussian(10), run="study", round=0)
    with pytest.raises(LedgerConflict):
        ledger.declare("study", [(gaussian(10), 1)])


def test_a_real_run_can_never_be_marked_simulated(ledger: Ledger) -> None:
    ledger.reserve(gaussian(10), run="reserved", round=0)
    ledger.declare("declared", [(gaussian(30), 1)])
    for run in ("reserved", "declared"):
        with pytest.raises(LedgerConflict, match="real run, for ever"):
            ledger.record_simulation(run, {})
