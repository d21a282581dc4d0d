"""The page about statistics does what it says."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpriv.federation.deployed.policy import PartyPolicy

if TYPE_CHECKING:
    import pytest

PAGE = (Path(__file__).parents[3] / "docs" / "statistics.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_page_can_be_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    schema, study, policy = blocks("toml")
    Path("schema.toml").write_text(schema)
    Path("study.toml").write_text(study)
    names: dict[str, Any] = {}
    for example in blocks("python"):
        exec(example, names)  # noqa: S102 (our own page)
    found = names["found"]
    assert found.epsilon <= 1.0
    assert list(found.to_frame().index) == ["age", "weight", "years"]
    assert found.statistics["tables"][0]["odds_ratio"] > 1
    assert set(found.statistics["survival"]["curves"]) == {"no", "yes"}
    assert abs(found.columns["years"]["mean"] - names["columns"]["years"].mean()) < 0.2
    assert set(tomllib.loads(policy)) <= set(PartyPolicy.__dataclass_fields__)
