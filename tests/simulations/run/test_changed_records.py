"""Changed records and a run's ledger: the people are the same, however their records are used."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fedpriv.privacy.ledger import Kind, Ledger
from tests.simulations.run.clinic import ROUNDS, SCHEMA, Command, released, rows


def test_a_changed_bound_is_no_other_data_set(fedpriv: Command, study: Path, book: Path) -> None:
    """It once earned the advice to take a second budget for the same people."""
    assert released(fedpriv, study, book, "one").code == 0
    schema = study.with_name("schema.toml")
    schema.write_text(SCHEMA.replace("max = 120", "max = 130"))
    assert released(fedpriv, study, book, "two", "--set", "data.test_fraction=0.3").code == 0
    schema.write_text(SCHEMA.replace("[columns.age]", "[columns.shoe]"))
    assert released(fedpriv, study, book, "three", "--set", "data.feature_norm=2.0").code == 0
    with Ledger.open(book, read_only=True) as ledger:
        assert [row.kind for row in ledger.rows()].count(Kind.DATA) == 1
        assert ledger.spent().guarantee.epsilon > 0.3


def parquet(table: Path) -> Path:
    import pyarrow.csv
    import pyarrow.parquet

    other = table.with_suffix(".parquet")
    pyarrow.parquet.write_table(pyarrow.csv.read_csv(table), other)
    return other


CHANGES: dict[str, Callable[[Path], Path]] = {
    "corrected": lambda table: edited(table, lambda lines: ["33,no,a,1", *lines[1:]]),
    "appended": lambda table: edited(table, lambda lines: [*lines, "33,no,a,1"]),
    "removed": lambda table: edited(table, lambda lines: lines[1:]),
    "sorted": lambda table: edited(table, sorted),
    "as Parquet": parquet,
}


def edited(table: Path, change: Callable[[list[str]], list[str]]) -> Path:
    header, *lines = table.read_text().splitlines()
    other = table.with_name("edited.csv")
    other.write_text("\n".join([header, *change(lines)]) + "\n")
    return other


@pytest.mark.parametrize("change", CHANGES)
def test_changed_records_are_their_owners_decision_and_keep_their_ledger(
    fedpriv: Command, study: Path, book: Path, change: str
) -> None:
    assert released(fedpriv, study, book, "one").code == 0
    other = CHANGES[change](study.with_name("records.csv"))
    study.write_text(study.read_text().replace("records.csv", other.name))
    before = rows(book)
    done = released(fedpriv, study, book, "two")
    assert done.code == 2
    assert "go on with this ledger" in done.message
    assert "fedpriv ledger bind" in done.message
    for advice in ("ledger of its own", "--new-ledger", "ledger init", "different data set"):
        assert advice not in done.message
    assert rows(book) == before

    bound = fedpriv("ledger", "bind", book, "--data", other, "--reason", change, "--json").json()
    assert bound["spent"]["epsilon"] == pytest.approx(0.3, rel=1e-6)
    assert released(fedpriv, study, book, "three").code == 0
    assert fedpriv("ledger", "verify", book).code == 0
    with Ledger.open(book, read_only=True) as ledger:
        assert ledger.spent().guarantee.epsilon > 0.4
    # Both files are these people's now.
    study.write_text(study.read_text().replace(other.name, "records.csv"))
    assert released(fedpriv, study, book, "four").code == 0


def test_variants_of_a_built_in_data_set_share_one_ledger(
    fedpriv: Command, study: Path, book: Path
) -> None:
    study.write_text(
        '[data]\nname = "synthetic"\n'
        f'[strategy]\nname = "gradient-perturbation"\nrounds = {ROUNDS}\n'
        "[privacy]\nepsilon = 0.3\n"
    )
    assert released(fedpriv, study, book, "one").code == 0
    variant = ("--set", "data.name=synthetic:squared", "--set", "model.name=huber-regression")
    assert released(fedpriv, study, book, "two", *variant).code == 0
    assert released(fedpriv, study, book, "three", "--set", "data.name=chem97").code == 2


def test_nothing_that_is_released_shows_the_binding(
    fedpriv: Command, study: Path, book: Path
) -> None:
    from fedpriv.data import table_identity

    assert released(fedpriv, study, book, "out").code == 0
    digest = table_identity(study.with_name("records.csv"))[-32:]
    with Ledger.open(book, read_only=True) as ledger:
        secrets = [digest, digest.hex().encode(), str(ledger.fingerprint).encode()]
    files = [path for path in (study.parent / "out").rglob("*") if path.is_file()]
    assert files
    for path in [*files, book, Path(f"{book}-wal")]:
        content = path.read_bytes() if path.exists() else b""
        assert not any(secret in content for secret in secrets[: 2 if path not in files else 3])
