"""The parts of Flower's inside that fedpriv relies on are all listed, and all as they were."""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import fedpriv
from fedpriv._toml import to_toml
from fedpriv.simulations.deploy.flower import patches
from fedpriv.simulations.deploy.health import doctor
from fedpriv.simulations.deploy.health.checks import Fault

ROOT = Path(fedpriv.__file__).parents[1]
PARTS = patches.read_parts()


def imported() -> set[str]:
    """Every name that fedpriv imports from Flower beyond its documented interface."""
    names = set()
    for folder in ("fedpriv", "strategies", "simulations"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("flwr"):
                    names |= {f"{node.module}.{each.name}" for each in node.names}
                elif isinstance(node, ast.Import):
                    names |= {each.name for each in node.names if each.name.startswith("flwr.")}
    return {name for name in names if name.rpartition(".")[0] not in patches.DOCUMENTED}


def test_every_name_that_is_imported_from_flowers_inside_is_listed() -> None:
    missing = sorted(imported() - PARTS.used.keys() - PARTS.replaced.keys())
    shapes = {name: patches.shape_of(patches.part(name)) for name in missing}
    assert not missing, f"add to [used] of parts.toml:\n{to_toml(shapes)}"


def test_nothing_is_listed_twice_or_out_of_order() -> None:
    assert not PARTS.used.keys() & PARTS.replaced.keys()
    for table in (PARTS.used, PARTS.replaced, PARTS.tables):
        assert list(table) == sorted(table)


def test_flowers_inside_is_as_it_was_when_the_list_was_made() -> None:
    assert patches.differences(PARTS) == []


@pytest.mark.parametrize(
    ("table", "name", "shape", "complaint"),
    [
        ("replaced", "flwr.superlink.extensions.nothing", "()", "is gone"),
        ("replaced", "flwr.superlink.nowhere.nothing", "()", "is gone"),
        ("used", "flwr.superlink.extensions.get_middleware", "(app)", "was (app) and is ()"),
        ("used", "flwr.common.constant.SUPERLINK_NODE_ID", "2", "was 2 and is 1"),
        ("tables", "message_ins", ["message_id", "sender"], "the column sender of the table"),
        ("tables", "letters", ["id"], "the column id of the table letters is gone"),
    ],
)
def test_what_is_gone_or_has_changed_is_named(
    table: str, name: str, shape: object, complaint: str
) -> None:
    listed: Any = {table: {**getattr(PARTS, table), name: shape}}
    (difference,) = patches.differences(replace(PARTS, **listed))
    assert complaint in difference


@pytest.mark.parametrize("program", ["superlink", "supernode", "replies"])
def test_whatever_a_program_replaces_is_listed_as_such(program: str) -> None:
    """A program lists in `changes` whatever it replaces."""
    module = import_module(f"fedpriv.simulations.deploy.flower.{program}")
    changed = {f"{owner.__name__}.{name}" for owner, name, _ in module.changes()}
    assert changed <= PARTS.replaced.keys()


def test_the_list_is_made_for_the_version_that_is_tested() -> None:
    constraints = (ROOT / "constraints.txt").read_text()
    assert f"flwr=={PARTS.tested}\n" in constraints


def test_the_doctor_says_which_flower_was_tested_and_whether_it_is_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tested = PARTS.tested
    monkeypatch.setattr(patches, "installed", lambda: tested)
    assert doctor._versions() == f"fedpriv {version('fedpriv')}, flwr {tested}, the one tested"
    monkeypatch.setattr(patches, "installed", lambda: "1.41.99")
    assert doctor._versions().endswith(f"1.41.99; tested was {tested}, of which 0 parts differ")
    other = replace(PARTS, replaced={"flwr.superlink.extensions.nothing": "()"})
    monkeypatch.setattr(patches, "read_parts", lambda: other)
    with pytest.raises(Fault, match=r"of which 1 parts differ; .*nothing is gone") as caught:
        doctor._versions()
    assert caught.value.remedy == f"install flwr {tested}."


def test_a_superlink_that_cannot_be_guarded_does_not_start() -> None:
    code = (
        "from flwr.superlink.servicer.fleet import fleet_handlers\n"
        "from fedpriv.simulations.deploy.flower import superlink\n"
        "changes = superlink.changes()\n"
        "superlink.changes = lambda: changes\n"
        "del fleet_handlers.push_messages\n"
        "superlink.main()\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    assert ended.returncode == 1
    assert "this Flower has no push_messages" in ended.stderr
