"""Retries: the same round gets the same reservation and the same release, and is paid for once."""

from pathlib import Path

import numpy as np
import pytest

from fedpriv.privacy.ledger import Kind, Ledger, LedgerConflict
from tests.privacy.ledger.ledgers import fresh, gaussian, kinds


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
