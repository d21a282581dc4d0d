"""The ledger: what it charges, what it refuses, what a retry gets, and what it never forgets."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.privacy.accountants import GdpAccountant, UnsupportedEvent, account
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget, BudgetExceeded
from fedpriv.privacy.events import (
    Event,
    GaussianEvent,
    PoissonGaussianEvent,
    PureEvent,
    SkellamEvent,
)
from fedpriv.privacy.ledger import (
    BudgetRefusal,
    Kind,
    Ledger,
    LedgerConflict,
    LedgerError,
    LedgerMismatch,
)
from fedpriv.privacy.ledger.fingerprint import fingerprint
from fedpriv.privacy.planning.calibration import calibrate

A = Adjacency.ADD_REMOVE
BUDGET = Budget(epsilon=1.0, delta=1e-6)


def gaussian(noise: float) -> GaussianEvent:
    return GaussianEvent(relative_noise=noise, adjacency=A)


def sampled(noise: float = 2.0, rate: float = 0.01) -> PoissonGaussianEvent:
    return PoissonGaussianEvent(relative_noise=noise, sampling_rate=rate, adjacency=A)


def pure(epsilon: float) -> PureEvent:
    return PureEvent(epsilon=epsilon, adjacency=A)


def fresh(directory: Path, budget: Budget = BUDGET, composition: str = "auto") -> Ledger:
    return Ledger.create(
        directory / "test.ledger",
        data_name="clinic",
        budget=budget,
        adjacency=A,
        composition=composition,
    )


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with fresh(tmp_path) as ledger:
        yield ledger


def kinds(ledger: Ledger) -> list[str]:
    return [row.kind for row in ledger.rows()]


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


# Retries.


def test_a_retry_gets_the_same_reservation_and_pays_once(ledger: Ledger) -> None:
    first = ledger.reserve(gaussian(10), run="run", round=3)
    again = ledger.reserve(gaussian(10), run="run", round=3)
    assert again == first
    assert (first.status, first.release) == ("reserved", None)
    assert kinds(ledger).count(Kind.RESERVED) == 1


def test_one_and_one_point_zero_are_the_same_noise(ledger: Ledger) -> None:
    ledger.declare("run", [(gaussian(100), 1), (gaussian(100.0), 1)], delta=0)
    first = ledger.reserve(gaussian(100), run="run", round=0)
    assert ledger.reserve(gaussian(100.0), run="run", round=0) == first
    ledger.commit(ledger.reserve(gaussian(100.0), run="run", round=1), b"x")
    assert ledger.reserve(gaussian(100), run="run", round=1).release == b"x"
    ledger.verify()


def test_a_retry_after_commit_gets_the_stored_release(tmp_path: Path) -> None:
    with fresh(tmp_path) as ledger:
        reservation = ledger.reserve(gaussian(10), run="run", round=0)
        committed = ledger.commit(reservation, b"noisy sum")
        assert (committed.status, committed.release) == ("committed", b"noisy sum")
    with Ledger.open(tmp_path / "test.ledger") as again:
        found = again.reserve(gaussian(10), run="run", round=0)
        assert (found.status, found.release) == ("committed", b"noisy sum")
        assert found.spent == reservation.spent


def test_an_empty_release_is_a_release(ledger: Ledger) -> None:
    ledger.commit(ledger.reserve(gaussian(10), run="run", round=0), b"")
    found = ledger.reserve(gaussian(10), run="run", round=0)
    assert (found.status, found.release) == ("committed", b"")


def test_a_round_is_reserved_for_one_event_only(ledger: Ledger) -> None:
    ledger.reserve(gaussian(10), run="run", round=0)
    with pytest.raises(LedgerConflict, match="another event"):
        ledger.reserve(gaussian(11), run="run", round=0)


def test_a_second_draw_of_noise_is_refused(ledger: Ledger) -> None:
    reservation = ledger.reserve(gaussian(10), run="run", round=0)
    ledger.commit(reservation, b"first draw")
    head = ledger.head
    ledger.commit(reservation, b"first draw")
    with pytest.raises(LedgerConflict, match="another release"):
        ledger.commit(reservation, b"second draw")
    assert ledger.head == head


def test_what_was_not_reserved_here_cannot_be_committed(tmp_path: Path, ledger: Ledger) -> None:
    (tmp_path / "other").mkdir()
    with fresh(tmp_path / "other") as other:
        reservation = other.reserve(gaussian(10), run="run", round=0)
    with pytest.raises(LedgerConflict, match="not reserved here"):
        ledger.commit(reservation, b"release")
    ledger.reserve(gaussian(20), run="run", round=0)
    with pytest.raises(LedgerConflict, match="not reserved here"):
        ledger.commit(reservation, b"release")


def test_a_release_is_bytes(ledger: Ledger) -> None:
    reservation = ledger.reserve(gaussian(10), run="run", round=0)
    with pytest.raises(ValueError, match="release must be bytes"):
        ledger.commit(reservation, np.zeros(3))  # type: ignore[arg-type]


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


def test_a_ledger_with_a_second_name_is_refused(tmp_path: Path) -> None:
    """Each name would have a log and locks of its own, and spend the budget again."""
    with fresh(tmp_path) as ledger:
        path = tmp_path / "test.ledger"
        second = tmp_path / "second-name"
        second.hardlink_to(path)
        with pytest.raises(LedgerError, match="2 names"):
            ledger.reserve(gaussian(10), run="first", round=0)
    for name in (path, second):
        with pytest.raises(LedgerError, match="2 names"):
            Ledger.open(name)


def test_a_link_to_a_ledger_is_the_ledger(tmp_path: Path) -> None:
    with fresh(tmp_path) as ledger:
        path = tmp_path / "test.ledger"
        link = tmp_path / "elsewhere"
        link.symlink_to(path)
        ledger.reserve(gaussian(10), run="first", round=0)
        with Ledger.open(link) as other, Ledger.open(link, read_only=True) as reader:
            assert other.spent() == reader.spent() == ledger.spent()


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


# The data set.


def test_the_fingerprint_tells_changed_data_from_the_bound_ones(tmp_path: Path) -> None:
    X, y = np.arange(12.0).reshape(4, 3), np.array([1, -1, 1, -1])
    with fresh(tmp_path) as ledger:
        with pytest.raises(LedgerMismatch, match="bind_data first"):
            ledger.check_data(X, y)
        ledger.bind_data(X, y)
        ledger.bind_data(X, y)
    with Ledger.open(tmp_path / "test.ledger") as again:
        again.check_data(X, y)
        again.check_data(np.asfortranarray(X), y.astype(">i8"))
        changed = X.copy()
        changed[0, 0] = np.nextafter(changed[0, 0], 1)
        for other in ([changed, y], [X[::-1], y], [y, X], [X], [X.astype("f4"), y], [X.T, y]):
            with pytest.raises(LedgerMismatch, match="go on with this ledger") as caught:
                again.check_data(*other)
            assert "clinic" in str(caught.value)
        with pytest.raises(LedgerMismatch):
            again.bind_data(changed, y)
        assert kinds(again).count(Kind.DATA) == 1


def test_the_remedy_for_changed_records_is_the_same_ledger_and_never_a_second_budget(
    tmp_path: Path,
) -> None:
    """The advice was once to take a ledger of its own: a full budget for the same people."""
    with fresh(tmp_path) as ledger:
        ledger.bind_data(b"records")
        ledger.reserve(gaussian(10), run="run", round=0)
        spent = ledger.spent()
        with pytest.raises(LedgerMismatch) as caught:
            ledger.bind_data(b"records, one corrected")
        assert "go on with this ledger" in str(caught.value)
        assert "ledger of its own" not in str(caught.value)
        ledger.add_data(b"records, one corrected", reason="a typing error")
        ledger.add_data(b"records, one corrected", reason="told twice")
        for known in (b"records", b"records, one corrected"):
            ledger.check_data(known)
        with pytest.raises(LedgerMismatch):
            ledger.check_data(b"other people")
        ledger.add_data(b"records and more", reason="patients of 2026")
        assert ledger.spent() == spent
        assert [row.round for row in ledger.rows() if row.kind == Kind.DATA] == [-1, 1, 2]
        assert "2026" in ledger.export()["rows"][-1]["detail"]["reason"]
        assert ledger.verify().rows == len(kinds(ledger))


def test_more_data_need_data_and_a_reason(ledger: Ledger) -> None:
    with pytest.raises(LedgerMismatch, match="no data are bound"):
        ledger.add_data(b"records", reason="the first ones")
    ledger.bind_data(b"records")
    for reason in ("", "two\nlines", "x" * 201):
        with pytest.raises(ValueError, match="reason must be"):
            ledger.add_data(b"others", reason=reason)
    assert kinds(ledger).count(Kind.DATA) == 1


def test_a_ledger_knows_its_own_heads_and_no_other(tmp_path: Path) -> None:
    with fresh(tmp_path) as ledger:
        heads = {ledger.length: ledger.head}
        for number in range(3):
            ledger.reserve(gaussian(30), run="run", round=number)
            heads[ledger.length] = ledger.head
        assert all(ledger.hash_of(row) == head for row, head in heads.items())
    (tmp_path / "again").mkdir()
    with fresh(tmp_path / "again") as other:
        assert not any(other.hash_of(row) == head for row, head in heads.items())


def test_without_the_salt_a_fingerprint_says_nothing(tmp_path: Path) -> None:
    """Two ledgers of the same data have unrelated fingerprints, and none shows its salt."""
    found = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        with fresh(tmp_path / name) as ledger:
            ledger.bind_data(b"records")
            found.append(ledger.fingerprint)
            salt = ledger._store.salt()
            assert len(salt) == 32
            assert salt.hex() not in repr(ledger.export())
            assert ledger.fingerprint == fingerprint(salt, b"records")
    assert found[0] != found[1]


@given(
    st.lists(st.binary(max_size=8), min_size=1, max_size=4),
    st.lists(st.binary(max_size=8), min_size=1, max_size=4),
)
def test_parts_cannot_be_shifted_into_each_other(left: list[bytes], right: list[bytes]) -> None:
    same = fingerprint(b"salt", *left) == fingerprint(b"salt", *right)
    assert same == (left == right)


def test_bytes_and_arrays_are_different_data() -> None:
    array = np.frombuffer(b"abcd", dtype=np.uint8)
    assert fingerprint(b"salt", array) != fingerprint(b"salt", b"abcd")
    assert fingerprint(b"salt", memoryview(b"abcd")) == fingerprint(b"salt", b"abcd")


def test_a_fingerprint_needs_data_of_fixed_size() -> None:
    with pytest.raises(ValueError, match="got nothing"):
        fingerprint(b"salt")
    with pytest.raises(ValueError, match="dtype object"):
        fingerprint(b"salt", np.array([{}, []], dtype=object))


def test_an_array_without_elements_has_a_fingerprint() -> None:
    assert fingerprint(b"salt", np.zeros((0, 3))) != fingerprint(b"salt", np.zeros((3, 0)))


# The file.


def test_only_the_owner_can_read_the_file(tmp_path: Path) -> None:
    with fresh(tmp_path) as ledger:
        ledger.reserve(gaussian(10), run="run", round=0)
        for path in tmp_path.iterdir():
            assert path.stat().st_mode & 0o077 == 0, path


def test_an_export_has_everything_but_the_salt_and_the_releases(ledger: Ledger) -> None:
    ledger.bind_data(b"records")
    ledger.commit(ledger.reserve(gaussian(10), run="run", round=4), b"secret until published")
    found = ledger.export()
    assert found["head"] == ledger.head == found["rows"][-1]["hash"]
    assert [row["kind"] for row in found["rows"]] == kinds(ledger)
    assert found["rows"][-2]["detail"] == gaussian(10).to_dict()
    assert (found["rows"][-1]["run"], found["rows"][-1]["round"]) == ("run", 4)
    assert (found["rows"][0]["run"], found["rows"][0]["round"]) == (None, None)
    assert "secret until published" not in repr(found)
    assert b"secret until published".hex() not in repr(found)


def test_threads_share_a_ledger(tmp_path: Path) -> None:
    with fresh(tmp_path) as ledger:

        def work(name: str) -> None:
            for number in range(20):
                reservation = ledger.reserve(gaussian(100), run=name, round=number)
                ledger.commit(reservation, os.urandom(8))

        threads = [threading.Thread(target=work, args=(f"run {i}",)) for i in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [run.committed for run in ledger.runs()] == [20, 20, 20]
        ledger.verify()


def test_the_summary_of_runs_counts_what_happened(ledger: Ledger) -> None:
    ledger.declare("declared", [(gaussian(30), 2)])
    ledger.commit(ledger.reserve(gaussian(30), run="declared", round=0), b"x")
    ledger.reserve(gaussian(30), run="by round", round=0)
    first, second = ledger.runs()
    assert (first.run, first.declared, first.reserved, first.committed) == ("declared", True, 1, 1)
    assert (second.run, second.declared, second.reserved, second.committed) == (
        "by round", False, 1, 0,
    )  # fmt: skip
    assert first.amount == pytest.approx(2 * second.amount)
    assert first.amount + second.amount == pytest.approx(ledger.spent().total.amount)


def test_what_a_reservation_would_find_is_foreseen_and_nothing_is_written(tmp_path: Path) -> None:
    with fresh(tmp_path) as ledger:
        before = list(ledger.rows())
        assert ledger.foresee(gaussian(10.0), run="a", round=0) == "new"
        with pytest.raises(BudgetExceeded):
            ledger.foresee(gaussian(0.1), run="a", round=0)
        assert list(ledger.rows()) == before  # not even a rule of composition
        paid = ledger.reserve(gaussian(10.0), run="a", round=0)
        assert ledger.foresee(gaussian(10.0), run="a", round=0) == "reserved"
        with pytest.raises(LedgerConflict):
            ledger.foresee(gaussian(11.0), run="a", round=0)
        ledger.commit(paid, b"release")
        after = list(ledger.rows())
        assert ledger.foresee(gaussian(10.0), run="a", round=0) == "committed"
        assert ledger.foresee(gaussian(10.0), run="a", round=1) == "new"
        assert list(ledger.rows()) == after
        ledger.verify()


def test_a_ledger_is_known_by_the_hash_of_any_of_its_rows(tmp_path: Path) -> None:
    with fresh(tmp_path) as ledger:
        length, head = ledger.length, ledger.head
        assert ledger.hash_of(length) == head
        ledger.reserve(gaussian(10.0), run="a", round=0)
        assert ledger.length > length
        assert ledger.hash_of(length) == head != ledger.head == ledger.hash_of(ledger.length)
        assert ledger.hash_of(ledger.length + 1) is None
        assert ledger.hash_of(0) is None
