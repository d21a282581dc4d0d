"""Schemas that a description has to get along with: names, wide ranges, test records."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

import pytest

import fedpriv
from fedpriv._toml import to_toml
from tests.simulations.describe.scenes import SCHEMA, study, written

if TYPE_CHECKING:
    from pathlib import Path


def rewritten(folder: Path, change: Any) -> None:
    """Another schema beside the table."""
    schema = tomllib.loads(to_toml(SCHEMA))
    change(schema["columns"])
    (folder / "schema.toml").write_text(to_toml(schema))


def test_a_description_is_of_test_records_too_and_its_statement_says_nothing_else(
    tmp_path: Path,
) -> None:
    experiment = written(tmp_path, study(300).assign(fold=["a", "b", "c"] * 100))
    schema = tomllib.loads((tmp_path / "schema.toml").read_text())
    schema = {"test_column": "fold", "test_values": ["c"], **schema}
    (tmp_path / "schema.toml").write_text(to_toml(schema))
    found = fedpriv.describe(experiment, privacy={"epsilon": 1.0}, describe={"bins": 8})
    assert found.statistics["total"]["count"] == 300
    assert "tested on" not in found.statement
    assert "'fold'" not in found.statement


def test_a_column_may_be_called_what_a_statistic_is(tmp_path: Path) -> None:
    """Its blocks stood in place of the total, which was missed when all was paid for."""
    names = {"age": "total", "weight": "correlation"}
    experiment = written(
        tmp_path, study(300).rename(columns=names), privacy={"adjacency": "add-remove"}
    )
    rewritten(
        tmp_path, lambda columns: [columns.update({b: columns.pop(a)}) for a, b in names.items()]
    )
    asked = {"columns": list(names.values()), "correlation": list(names.values())}
    experiment["describe"] = asked
    found = fedpriv.describe(experiment)
    assert found.statistics["total"]["noise"] > 0
    assert sorted(found.columns) == ["correlation", "total"]
    experiment["describe"] = {**asked, "weights": {"total": 2.0}}
    with pytest.raises(ValueError, match="is called that as well"):
        fedpriv.describe(experiment)


@pytest.mark.parametrize(
    ("weight", "top", "problem"), [(1e-200, 128, "weights"), (1.0, 1e200, "range of at most")]
)
def test_what_could_not_be_told_in_numbers_is_refused_before_it_is_paid(
    weight: float, top: float, problem: str, tmp_path: Path
) -> None:
    experiment = written(tmp_path, study(300))
    rewritten(tmp_path, lambda columns: columns["age"].update(max=top))
    experiment["describe"] = {"weights": {"age": weight}}
    with pytest.raises(ValueError, match=problem):
        fedpriv.describe(experiment)
