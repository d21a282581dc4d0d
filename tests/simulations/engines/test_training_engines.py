"""Engines agree on local training: vectorized, and real parties under masks, to float32."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv.simulations.experiment.file import parse_experiment
from fedpriv.simulations.run.prepare import build_federation, build_strategy, prepare, train

if TYPE_CHECKING:
    from numpy.typing import NDArray

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


def trained(engine: str, strategy: dict[str, Any], privacy: dict[str, Any]) -> NDArray[np.float64]:
    prepared = prepare(
        parse_experiment(
            {
                "data": {
                    "name": "synthetic", "partition": "dirichlet", "alpha": 0.5, "parties": 6
                },
                "strategy": {"rounds": 3, "local_learning_rate": 0.5, **strategy},
                "privacy": privacy,
                "run": {"engine": engine},
            }
        )
    )  # fmt: skip
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
