"""A dossier says in words what the signed values say: no signer puts others in their place."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from fedpriv.simulations.dossier.bundle import MANIFEST
from fedpriv.simulations.dossier.evidence import Evidence
from fedpriv.simulations.dossier.verifying import verify_bundle
from tests.federation.deployed.statement_scenes import Scene
from tests.simulations.dossier.scenes import deployed, released, simulated
from tests.simulations.dossier.test_verify_dossier import bundled, checks

if TYPE_CHECKING:
    from pathlib import Path

    from tests.simulations.conftest import Command

FIT = """
[data]
path = "people.csv"
schema = "people.toml"
parties = 1
partition = "hashed"
scaling = "divide"
[strategy]
name = "inference"
[model]
name = "linear"
loss = "squared"
[privacy]
epsilon = 5.0
delta = 1e-6
"""
PEOPLE = """
label = "score"
columns.dose = { kind = "number", min = -1, max = 1 }
columns.score = { kind = "number", min = -2, max = 2 }
"""


@pytest.mark.parametrize(
    ("name", "old", "new", "check"),
    [
        ("statement.txt", "unit: one record", "unit: one person", "text"),
        ("statement.txt", "(epsilon, delta) = (", "(epsilon, delta) = (0.0", "text"),
        ("statement.yaml", "privacy_unit: Record", "privacy_unit: Person", "registry"),
        ("statement.yaml", "model_name: Federated", "model_name: Local", "registry"),
    ],
)
def test_words_that_no_party_has_signed_are_found(
    tmp_path: Path, name: str, old: str, new: str, check: str
) -> None:
    """They stood in the page and in the entry, beside true signatures of all, and it held."""
    scene = Scene.make()
    run = deployed(scene, tmp_path / "run")
    before = (run / name).read_text()
    assert old in before
    (run / name).write_text(before.replace(old, new, 1))
    out = bundled(run, tmp_path / "out")
    found = checks(out, roster=scene.pinned)
    assert found["dossier"].passed is True  # it follows from what lies there
    assert found[check].passed is False
    assert not verify_bundle(out / MANIFEST, roster=scene.pinned).verdict.sound


def test_a_deployed_run_is_not_told_of_as_another(tmp_path: Path) -> None:
    """By its result alone it was one in one place, with the same signatures, or with none."""
    scene = Scene.make()
    run = deployed(scene, tmp_path / "run")
    result = json.loads((run / "result.json").read_text())
    (run / "result.json").write_text(json.dumps(result | {"engine": "vectorized"}))
    with pytest.raises(ValueError, match="is of no deployed run"):
        Evidence.of_run(run)
    (run / "statement.signed.json").unlink()
    assert not Evidence.of_run(run).deployed  # nothing tells
    with (run / "config.toml").open("a") as config:
        config.write('[run]\nengine = "deployment"\n')
    with pytest.raises(ValueError, match="a deployed run has a statement"):
        Evidence.of_run(run)


def test_a_simulation_says_so_in_its_text(fedpriv: Command, tmp_path: Path) -> None:
    run = simulated(fedpriv, tmp_path)
    assert checks(bundled(run, tmp_path / "true"))["text"].passed is True
    text = (run / "statement.txt").read_text()
    assert text.startswith("SIMULATED")
    (run / "statement.txt").write_text(text.partition("\n")[2])
    assert checks(bundled(run, tmp_path / "other"))["text"].passed is False


def test_blanks_are_for_people_to_fill_in(tmp_path: Path) -> None:
    scene = Scene.make()
    run = deployed(scene, tmp_path / "run")
    entry = (run / "statement.yaml").read_text()
    assert "TO BE FILLED IN" in entry
    (run / "statement.yaml").write_text(entry.replace("TO BE FILLED IN", "the clinics"))
    found = checks(bundled(run, tmp_path / "out"), roster=scene.pinned)
    assert found["registry"].passed is True
    assert found["text"].passed is True


def test_a_table_of_coefficients_is_that_of_the_result(fedpriv: Command, tmp_path: Path) -> None:
    rows = "".join(f"{k / 100 - 1},{k / 100 - 1}\n" for k in range(200))
    (tmp_path / "people.csv").write_text(f"dose,score\n{rows}")
    (tmp_path / "people.toml").write_text(PEOPLE)
    run = released(fedpriv, tmp_path, FIT)
    text = (run / "statement.txt").read_text()
    assert "Coefficients" in text
    found = checks(bundled(run, tmp_path / "out"))["text"]
    assert found.passed is True
    assert "as the signer says" in found.words
    result = json.loads((run / "result.json").read_text())
    result["coefficients"]["rows"][0]["estimate"] += 1.0
    (run / "result.json").write_text(json.dumps(result))
    assert checks(bundled(run, tmp_path / "other"))["text"].passed is False


def test_an_entry_that_takes_long_to_read_is_not_read(tmp_path: Path) -> None:
    run = deployed(Scene.make(), tmp_path / "run")
    with (run / "statement.yaml").open("a") as entry:
        entry.write("more: [" + "[], " * 300_000 + "]\n")
    with pytest.raises(ValueError, match="at most 1048576 bytes"):
        Evidence.of_run(run)
