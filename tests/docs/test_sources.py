"""docs/sources.md: every file and name on it exists, and every command on it is complete."""

from __future__ import annotations

import re
from importlib import import_module
from itertools import product
from typing import TYPE_CHECKING

import pytest

from fedpriv.simulations.experiment.file import read_experiment
from fedpriv.simulations.experiment.sources import built_in_experiments
from fedpriv.strategies import STRATEGIES
from tests.docs.blocks import ROOT, text_of, words
from tests.docs.test_blocks import leaf

if TYPE_CHECKING:
    from tests.simulations.conftest import Command

TEXT = text_of("sources.md")
COMMANDS = [words(line) for line in re.findall(r"`(fedpriv [a-z]+ [^`]*)`", TEXT)]
QUICK = [given for given in COMMANDS if given[0] in {"account", "calibrate", "schedule"}]
FOLDERS = ("fedpriv/", "strategies/", "simulations/", "benchmarks/", "tests/")


def spelled_out(path: str) -> list[str]:
    """The paths that one with braces stands for: a/{b,c}.py is a/b.py and a/c.py."""
    parts = [part.split(",") for part in re.split(r"[{}]", path)]
    return ["".join(chosen) for chosen in product(*parts)]


def test_every_file_exists() -> None:
    named = [
        path
        for quoted in re.findall(r"`([^`\n]+)`", TEXT)
        if quoted.startswith(FOLDERS)
        for path in spelled_out(quoted.split("::")[0])
    ]
    assert len(named) > 80
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_every_name_in_python_exists() -> None:
    named = re.findall(r"`(fedpriv(?:\.\w+)+)`", TEXT)
    assert named
    for name in named:
        module, _, attribute = name.rpartition(".")
        assert hasattr(import_module(module), attribute), name


def test_every_strategy_that_promises_something_or_frames_it_is_on_the_page() -> None:
    elsewhere = {"federated-averaging", "scaffold"}  # of no source here: docs/fedavg.md
    quoted = set(re.findall(r"\"([a-z][a-z-]*)\"", TEXT))
    assert set(STRATEGIES) - quoted == elsewhere


@pytest.mark.parametrize("given", COMMANDS, ids=" ".join)
def test_every_command_has_what_it_needs(given: list[str]) -> None:
    command, context, rest = leaf(given)
    context = command.make_context(given[0], rest, parent=context.parent)  # or a UsageError
    name = context.params.get("experiment")
    if name in built_in_experiments():
        read_experiment(name, context.params["settings"] or [])
    else:
        assert given[0] not in {"audit", "compare", "run"}


@pytest.mark.parametrize("given", QUICK, ids=" ".join)
def test_a_quick_command_runs(given: list[str], fedpriv: Command) -> None:
    told = fedpriv(*given)
    assert told.code == 0, told.err
    assert told.out


def test_every_benchmark_exists() -> None:
    named = re.findall(r"`python -m benchmarks (\w+)`", TEXT)
    assert named
    for name in named:
        assert (ROOT / "benchmarks" / f"{name}.py").exists(), name
