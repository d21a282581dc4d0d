"""docs/fedavg.md: its example runs, its commands print what it shows, its options are explained."""

from __future__ import annotations

import doctest
import re
import shlex
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fedpriv.simulations.experiment.catalogue import checked
from fedpriv.simulations.experiment.file import parse_experiment, read_experiment
from fedpriv.simulations.run.prepare import build_federation, build_strategy, prepare, train
from fedpriv.strategies.federated_averaging import AveragingOptions

if TYPE_CHECKING:
    from tests.simulations.conftest import Command

PAGE = Path(__file__).parents[3] / "docs" / "fedavg.md"
TEXT = PAGE.read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, flags=re.DOTALL)


def run(values: dict[str, Any]) -> float:
    prepared = prepare(parse_experiment(values))
    strategy = build_strategy(prepared, run="docs")
    train(strategy, build_federation(prepared, run="docs"), lambda _query, _sum: True)
    score = prepared.evaluator.score(strategy.theta)
    assert score is not None
    assert score.accuracy is not None
    return score.accuracy


def test_the_example_runs_in_all_its_variants() -> None:
    (example,) = blocks("toml")
    values = tomllib.loads(example)
    assert run(values) > 0.65
    for line in re.findall(r"^# (\w+ = [^#\n]*)", example, flags=re.MULTILINE):
        changed = {**values, "strategy": {**values["strategy"], **tomllib.loads(line)}}
        assert run(changed) > 0.5
    twin = {**values, "strategy": {**values["strategy"], "clip": 0.1}}
    assert run(twin) > 0.5


def test_commands_print_what_the_document_shows(fedpriv: Command) -> None:
    (block,) = blocks("console")
    command, _, expected = block.partition("\n")
    assert expected
    assert fedpriv(*shlex.split(command)[2:]).out == expected


def test_its_python_says_what_it_shows() -> None:
    done = doctest.testfile(str(PAGE), module_relative=False)
    assert done.attempted >= 5
    assert done.failed == 0


def test_every_option_is_explained() -> None:
    named = set(re.findall(r"`(\w+)`", TEXT))
    unexplained = set(AveragingOptions.model_fields) - named - {"accountant", "seed"}
    assert unexplained == set()


@pytest.mark.parametrize("name", ["fedavg", "client_level"])
def test_its_experiments_are_well_formed(name: str) -> None:
    experiment = checked(read_experiment(name))
    assert experiment.privacy.unit == "party"
    assert experiment.compare is not None
