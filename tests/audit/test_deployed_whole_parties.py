"""A deployed party hides itself: with all its records or with none, it says and pays the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from fedpriv.federation.queries.local_training import LocalTrainingQuery
from fedpriv.learning.training.settings import LocalSgd
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import GaussianEvent
from fedpriv.privacy.unit import Unit
from fedpriv.secagg import FixedPoint
from tests.audit.deployed_cases import SCHEMA
from tests.audit.deployed_scene import Scene
from tests.federation.deployed.deployments import Deployment

if TYPE_CHECKING:
    from pathlib import Path

GRID = FixedPoint(step=2.0**-30, bits=64)
ROWS = tuple(f"{20 + i},{(i % 7) / 10 - 0.3},{'yes' if i % 3 else 'no'}" for i in range(30))


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_a_party_without_records_answers_zero(adjacency: Adjacency, tmp_path: Path) -> None:
    """It refused its empty table, which told for certain whether it had any records."""
    tmp_path.chmod(0o700)
    deployment = Deployment(
        folder=tmp_path,
        policy={
            "secure_aggregation": "off",
            "min_noise": 0.001,
            "strategies": ["federated-averaging"],
            "queries": ["local-training"],
            "units": ["party"],
        },
        budget={"epsilon": 20.0, "adjacency": adjacency.value, "unit": "party"},
        experiment={
            "strategy": {"name": "federated-averaging", "rounds": 4, "allow_swamped": True},
            "run": {"secure_aggregation": "off"},
            "privacy": {"unit": "party", "adjacency": adjacency.value},
        },
    )
    for path in (deployment.server, deployment.home("north")):
        (path / "schema.toml").write_text(SCHEMA)
    scene = Scene(deployment)
    query = LocalTrainingQuery(
        run="audit",
        round=0,
        grid=GRID,
        event=GaussianEvent(relative_noise=10.0, adjacency=adjacency, unit=Unit.PARTY),
        theta=np.zeros(scene.task.dimension),
        training=LocalSgd(epochs=20, batch_size=5, learning_rate=9.0),
        clip_norm=0.5,
        weights="equal",
        counting=0.5,
    )
    answers = []
    for rows in (ROWS, ()):
        scene.write(rows)
        answers.append(GRID.decode(scene.answering(query, 0)()) * GRID.step)
    assert 1.0 < np.linalg.norm(answers[0]) <= np.hypot(1.0, 0.25) * (1 + 1e-8)
    assert not answers[1].any()
