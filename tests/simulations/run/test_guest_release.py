"""A release with code of the user's own: paid for like any other, and signed for what it is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv.privacy.ledger import Kind, Ledger
from fedpriv.simulations.experiment.file import read_experiment
from fedpriv.simulations.run import release_outcome as outcome
from fedpriv.simulations.run.prepare import prepare
from fedpriv.simulations.run.session import carry_on, reopen, start
from tests.simulations.experiment.test_own_docs import files

if TYPE_CHECKING:
    from pathlib import Path

    from tests.simulations.conftest import Command


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for page in ("own-strategy.md", "own-model.md"):
        for name, code in files(page).items():
            (tmp_path / name).write_text(code, encoding="utf-8")
    return tmp_path


def release(fedpriv: Command, folder: Path, *arguments: object) -> Path:
    out, book = folder / "out", folder / "data.ledger"
    done = fedpriv("run", *arguments, "--release", "--ledger", book, "--new-ledger", "--out", out)
    assert done.code == 0, done.err
    return out


def test_every_round_of_an_own_strategy_is_paid_for_and_signed(
    fedpriv: Command, folder: Path
) -> None:
    out = release(fedpriv, folder, folder / "signs.toml", "--set", "strategy.rounds=5")
    with Ledger.open(folder / "data.ledger", read_only=True) as ledger:
        kinds = [row.kind for row in ledger.rows()]
        assert kinds.count(Kind.RESERVED) == kinds.count(Kind.COMMITTED) == 5
        assert ledger.spent().guarantee.epsilon == pytest.approx(1.0, rel=1e-6)
    result = json.loads((out / "result.json").read_text())
    assert set(result) <= set(outcome.RESULT)
    assert {p.name for p in out.iterdir()} == {*outcome.FILES, "private"}
    assert result["strategy"].startswith("signs.py:SignDescent (sha256 ")
    text = " ".join((out / "statement.txt").read_text().split())
    assert result["guests"][0]["sha256"] in text
    assert "gradient-perturbation" not in text
    assert "declared by its author" not in text  # nothing rests on anybody's word here


@pytest.mark.parametrize("strategy", ["output-perturbation", "objective-perturbation"])
def test_a_release_that_rests_on_an_own_loss_says_so_first(
    fedpriv: Command, folder: Path, strategy: str
) -> None:
    name = f"strategy.name={strategy}"
    out = release(fedpriv, folder, folder / "losses.toml", "--set", name)
    statement = json.loads((out / "statement.json").read_text())
    first = statement["warnings"][0]
    assert "declared by its author and not refuted by a search, which is no proof" in first
    assert "losses.py:PseudoHuberHinge (gradient bound 1, smoothness 0.5" in first
    assert "that it treats every record on its own was tested" in statement["run"]["guests"][0]
    assert "declared by its author" in " ".join((out / "statement.txt").read_text().split())
    assert "declared by its author" in " ".join((out / "statement.yaml").read_text().split())


def test_a_release_names_all_that_an_own_loss_declares_of_itself(
    fedpriv: Command, folder: Path
) -> None:
    """That slopes have one sign, for which there is less noise, was not told."""
    code = folder / "losses.py"
    code.write_text(
        code.read_text().replace("domain_radius =", "one_sided = True\n    domain_radius =")
    )
    name = "strategy.name=objective-perturbation"
    out = release(fedpriv, folder, folder / "losses.toml", "--set", name)
    first = json.loads((out / "statement.json").read_text())["warnings"][0]
    assert "smoothness 0.5, convexity, slopes of one sign, rounding of a slope 1e-15)" in first


def test_clipped_gradients_do_not_rest_on_the_constants_of_a_loss(
    fedpriv: Command, folder: Path
) -> None:
    few = ("--set", "strategy.name=gradient-perturbation", "--set", "strategy.rounds=3")
    out = release(fedpriv, folder, folder / "losses.toml", *few)
    statement = json.loads((out / "statement.json").read_text())
    assert not any("declared" in warning for warning in statement["warnings"])
    assert "losses.py:PseudoHuberHinge" in statement["run"]["guests"][0]


def theta(directory: Path) -> np.ndarray[Any, Any]:
    with np.load(directory / "model.npz") as arrays:
        return np.array(arrays["theta"])


def test_an_own_strategy_with_a_memory_is_resumed_to_the_bit(folder: Path) -> None:
    settings = [f"strategy.name={folder}/momentum.py:Momentum", "strategy.rounds=6"]
    experiment = read_experiment(folder / "signs.toml", settings)
    for name in ("whole", "broken"):
        start(prepare(experiment), folder / name)
    assert carry_on(reopen(folder / "whole")) is not None
    for _ in range(3):
        assert carry_on(reopen(folder / "broken"), stop=lambda: True) is None
    assert carry_on(reopen(folder / "broken")) is not None
    assert (theta(folder / "whole") == theta(folder / "broken")).all()
