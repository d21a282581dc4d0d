"""Every guarantee in docs/sources.md names tests that exist, and cases that they have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "sources.md"
TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`(?:: (.+))?")


def table() -> list[list[str]]:
    """The rows of the table, without its head."""
    text = PAGE.read_text(encoding="utf-8")
    lines = text[text.index("## Guarantees and the tests that hold them") :].splitlines()
    rows = [line.strip("|").split(" | ") for line in lines if line.startswith("| ")]
    return [[cell.strip() for cell in row] for row in rows[1:]]


def missing(cell: str) -> str:
    """What a cell names and there is not; empty if there is, or if it says why there is none."""
    if re.fullmatch(r"none: .{10,}", cell):
        return ""
    found = TEST.fullmatch(cell)
    if found is None:
        return f"no test is named: {cell!r}"
    file, name, case = found.groups()
    if not (ROOT / file).exists():
        return f"there is no file {file}"
    text = (ROOT / file).read_text(encoding="utf-8")
    if name is not None and f"\ndef {name}(" not in text:
        return f"there is no test {name} in {file}"
    if case is not None and f'name="{case}"' not in _with_imported_lists(text):
        return f"there is no case {case!r} in {file}"
    return "" if (name or case) else f"neither a test nor a case is named of {file}"


def _with_imported_lists(text: str) -> str:
    """A test file, and the files beside it that it takes its cases from."""
    names = re.findall(r"^from tests\.audit\.(\w+) import", text, re.MULTILINE)
    files = [ROOT / "tests" / "audit" / f"{name}.py" for name in names]
    return "".join([text, *(file.read_text(encoding="utf-8") for file in files)])


@pytest.mark.parametrize("row", table(), ids=lambda row: row[0])
def test_a_guarantee_names_tests_that_exist(row: list[str]) -> None:
    _guarantee, oracle, fault, files = row
    assert [missing(cell) for cell in (oracle, fault, files)] == ["", "", ""]
    assert TEST.fullmatch(oracle)  # of an oracle there is no reason to have none


def test_what_is_missing_is_noticed() -> None:
    here = "tests/docs/test_guarantees.py"
    assert missing(f"`{here}::test_what_is_missing_is_noticed`") == ""
    assert "there is no test" in missing(f"`{here}::test_that_is_not_there`")
    assert "there is no file" in missing(f"`{here[:-3]}_gone.py::test_it`")
    assert "there is no case" in missing("`tests/audit/covering_sample.py`: no such case")
    assert "neither" in missing(f"`{here}`")
    assert "no test is named" in missing("yes")
    assert len(table()) > 20
