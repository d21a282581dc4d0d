"""The identity of a data set: the same people, whatever is done with their records."""

from pathlib import Path

import pytest

from fedpriv.data import DataError, built_in_identity, table_identity


def test_a_table_is_its_bytes(tmp_path: Path) -> None:
    one, same, other = (tmp_path / name for name in ("one.csv", "same.csv", "other.csv"))
    one.write_bytes(b"age,ill\n41,1\n")
    same.write_bytes(one.read_bytes())
    other.write_bytes(b"age,ill\n42,1\n")
    assert table_identity(one) == table_identity(same) != table_identity(other)


def test_variants_of_a_data_set_are_of_the_same_people() -> None:
    """Two pairs of digits share no record, and adult with and without parties shares them all."""
    assert built_in_identity("adult:workclass") == built_in_identity("adult")
    assert built_in_identity("adult") != built_in_identity("mnist")


def test_no_table_passes_for_a_built_in_one(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"adult")
    assert table_identity(tmp_path / "t.csv").startswith(b"table ")
    assert built_in_identity("adult").startswith(b"built-in ")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        table_identity(tmp_path / "none.csv")
