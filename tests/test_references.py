"""References in code and documents: every module, name and file that they mention exists."""

import importlib
import re
from functools import reduce
from pathlib import Path

import pytest

from fedpriv.simulations.experiment.named_files.guests import GROUPS

ROOT = Path(__file__).parents[1]
FOLDERS = ("fedpriv", "strategies", "simulations", "tests", "benchmarks")
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
SOURCES = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]

NAME = re.compile(r"`(fedpriv(?:\.\w+)+)(?:\([^`]*\))?`")
FILE = re.compile(rf"(?<![\w/.-])((?:{'|'.join(FOLDERS)}|docs)/[\w/.-]*\w\.(?:py|toml|json|md))\b")


def mentions(pattern: re.Pattern[str], paths: list[Path]) -> dict[str, str]:
    """What the pattern finds, and a place where it is mentioned."""
    return {
        match[1]: str(path.relative_to(ROOT))
        for path in paths
        for match in pattern.finditer(path.read_text())
    }


def resolves(name: str) -> bool:
    """Whether a dotted name is a module, or can be reached from one."""
    module, rest = name, list[str]()
    while module:
        try:
            reduce(getattr, rest, importlib.import_module(module))
        except ModuleNotFoundError:
            module, _, last = module.rpartition(".")
            rest.insert(0, last)
        except AttributeError:
            return False
        else:
            return True
    return False


@pytest.mark.parametrize(("name", "place"), mentions(NAME, [*PAGES, *SOURCES]).items())
def test_a_dotted_name_exists(name: str, place: str) -> None:
    entry_points = GROUPS.values()  # which look like modules
    assert name in entry_points or resolves(name), f"{place} mentions {name}"


@pytest.mark.parametrize(("file", "place"), mentions(FILE, [*PAGES, *SOURCES]).items())
def test_a_file_exists(file: str, place: str) -> None:
    assert (ROOT / file).exists(), f"{place} mentions {file}"


def test_what_does_not_exist_is_noticed() -> None:
    assert resolves("fedpriv.privacy.conversions.group_privacy")
    assert not resolves("fedpriv.privacy.conversions.no_such_function")
    assert not resolves("fedpriv.privacy.no_such_module")
