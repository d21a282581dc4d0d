"""Entry points: strategies and data that an installed package brings."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING

from fedpriv.simulations.experiment.catalogue import strategy_info
from fedpriv.simulations.experiment.file import read_experiment
from fedpriv.simulations.experiment.named_files import guests
from fedpriv.strategies import STRATEGIES
from tests.simulations.experiment.named_files.guests import STRATEGY, digest_of

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.simulations.conftest import Command


def installed(monkeypatch: pytest.MonkeyPatch, group: str, name: str, value: str) -> None:
    points = (EntryPoint(name=name, value=value, group=group),)
    monkeypatch.setattr(guests, "_points", lambda asked: points if asked == group else ())


def test_an_installed_strategy_is_named_by_its_entry_point(
    fedpriv: Command, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "acme_noise.py").write_text(STRATEGY)
    monkeypatch.syspath_prepend(tmp_path)
    installed(monkeypatch, "fedpriv.strategies", "acme", "acme_noise:SignDescent")
    experiment = read_experiment(file, ["strategy.name=acme"])
    pin = experiment.guests["fedpriv.strategies:acme"]
    assert pin == f"sha256:{digest_of(tmp_path / 'acme_noise.py')}"
    assert strategy_info("acme", experiment.guests).name.startswith("acme of a package (sha256 ")
    assert "acme" in {entry["name"] for entry in fedpriv("list", "strategies", "--json").json()}


def test_an_entry_point_cannot_take_a_name_of_fedpriv(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(monkeypatch, "fedpriv.strategies", "gradient-perturbation", "acme_noise:SignDescent")
    experiment = read_experiment(file, ["strategy.name=gradient-perturbation"])
    assert list(experiment.guests) == [str(file.with_name("mine.py"))]  # that of the comparison
    found = strategy_info("gradient-perturbation", experiment.guests)
    assert found is STRATEGIES["gradient-perturbation"]


def test_an_entry_point_cannot_take_a_variant_of_a_data_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    installed(monkeypatch, "fedpriv.data", "digits:3v5", "acme_noise:records")
    assert not guests.is_guest("data", "digits:3v5")
    installed(monkeypatch, "fedpriv.data", "acme", "acme_noise:records")
    assert guests.is_guest("data", "acme")
