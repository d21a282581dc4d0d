"""A release that must have one draw has one; and the secret of it is gone with its result."""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv._durable import synchronise
from fedpriv.privacy.planning.objective.objective import ObjectiveMechanism
from fedpriv.simulations.experiment.file import parse_experiment
from fedpriv.simulations.run import ending, session
from fedpriv.simulations.run.launch import carry_through, open_session
from fedpriv.simulations.run.ledgers import open_ledger

if TYPE_CHECKING:
    from pathlib import Path

FITS: dict[str, dict[str, Any]] = {
    "objective": {"strategy": {"name": "objective-perturbation"}},
    "inference": {"strategy": {"name": "inference"}, "data": {"scaling": "divide"}},
}


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Every linear term that is drawn."""
    found: list[bytes] = []
    draw = ObjectiveMechanism.draw_linear

    def noted(self: ObjectiveMechanism, *facts: Any) -> Any:
        linear = draw(self, *facts)
        found.append(linear.tobytes())
        return linear

    monkeypatch.setattr(ObjectiveMechanism, "draw_linear", noted)
    return found


@pytest.mark.parametrize("name", FITS)
def test_a_fit_that_is_interrupted_goes_on_with_the_term_that_it_drew(
    name: str, drawn: list[bytes], tmp_path: Path
) -> None:
    """Else a time limit would choose the terms with which a fit ends early, and so the model."""
    sections = FITS[name]
    data = {"name": "synthetic", **sections.get("data", {})}
    study = parse_experiment({**sections, "data": data, "privacy": {"epsilon": 2.0}})
    out, ledger = tmp_path / "out", tmp_path / "own.ledger"
    begun = open_session(study, out=out, release=True, ledger=ledger, new_ledger=True)
    secret = out / "private" / "draw.secret"
    for exchanges in (1, 3):
        stops = (number >= exchanges for number in count(1))
        with open_ledger(begun) as book:
            assert session.carry_on(begun, ledger=book, stop=partial(next, stops)) is None
        assert secret.stat().st_mode & 0o077 == 0
        begun = open_session(None, resume=out, release=True)
    assert carry_through(begun) is not None
    assert len(drawn) == 3
    assert len(set(drawn)) == 1
    assert not secret.exists()
    with np.load(out / "model.npz") as arrays:
        assert np.isfinite(arrays["theta"]).all()


def test_two_releases_have_two_terms(drawn: list[bytes], tmp_path: Path) -> None:
    study = parse_experiment({**FITS["objective"], "data": {"name": "synthetic"}})
    for name in ("one", "two"):
        ledger = tmp_path / f"{name}.ledger"
        begun = open_session(
            study, out=tmp_path / name, release=True, ledger=ledger, new_ledger=True
        )
        assert carry_through(begun) is not None
    assert len(set(drawn)) == 2


def test_no_other_release_leaves_a_secret_on_the_disk(tmp_path: Path) -> None:
    study = parse_experiment(
        {"data": {"name": "synthetic"}, "strategy": {"name": "output-perturbation"}}
    )
    out = tmp_path / "out"
    open_session(study, out=out, release=True, ledger=tmp_path / "own.ledger", new_ledger=True)
    assert not (out / "private" / "draw.secret").exists()


def test_the_disk_has_forgotten_the_secret_before_it_has_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the power fails, folders are as they were synchronised last, each by itself."""
    study = parse_experiment(
        {"data": {"name": "synthetic"}, "strategy": {"name": "objective-perturbation"}}
    )
    out = tmp_path / "out"
    begun = open_session(
        study, out=out, release=True, ledger=tmp_path / "own.ledger", new_ledger=True
    )
    held: list[bool] = []
    result = out / "result.json"

    def watched(path: Path) -> None:
        synchronise(path)
        held.append((path / "draw.secret").exists())
        assert path == out / "private"
        assert not result.exists()

    monkeypatch.setattr("fedpriv.simulations.run.kept_secret.synchronise", watched)
    assert carry_through(begun) is not None
    assert held == [False]
    assert result.exists()


def test_a_run_that_was_stopped_at_its_last_step_forgets_its_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = parse_experiment(
        {
            "data": {"name": "synthetic"},
            "strategy": {"name": "gradient-perturbation", "rounds": 1},
            "privacy": {"epsilon": 2.0},
            "tuning": {
                "on": "private",
                "expected_trials": 1.5,
                "grid": {"strategy.clip": [0.25, 1.0]},
            },
        }
    )
    out, ledger = tmp_path / "out", tmp_path / "own.ledger"
    begun = open_session(study, out=out, release=True, ledger=ledger, new_ledger=True)

    def killed(_directory: Path) -> None:
        raise KeyboardInterrupt

    secret = out / "private" / "draw.secret"
    with monkeypatch.context() as patch:
        patch.setattr(ending, "forget_secret", killed)
        with pytest.raises(KeyboardInterrupt):
            carry_through(begun)
    assert not (out / "result.json").exists()
    assert secret.exists()
    assert carry_through(open_session(None, resume=out)) is not None
    assert not secret.exists()
    secret.write_bytes(bytes(32))  # an older version was stopped after the result, and kept it
    assert carry_through(open_session(None, resume=out)) is not None
    assert not secret.exists()
