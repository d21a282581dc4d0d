"""The file of a ledger: who may read it, its names, its exports, its threads and its heads."""

import os
import threading
from pathlib import Path

import pytest

from fedpriv.privacy.budget import BudgetExceeded
from fedpriv.privacy.ledger import Ledger, LedgerConflict, LedgerError
from tests.privacy.ledger.ledgers import fresh, gaussian, kinds


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
