"""The architecture page and the code agree: its tree, the places it names, and its walls."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"
MOST_MODULES = 14

_spec = importlib.util.spec_from_file_location("house", ROOT / "docs" / "site" / "house.py")
assert _spec is not None
assert _spec.loader is not None
house = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(house)


def test_the_tree_is_that_of_the_code() -> None:
    page = PAGE.read_text()
    assert page == house.with_tree(page), "write it anew with: python docs/site/house.py"


def test_the_tree_has_every_folder_with_code() -> None:
    listed = subprocess.run(
        ["git", "ls-files", *house.TOP], cwd=ROOT, capture_output=True, text=True, check=True
    )
    folders = {Path(name).parent for name in listed.stdout.split() if name.endswith(".py")}
    assert folders == set(house.packages())


def test_every_place_on_the_page_exists() -> None:
    places = [
        place for place in re.findall(r"`([\w/]+(?:\.py|/))`", PAGE.read_text()) if "/" in place
    ]
    outside_the_tree = [place for place in places if place.count("/") > 1 or place.endswith(".py")]
    assert len(outside_the_tree) > 30
    assert [place for place in outside_the_tree if not (ROOT / place).exists()] == []


def test_the_walls_on_the_page_are_those_that_are_held() -> None:
    """The contracts are read by import-linter in the lint step; here, that they say the same."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    layers, heavy = project["tool"]["importlinter"]["contracts"]
    assert layers["layers"][:4] == [
        "simulations",
        "strategies",
        "federation : audit",
        "privacy | learning | secagg | data | inference",
    ]
    assert heavy["source_modules"] == ["fedpriv.privacy", "fedpriv.secagg"]
    assert {"torch", "flwr"} <= set(heavy["forbidden_modules"])


@pytest.mark.parametrize("folder", house.packages(), ids=str)
def test_a_package_says_what_is_in_it_and_why_it_is_large(folder: Path) -> None:
    text = (ROOT / folder / "__init__.py").read_text()
    assert house.first_paragraph(folder).endswith(".")
    modules = [path for path in (ROOT / folder).glob("*.py") if path.name != "__init__.py"]
    if len(modules) > MOST_MODULES:
        reasons = (
            r"(?i)one per file|one file (for|per)|few (modules )?more|module more|however many"
        )
        assert re.search(reasons, " ".join(text.split())), (
            f"{folder} has {len(modules)} modules, more than {MOST_MODULES}: say in its docstring "
            "why it is no two packages, or make two of it."
        )
