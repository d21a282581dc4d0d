"""Inference with deployed parties: one release, paid once by everybody, and its table."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from fedpriv.privacy.events import ApproximateEvent, Event, GaussianEvent, SkellamEvent
from fedpriv.privacy.planning.written_plan import events_of
from tests.federation.deployed.deployments import FOUR, Deployment

if TYPE_CHECKING:
    from pathlib import Path

NUMBER = """
label = "dose"
[columns.dose]
kind = "number"
min = -1
max = 1
[columns.age]
kind = "number"
min = 0
max = 100
[columns.sick]
kind = "category"
values = ["no", "yes"]
"""
EPSILON = 40.0


def deployed(
    folder: Path, queries: list[str], *, linear: bool = False, noise_at: str = "server"
) -> Deployment:
    folder.chmod(0o700)
    deployment = Deployment(
        folder=folder,
        **FOUR,
        policy={
            "strategies": ["inference"],
            "queries": queries,
            "max_clip": 2.0,
            "min_noise": 0.001,
            "noise_at": noise_at,
            "secure_aggregation": "active" if linear else "off",  # a fit has many exchanges
        },
        budget={"epsilon": EPSILON},
        experiment={
            "data": {"scaling": "divide"},
            "model": {"name": "squared" if linear else "logistic"},
            "strategy": {"name": "inference", "tolerance": "auto" if linear else 1e-3},
            "privacy": {"epsilon": EPSILON, "noise_at": noise_at},
            "run": {"secure_aggregation": "active" if linear else "off"},
        },
    )
    if linear:
        for path in (deployment.server, *map(deployment.home, deployment.names)):
            (path / "schema.toml").write_text(NUMBER)
    return deployment


def config(deployment: Deployment) -> str:
    """Without what the common experiment says of another strategy."""
    text = deployment.config()
    return "\n".join(line for line in text.splitlines() if not line.startswith(("rounds", "clip")))


def table(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "result.json").read_text())["coefficients"]
    return found


@pytest.mark.parametrize(
    ("linear", "noise_at", "event"),
    [
        (False, "server", ApproximateEvent),
        (True, "server", GaussianEvent),
        (True, "parties", SkellamEvent),
    ],
    ids=["logistic", "linear", "shares"],
)
def test_a_deployed_run_ends_with_its_table(
    linear: bool, noise_at: str, event: type[Event], tmp_path: Path
) -> None:
    queries = ["moments"] if linear else ["risk-gradient", "hessian"]
    deployment = deployed(tmp_path, queries, linear=linear, noise_at=noise_at)
    out = tmp_path / "server/runs/a"
    result = deployment.run(out, config=config(deployment))
    assert result["epsilon"] <= EPSILON
    for name in deployment.names:
        assert [number for _, number in deployment.reserved(name)] == [0]
    names = ["age", "sick=yes" if linear else "dose", "(intercept)"]
    assert [row["name"] for row in table(out)["rows"]] == names
    text = (out / "statement.txt").read_text()
    assert "Coefficients, from the released numbers alone" in text
    assert "(intercept)" in text
    plan = json.loads((out / "plan.json").read_text())
    events = events_of(plan)
    assert events is not None
    assert [type(each) for each in events] == [event]
