"""docs/schedules.md says what the commands print and what an experiment may say."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fedpriv.simulations.experiment.catalogue import checked
from fedpriv.simulations.experiment.file import read_experiment
from fedpriv.strategies.gradient_perturbation import GradientOptions

if TYPE_CHECKING:
    from tests.simulations.conftest import Command

TEXT = (Path(__file__).parents[3] / "docs" / "schedules.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, flags=re.DOTALL)


def test_commands_print_what_the_document_shows(fedpriv: Command) -> None:
    shown = [block for block in blocks("console") if block.startswith("$ fedpriv schedule")]
    assert shown
    for block in shown:
        command, _, expected = block.partition("\n")
        done = fedpriv(*shlex.split(command)[2:])
        assert done.out == expected


def test_every_schedule_of_the_example_is_one() -> None:
    (example,) = blocks("toml")
    lines = [line.removeprefix("# ") for line in example.splitlines()]
    variants = [line for line in lines if line.startswith(("schedule =", "sampling_rate ="))]
    assert len(variants) == 9
    for variant in variants:
        stated = re.search(r'optimiser = "([a-z-]+)"', variant)
        optimiser = stated[1] if stated else "sgd"
        GradientOptions.model_validate(
            {"rounds": 100, "optimiser": optimiser, **tomllib.loads(variant)}
        )


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("schedule=dynamc", "strategy.schedule must be 'uniform', 'dynamic' or 'momentum', got"),
        ('schedule={name="dynamic",gamma=1.9}', "strategy.schedule.gamma must be less than 1"),
        ('schedule={name="dynamic",gama=0.9}', "strategy.schedule.gama is not a known key. Did"),
        ('schedule={name="step"}', "strategy.schedule.every is missing."),
        ("schedule=[1.0,-2.0]", "strategy.schedule.1 must be greater than 0, got -2.0."),
        ("schedule=momentum", "strategy.optimiser must be 'debiased-momentum' for schedule = 'mom"),
        ("sampling_rate={first=0.1}", "strategy.sampling_rate.factor is missing."),
        ("sampling_rate=2.0", "strategy.sampling_rate must be at most 1, got 2.0."),
    ],
)
def test_a_wrong_schedule_is_one_sentence_about_the_form_that_was_meant(
    setting: str, message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        checked(read_experiment("chem97", ["strategy.optimiser=sgd", f"strategy.{setting}"]))
