"""Engines agree on local training: vectorized, and real parties under masks or on Ray."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv._toml import to_toml
from fedpriv.simulations.experiment.file import parse_experiment
from fedpriv.simulations.run.prepare import build_federation, build_strategy, prepare, train
from fedpriv.simulations.run.session import carry_on, start
from tests.simulations.engines.rays import needs_ray, on_ray

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from fedpriv.simulations.experiment.file import Experiment

PARTY: dict[str, Any] = {
    "epsilon": 20.0, "delta": 1e-5, "unit": "party", "adjacency": "add-remove"
}  # fmt: skip
FREE: dict[str, Any] = {"epsilon": "inf", "unit": "party"}
AVERAGING: dict[str, Any] = {"name": "federated-averaging", "allow_swamped": True}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "free": (AVERAGING, FREE),
    "sampled": ({**AVERAGING, "party_rate": 0.5}, PARTY),
    "quantile": ({**AVERAGING, "clip_quantile": 0.5, "count_noise": 20.0}, PARTY),
    "scaffold, a cohort": ({"name": "scaffold", "cohort": 3}, FREE),
}


def study(engine: str, strategy: dict[str, Any], privacy: dict[str, Any]) -> Experiment:
    return parse_experiment(
        {
            "data": {"name": "synthetic", "partition": "dirichlet", "alpha": 0.5, "parties": 6},
            "strategy": {"rounds": 3, "local_learning_rate": 0.5, **strategy},
            "privacy": privacy,
            "run": {"engine": engine},
        }
    )


def trained(engine: str, strategy: dict[str, Any], privacy: dict[str, Any]) -> NDArray[np.float64]:
    prepared = prepare(study(engine, strategy, privacy))
    made = build_strategy(prepared, run="engines")
    train(made, build_federation(prepared, run="engines", rounds=3), lambda _query, _sum: True)
    return made.theta


@pytest.mark.parametrize("case", CASES)
def test_local_and_vectorized_end_in_the_same_model(case: str) -> None:
    """The same coins, cohorts, orders and noise; training together rounds as float32 does."""
    strategy, privacy = CASES[case]
    one, other = (trained(engine, strategy, privacy) for engine in ("vectorized", "local"))
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)
    assert np.abs(one).max() > 0.1


@needs_ray
@pytest.mark.skipif("FEDPRIV_STRESS" not in os.environ, reason="FEDPRIV_STRESS=1: half a minute")
def test_federated_averaging_on_ray_is_that_of_one_process(tmp_path: Path) -> None:
    """Parties in processes of their own, masked, each on its own coin: the same model and plan."""
    strategy = {**AVERAGING, "party_rate": 0.5, "local_epochs": 2, "proximal": 0.1}
    file = tmp_path / "study.toml"
    file.write_text(to_toml(study("vectorized", strategy, PARTY).to_dict()))
    process = on_ray(file, tmp_path / "ray")
    _, errors = process.communicate(timeout=180)
    assert process.returncode == 0, errors
    carry_on(start(prepare(study("vectorized", strategy, PARTY)), tmp_path / "plain"))
    one, other = (np.load(tmp_path / name / "model.npz")["theta"] for name in ("ray", "plain"))
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)
    assert np.abs(one).max() > 0.1
    plans = [(tmp_path / name / "plan.json").read_text() for name in ("ray", "plain")]
    assert plans[0] == plans[1]
    assert '"unit": "party"' in plans[0]
