"""Every fault of a disk or a file: a clear error, no release, and nothing lost."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.events import GaussianEvent
from fedpriv.privacy.ledger import (
    Ledger,
    LedgerCorrupt,
    LedgerError,
    LedgerForeign,
    LedgerFull,
    LedgerLocked,
    LedgerMismatch,
    LedgerMissing,
    LedgerNewer,
    LedgerReadOnly,
    Reservation,
)
from fedpriv.privacy.ledger.storage.chain import Row
from fedpriv.privacy.ledger.storage.database import APPLICATION_ID

A = Adjacency.ADD_REMOVE
BUDGET = Budget(epsilon=1.0, delta=1e-6)
EVENT = GaussianEvent(relative_noise=100.0, adjacency=A)


def fresh(path: Path) -> Ledger:
    return Ledger.create(path, data_name="clinic", budget=BUDGET, adjacency=A)


def spend(ledger: Ledger, number: int, size: int = 100) -> Reservation:
    return ledger.commit(ledger.reserve(EVENT, run="run", round=number), bytes(size))


def rows_of(path: Path) -> list[Row]:
    with Ledger.open(path, read_only=True) as ledger:
        ledger.verify()
        return list(ledger.rows())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A closed ledger with some releases."""
    path = tmp_path / "test.ledger"
    with fresh(path) as ledger:
        for number in range(5):
            spend(ledger, number)
    return path


# What is not a ledger.


def test_a_new_ledger_does_not_wipe_out_the_log_of_one_that_was_moved(tmp_path: Path) -> None:
    """What a killed process wrote last may be in the log alone, which a new file would replace."""
    path, moved = tmp_path / "test.ledger", tmp_path / "moved.ledger"
    script = (
        "import os, signal, sys\n"
        "from fedpriv.privacy.budget import Budget\n"
        "from fedpriv.privacy.events import GaussianEvent\n"
        "from fedpriv.privacy.ledger import Ledger\n"
        "ledger = Ledger.create(sys.argv[1], data_name='clinic', adjacency='add-remove',\n"
        "                       budget=Budget(epsilon=1.0, delta=1e-6))\n"
        "event = GaussianEvent(relative_noise=10.0, adjacency='add-remove')\n"
        "ledger.reserve(event, run='run', round=0)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", script, path], check=False)
    path.rename(moved)
    with pytest.raises(LedgerError, match="moved away without it"):
        fresh(path)
    assert not path.exists()
    moved.rename(path)
    with Ledger.open(path) as ledger:
        assert ledger.verify().spent.guarantee.epsilon > 0


def test_a_missing_file_is_missing_and_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(LedgerMissing, match="there is no ledger"):
        Ledger.open(tmp_path / "none.ledger")
    assert list(tmp_path.iterdir()) == []


def test_a_directory_is_not_a_ledger(tmp_path: Path) -> None:
    with pytest.raises(LedgerForeign, match="not a file"):
        Ledger.open(tmp_path)


def test_a_text_file_is_not_a_ledger_and_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("dear diary " * 1000)
    with pytest.raises(LedgerForeign, match="is not a ledger"):
        Ledger.open(path)
    assert path.read_text() == "dear diary " * 1000


def test_a_database_of_another_application_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE head (x)")
    before = path.read_bytes()
    with pytest.raises(LedgerForeign, match="another application"):
        Ledger.open(path)
    assert path.read_bytes() == before


def test_a_ledger_of_a_newer_version_is_left_alone(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 2")
    with pytest.raises(LedgerNewer, match=r"version 2.*Update fedpriv"):
        Ledger.open(path)


def test_a_file_whose_creation_was_cut_short_says_so(tmp_path: Path) -> None:
    path = tmp_path / "empty.ledger"
    path.touch()
    with pytest.raises(LedgerCorrupt, match="is empty"):
        Ledger.open(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    with pytest.raises(LedgerCorrupt, match="is empty"):
        Ledger.open(path)


def test_creating_never_overwrites(path: Path) -> None:
    before = rows_of(path)
    with pytest.raises(LedgerError, match="never overwritten"):
        fresh(path)
    assert rows_of(path) == before


def test_a_ledger_cannot_be_created_where_there_is_no_directory(tmp_path: Path) -> None:
    with pytest.raises(LedgerMissing, match="directory of"):
        fresh(tmp_path / "no" / "such" / "directory.ledger")


def test_another_budget_or_adjacency_is_refused_at_open(path: Path) -> None:
    with pytest.raises(LedgerMismatch, match="budget of this ledger is epsilon = 1"):
        Ledger.open(path, budget=Budget(epsilon=2.0, delta=1e-6))
    with pytest.raises(LedgerMismatch, match="adjacency"):
        Ledger.open(path, adjacency="replace-one")
    Ledger.open(path, budget=BUDGET, adjacency="add-remove").close()


def test_a_closed_ledger_says_so(path: Path) -> None:
    ledger = Ledger.open(path)
    ledger.close()
    with pytest.raises(LedgerError, match="closed"):
        spend(ledger, 9)


# Damage.


def test_a_file_cut_short_anywhere_is_refused(path: Path, tmp_path: Path) -> None:
    image = path.read_bytes()
    short = tmp_path / "short.ledger"
    for size in [0, 1, 15, 16, 99, 100, 511, *range(512, len(image), 1024), len(image) - 1]:
        short.write_bytes(image[:size])
        with pytest.raises((LedgerCorrupt, LedgerForeign)):  # noqa: SIM117
            with Ledger.open(short) as ledger:
                spend(ledger, 9)
        assert short.read_bytes() == image[:size]


def test_a_log_cut_short_anywhere_leaves_a_valid_beginning(tmp_path: Path) -> None:
    """What a power failure may leave of a log: transactions are there whole, or not at all."""
    path, copy = tmp_path / "test.ledger", tmp_path / "copy.ledger"
    with fresh(path) as ledger:
        for number in range(4):
            spend(ledger, number)
        complete = list(ledger.rows())
        log = Path(f"{path}-wal").read_bytes()
        main = path.read_bytes()
    lengths = set()
    for size in [*range(0, len(log), 1999), len(log)]:
        copy.write_bytes(main)
        Path(f"{copy}-wal").write_bytes(log[:size])
        Path(f"{copy}-shm").unlink(missing_ok=True)
        found = rows_of(copy)
        assert found == complete[: len(found)]
        lengths.add(len(found))
    assert max(lengths) == len(complete)
    assert len(lengths) > 5


# Locks.


def test_a_locked_ledger_is_refused_after_the_timeout_and_works_again_later(path: Path) -> None:
    with Ledger.open(path, timeout=0.05) as ledger:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(LedgerLocked, match="locked by another process"):
                ledger.reserve(EVENT, run="run", round=5)
            assert ledger.spent().total.amount > 0  # looking needs no lock
            other.execute("ROLLBACK")
        spend(ledger, 5)
    assert len(rows_of(path)) == 2 + 2 * 6


@pytest.mark.parametrize("timeout", [-1.0, float("nan"), float("inf")])
def test_a_timeout_is_a_finite_number_of_seconds(path: Path, timeout: float) -> None:
    with pytest.raises(ValueError, match="timeout"):
        Ledger.open(path, timeout=timeout)


def test_a_ledger_is_not_used_after_a_fork(path: Path) -> None:
    with Ledger.open(path) as ledger:
        script = (
            "import os, sys\n"
            "from fedpriv.privacy.ledger import Ledger, LedgerError\n"
            f"ledger = Ledger.open({str(path)!r})\n"
            "if os.fork() == 0:\n"
            "    try:\n"
            "        ledger.spent()\n"
            "    except LedgerError as error:\n"
            "        os._exit('fork' not in str(error))\n"
            "    os._exit(2)\n"
            "sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))\n"
        )
        assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
        spend(ledger, 5)


# Disks that cannot be written. SQLite's own limit on pages gives the error of a full disk
# everywhere; `test_ledger_private_mounts` has the real thing, where the system allows one.


def test_a_ledger_opened_for_reading_refuses_to_charge(path: Path) -> None:
    before = rows_of(path)
    with Ledger.open(path, read_only=True) as ledger:
        for request in (
            lambda: ledger.reserve(EVENT, run="run", round=5),
            lambda: ledger.declare("other", [(EVENT, 1)]),
            lambda: ledger.record_simulation("study", {}),
            lambda: ledger.bind_data(b"records"),
        ):
            with pytest.raises(LedgerReadOnly, match="read-only"):
                request()
    assert rows_of(path) == before


def test_a_full_disk_refuses_and_loses_nothing(path: Path) -> None:
    before = rows_of(path)
    with Ledger.open(path) as ledger:
        connection = ledger._store._connection
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages}")
        reservation = ledger.reserve(EVENT, run="run", round=5)
        with pytest.raises(LedgerFull, match="no space is left"):
            ledger.commit(reservation, bytes(100_000))
        assert ledger.reserve(EVENT, run="run", round=5) == reservation
        connection.execute("PRAGMA max_page_count = 1000000")
        ledger.commit(reservation, bytes(100_000))
    after = rows_of(path)
    assert after[: len(before)] == before
    assert len(after) == len(before) + 2
