"""A ledger, driven at random through crashes and retries, agrees with a model of a few lines."""

import shutil
import tempfile
from contextlib import suppress
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.gaussian import gdp_mu
from fedpriv.privacy.ledger import (
    BudgetRefusal,
    Ledger,
    LedgerConflict,
    LedgerTampered,
    Reservation,
)
from tests.privacy.ledger.ledgers import gaussian

BUDGET = Budget(epsilon=1.0, delta=1e-6)
LIMIT = Fraction(gdp_mu(epsilon=1.0, delta=1e-6)) ** 2 * (1 + Fraction(1, 10**10))
MEMORY = Path("/dev/shm")  # noqa: S108 (fsync is not what is tested here)

RUNS = st.sampled_from(["a", "b", "c"])
ROUNDS = st.integers(0, 3)
NOISES = st.sampled_from([5.0, 12.0, 40.0])
RELEASES = st.binary(min_size=1, max_size=3)
Key = tuple[str, int]


def cost(noise: float) -> Fraction:
    return 1 / Fraction(noise) ** 2


class Crash(Exception):
    """The process ends here."""


class LedgerMachine(RuleBasedStateMachine):
    """The model: what is reserved, declared, committed, simulated; spend is a sum of fractions."""

    @initialize()
    def create(self) -> None:
        place = MEMORY if MEMORY.is_dir() else None
        self.directory = Path(tempfile.mkdtemp(dir=place))
        self.files = 0
        self.ledger = Ledger.create(
            self.directory / "0.ledger",
            data_name="model",
            budget=BUDGET,
            adjacency=Adjacency.ADD_REMOVE,
        )
        self.reserved: dict[Key, float] = {}
        self.declared: dict[str, tuple[float, int]] = {}
        self.committed: dict[Key, bytes] = {}
        self.simulated: set[str] = set()
        self.spent = Fraction(0)
        self.heads = [self.ledger.head]

    def teardown(self) -> None:
        if hasattr(self, "ledger"):
            self.ledger.close()
            shutil.rmtree(self.directory)

    def runs(self) -> set[str]:
        return {run for run, _ in self.reserved} | set(self.declared)

    def expected(self, key: Key, noise: float) -> type[Exception] | None:
        """What the model says of a request to reserve."""
        run, _ = key
        if run in self.simulated:
            return LedgerConflict
        if key in self.reserved:
            return None if self.reserved[key] == noise else LedgerConflict
        if run in self.declared:
            allowed, count = self.declared[run]
            used = sum(other == run for other, _ in self.reserved)
            return None if noise == allowed and used < count else LedgerConflict
        return None if self.spent + cost(noise) <= LIMIT else BudgetRefusal

    def apply(self, key: Key, noise: float) -> None:
        if key not in self.reserved and key[0] not in self.declared:
            self.spent += cost(noise)
        self.reserved[key] = noise

    @rule(run=RUNS, number=ROUNDS, noise=NOISES)
    def reserve(self, run: str, number: int, noise: float) -> None:
        key = (run, number)
        error = self.expected(key, noise)
        if error is not None:
            with pytest.raises(error):
                self.ledger.reserve(gaussian(noise), run=run, round=number)
            return
        found = self.ledger.reserve(gaussian(noise), run=run, round=number)
        assert found.release == self.committed.get(key)
        assert (found.status == "committed") == (key in self.committed)
        self.apply(key, noise)

    @rule(run=RUNS, number=ROUNDS, noise=NOISES, release=RELEASES)
    def commit(self, run: str, number: int, noise: float, release: bytes) -> None:
        key = (run, number)
        reservation = Reservation(
            run=run,
            round=number,
            event=gaussian(noise),
            status="reserved",
            release=None,
            spent=self.ledger.spent(),
        )
        stored = self.committed.get(key, release)
        if self.reserved.get(key) != noise or stored != release:
            with pytest.raises(LedgerConflict):
                self.ledger.commit(reservation, release)
            return
        self.ledger.commit(reservation, release)
        self.committed[key] = release

    @rule(run=RUNS, noise=NOISES, count=st.integers(1, 3))
    def declare(self, run: str, noise: float, count: int) -> None:
        error: type[Exception] | None = None
        if self.declared.get(run) != (noise, count):
            if run in self.runs() | self.simulated:
                error = LedgerConflict
            elif self.spent + count * cost(noise) > LIMIT:
                error = BudgetRefusal
        if error is not None:
            with pytest.raises(error):
                self.ledger.declare(run, [(gaussian(noise), count)])
            return
        self.ledger.declare(run, [(gaussian(noise), count)])
        if run not in self.declared:
            self.spent += count * cost(noise)
        self.declared[run] = (noise, count)

    @rule(run=st.sampled_from(["a", "d"]))
    def simulate(self, run: str) -> None:
        if run in self.runs():
            with pytest.raises(LedgerConflict):
                self.ledger.record_simulation(run, {})
            return
        self.ledger.record_simulation(run, {})
        self.simulated.add(run)

    @rule()
    def reopen(self) -> None:
        path = self.ledger._store.path
        self.ledger.close()
        self.ledger = Ledger.open(path)

    @rule(run=RUNS, number=ROUNDS, noise=NOISES, before_commit=st.booleans())
    def crash(self, run: str, number: int, noise: float, before_commit: bool) -> None:
        """What a dead process leaves are its files as they were: here, while it was reserving."""
        key = (run, number)
        if self.expected(key, noise) is not None:
            return
        if before_commit:
            with suppress(Crash), self.ledger._store.writing():
                self.ledger._charges.reserve(gaussian(noise), run, number)
                path = self.copy_files()
                raise Crash
        else:
            self.ledger.reserve(gaussian(noise), run=run, round=number)
            self.apply(key, noise)
            path = self.copy_files()
        self.ledger.close()
        self.ledger = Ledger.open(path)

    def copy_files(self) -> Path:
        self.files += 1
        old, new = self.ledger._store.path, self.directory / f"{self.files}.ledger"
        for suffix in ("", "-wal"):
            if Path(f"{old}{suffix}").exists():
                shutil.copy(f"{old}{suffix}", f"{new}{suffix}")
        return new

    @invariant()
    def agrees_with_the_model(self) -> None:
        spent = self.ledger.spent()
        assert float(self.spent) == pytest.approx(spent.total.amount, rel=1e-12)
        assert Fraction(spent.total.amount) <= LIMIT
        assert spent.within_budget
        rows = list(self.ledger.rows())
        kept = {(r.run, r.round) for r in rows if r.kind == "reserved"}
        assert kept == set(self.reserved)
        assert sum(r.kind == "committed" for r in rows) == len(self.committed)
        # Nothing that once was the head is ever gone.
        self.ledger.verify(expected_head=self.heads[-1])
        self.heads.append(self.ledger.head)


TestLedgerMachine = LedgerMachine.TestCase
TestLedgerMachine.settings = settings(max_examples=40, stateful_step_count=25)


class ForgetfulMachine(LedgerMachine):
    """The twin: a crash loses the log, as on a disk that only pretends to write."""

    def copy_files(self) -> Path:
        new = super().copy_files()
        Path(f"{new}-wal").unlink(missing_ok=True)
        return new


def test_a_ledger_that_forgets_in_a_crash_is_caught() -> None:
    once = settings(max_examples=60, stateful_step_count=30, phases=[Phase.generate])
    with pytest.raises((AssertionError, LedgerTampered)):
        run_state_machine_as_test(ForgetfulMachine, settings=once)
