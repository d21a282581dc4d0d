"""Attacks on real digits: two of them clearly work without protection, and fade with it."""

from __future__ import annotations

import json
import os
from math import erf, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv._toml import to_toml
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.simulations.attack.attack import allowed, attack_experiment, in_words
from fedpriv.simulations.attack.figures import save_figures
from fedpriv.simulations.attack.inversion import STAGES, Inversion, invert
from fedpriv.simulations.attack.membership import infer_membership
from fedpriv.simulations.experiment.file import read_experiment
from fedpriv.simulations.run.prepare import check, prepare

if TYPE_CHECKING:
    from tests.simulations.conftest import Command

STUDY: dict[str, dict[str, Any]] = {
    "data": {"name": "synthetic", "partition": "iid", "parties": 4},
    "model": {"name": "logistic"},
    "strategy": {"name": "gradient-perturbation", "rounds": 20},
    "privacy": {"epsilon": 1.0, "delta": 1e-5, "adjacency": "replace-one"},
}
MNIST = Path(os.environ.get("FEDPRIV_DATA", ".")) / "mnist.npz"


@pytest.mark.skipif(not MNIST.exists(), reason="FEDPRIV_DATA has no mnist.npz")
def test_digits_are_remembered_and_read_without_protection_and_not_with_it() -> None:
    """16 models of 50 digits: AUC of chance has a standard deviation of 0.014 here."""
    study = {**STUDY, "data": {"name": "mnist:3v5", "partition": "iid", "parties": 4}}
    found = attack_experiment(read_experiment(study), records=50, models=16)
    curves = found.membership.curves
    assert curves["none", "lira"].area > 0.68
    assert curves["none", "loss"].area > 0.56
    assert found.bound is not None
    assert curves["none", "lira"].advantage > found.bound.advantage + 0.05
    for attack in ("loss", "lira"):
        assert curves["planned", attack].area < min(0.57, curves["none", attack].area - 0.02)
    read = found.inversion
    assert isinstance(read, Inversion)
    assert read.image_shape == (1, 28, 28)
    for stage in ("raw", "clipped"):
        assert read.likeness[stage].min() > 0.9999
    assert read.likeness["noisy"].max() < 0.2
    assert read.likeness["secure sum"].max() < 0.7


ADAPTIVE = {"strategy": {"name": "adaptive-clipping", "rounds": 20}}


@pytest.mark.parametrize(
    "change",
    [{"model": {"name": "logistic"}}, {"model": {"name": "huber-svm"}}, ADAPTIVE],
    ids=["logistic", "huber-svm", "adaptive clipping"],
)
def test_a_gradient_of_a_table_is_read_as_well(change: dict[str, Any]) -> None:
    own = prepare(read_experiment({**STUDY, **change}))
    read = invert(own, records=3)
    assert isinstance(read, Inversion)
    medians = [float(np.median(read.likeness[stage])) for stage in STAGES]
    assert min(medians[:2]) > 0.999
    assert max(medians[2:]) < 0.9


def test_what_sends_no_gradient_is_not_inverted() -> None:
    study = {**STUDY, "strategy": {"name": "output-perturbation"}, "model": {"l2": 0.01}}
    assert "ask for gradients" in str(invert(prepare(read_experiment(study))))


def test_the_bound_is_that_of_the_plan() -> None:
    strategy = check(prepare(read_experiment(STUDY)))
    assert strategy is not None
    assert strategy.plan is not None
    mu = strategy.plan.gdp_mu
    assert mu is not None
    assert allowed(strategy.plan).advantage == pytest.approx(erf(mu / sqrt(8)), abs=1e-3)


@pytest.mark.parametrize("adjacency", list(Adjacency), ids=lambda each: each.value)
def test_models_with_a_record_and_without_are_trained_on_neighbours(
    adjacency: Adjacency, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One step apart: exchanged where the number is public, else there by a coin of its own."""
    trained: list[tuple[int, ...]] = []

    def watched(experiment: Any, **facts: Any) -> Any:
        prepared = prepare(experiment, **facts)
        trained.append(tuple(np.diff(prepared.data.offsets).tolist()))
        return prepared

    monkeypatch.setattr("fedpriv.simulations.attack.shadows.prepare", watched)
    declared = {"data": {**STUDY["data"], "records": 4000}}
    private = {"privacy": {**STUDY["privacy"], "adjacency": adjacency.value}}
    own = {} if adjacency is Adjacency.REPLACE_ONE else declared
    study = {**STUDY, "strategy": {"name": "gradient-perturbation", "rounds": 1}, **private, **own}
    infer_membership(read_experiment(study), records=40, models=4)
    if adjacency is Adjacency.REPLACE_ONE:
        assert {*trained} == {(10, 10, 10, 10)}
    else:
        assert len({sum(sizes) for sizes in trained}) > 2


def test_no_bound_on_a_record_is_drawn_for_another_unit(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    study = {
        **STUDY,
        "strategy": {"name": "federated-averaging", "rounds": 1, "allow_swamped": True},
        "data": {**STUDY["data"], "parties": 20, "records": 4000},
        "privacy": {**STUDY["privacy"], "unit": "party", "adjacency": "add-remove"},
    }
    found = attack_experiment(read_experiment(study), records=40, models=4)
    assert found.bound is None
    assert found.to_dict()["membership"]["bound"] is None
    assert not any("allows" in line for line in in_words(found))
    assert found.attribute_bound is None
    assert len(save_figures(found, tmp_path)) == 4


def test_the_command_writes_numbers_and_pictures(fedpriv: Command, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path, out = tmp_path / "study.toml", tmp_path / "out"
    path.write_text(to_toml(STUDY), encoding="utf-8")
    done = fedpriv("attack", path, "--records", 40, "--models", 6, "--out", out)
    assert done.code == 0, done.err
    assert "what the guarantee allows at most" in done.out
    written = json.loads((out / "attacks.json").read_text())
    assert written["membership"]["records"] == 40
    assert set(written["inversion"]) == set(STAGES)
    names = {each.name for each in out.iterdir()}
    assert {
        f"{name}.{end}"
        for name in ("membership", "inversion", "attribute")
        for end in ("png", "svg")
    } < names


def test_a_tuning_is_refused_with_what_to_attack_instead() -> None:
    tuning = {"tuning": {"on": "private", "grid": {"strategy.clip": [0.1, 1.0]}}}
    with pytest.raises(ValueError, match="with the setting that the tuning chose"):
        attack_experiment(read_experiment({**STUDY, **tuning}))


def test_a_release_is_not_attacked(fedpriv: Command, tmp_path: Path) -> None:
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "run.json").write_text(json.dumps({"release": True}))
    (tmp_path / "config.toml").write_text(to_toml(STUDY), encoding="utf-8")
    done = fedpriv("attack", tmp_path / "config.toml", "--out", tmp_path / "out")
    assert done.code == 2
    assert "attacks are for simulations" in done.message
    (tmp_path / "private" / "run.json").write_text(json.dumps({"release": False}))
    done = fedpriv("attack", tmp_path / "config.toml", "--records", 10**6, "--out", tmp_path / "o")
    assert "half of those that there are" in done.message  # a simulation is, but for that
