"""The page about claims: its example prints what it says, and its tables are complete."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from fedpriv.audit.claims import KINDS, Outcome

if TYPE_CHECKING:
    from tests.simulations.conftest import Command

PAGE = (Path(__file__).parents[3] / "docs" / "claims.md").read_text(encoding="utf-8")


def test_the_example_prints_what_the_page_says(fedpriv: Command, tmp_path: Path) -> None:
    (claim,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    (printed,) = re.findall(r"```text\n\$ fedpriv check claim.toml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "claim.toml").write_text(claim)
    done = fedpriv("check", tmp_path / "claim.toml")
    assert done.code == 1
    assert done.out.splitlines()[0] == printed.strip()


def test_every_kind_is_told_with_the_version_that_was_read() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    for name, kind in KINDS.items():
        (row,) = (line for line in rows if f"`{name}`" in line.split("|")[1])
        assert kind.source in row


def test_every_outcome_is_told() -> None:
    told = {f"| `{outcome.value}` |" for outcome in Outcome if outcome is not Outcome.UNSTATED}
    assert all(each in PAGE for each in told)
