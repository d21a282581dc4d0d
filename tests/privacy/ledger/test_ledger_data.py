"""The data of a ledger: bound by a fingerprint, and told apart from changed data."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.privacy.ledger import Kind, Ledger, LedgerMismatch
from fedpriv.privacy.ledger.fingerprint import fingerprint
from tests.privacy.ledger.ledgers import fresh, gaussian, kinds


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
