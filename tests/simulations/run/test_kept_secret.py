"""The secret that the draws of a release follow from is gone when its result is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fedpriv.simulations.experiment.file import parse_experiment
from fedpriv.simulations.run import ending
from fedpriv.simulations.run.launch import carry_through, open_session

if TYPE_CHECKING:
    from pathlib import Path


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
