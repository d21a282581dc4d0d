"""`fedpriv audit`: its words, its file, its exit status."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from fedpriv._toml import to_toml
from fedpriv.privacy.mechanisms import GaussianMechanism
from tests.simulations.audit.scenes import BASE

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.simulations.conftest import Command


def _study(folder: Path) -> Path:
    path = folder / "study.toml"
    path.write_text(to_toml(BASE), encoding="utf-8")
    return path


def test_it_says_what_was_claimed_and_what_was_measured(fedpriv: Command, tmp_path: Path) -> None:
    options = ("--runs", 30, "--seed", 1, "--out", tmp_path / "out")
    done = fedpriv("audit", _study(tmp_path), *options)
    assert done.code == 0
    said = " ".join(done.out.split())
    assert "claimed ε = 8 at δ = 1e-05 (μ = 1.67); measured at least ε ≥" in said
    assert "with 95 % confidence, 2 × 30 runs" in said
    assert "proves nothing more" in said
    written = json.loads((tmp_path / "out" / "audit.json").read_text())
    assert written["runs"] == 30
    assert len(written["config_hash"]) == 64
    assert written["passed"] is True


def test_json_and_settings(fedpriv: Command, tmp_path: Path) -> None:
    study = _study(tmp_path)
    options = ("--runs", 20, "--seed", 3, "--confidence", 0.9, "--model-only", "--json")
    found = fedpriv(
        "audit", study, "--set", "privacy.epsilon=4", *options, "--out", tmp_path / "out"
    ).json()
    assert (found["seed"], found["confidence"], found["sees"]) == (3, 0.9, "the last model")
    assert found["claimed"]["epsilon"] <= 4


def test_a_contradicted_claim_ends_with_status_1(
    fedpriv: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = GaussianMechanism._draw
    monkeypatch.setattr(GaussianMechanism, "_draw", lambda *facts: whole(*facts) // 4)
    done = fedpriv("audit", _study(tmp_path), "--runs", 40, "--out", tmp_path / "out")
    assert done.code == 1
    assert "VIOLATED" in done.out


def test_wrong_input_ends_with_status_2(fedpriv: Command, tmp_path: Path) -> None:
    done = fedpriv("audit", _study(tmp_path), "--runs", 5, "--out", tmp_path / "out")
    assert done.code == 2
    assert "runs must be at least 20" in done.message
    assert not (tmp_path / "out").exists()
