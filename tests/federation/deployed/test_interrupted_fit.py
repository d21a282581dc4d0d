"""A deployed fit that is interrupted: its server goes on with the term that it drew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fedpriv.privacy.planning.objective.objective import ObjectiveMechanism
from fedpriv.simulations.deploy.run.closed import close_run
from fedpriv.simulations.deploy.run.jobs import cancelling
from tests.federation.deployed.deployments import FOUR, Deployment
from tests.federation.deployed.errands import Power, cut, grid_of
from tests.federation.deployed.failing_grids import InterruptedGrid

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    """One that fits an objective, in the clear: a fit has many exchanges."""
    tmp_path.chmod(0o700)
    return Deployment(
        folder=tmp_path,
        **FOUR,
        policy={
            "strategies": ["objective-perturbation"],
            "queries": ["risk-gradient"],
            "max_clip": 2.0,
            "min_noise": 0.1,
            "secure_aggregation": "off",
        },
        experiment={"model": {"l2": 0.1}, "run": {"secure_aggregation": "off"}},
    )


def joint(deployment: Deployment) -> str:
    text = deployment.config()
    shown = 'name = "gradient-perturbation"\nrounds = 4\nclip = 1.0\n'
    assert shown in text
    return text.replace(shown, 'name = "objective-perturbation"\n')


def interrupted(deployment: Deployment, out: Path) -> None:
    """The server fails before the second exchange."""
    config, asked = joint(deployment), []

    def second() -> None:
        asked.append(True)
        if len(asked) > 1:
            cut()
        grid.between = second

    grid = grid_of(deployment, InterruptedGrid, config=config)
    grid.step, grid.between = "ask", second
    with pytest.raises(Power):
        deployment.run(out, config=config, grid=grid)


def test_it_is_taken_up_with_the_term_that_was_drawn(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[bytes] = []
    draw = ObjectiveMechanism.draw_linear

    def noted(self: ObjectiveMechanism, *facts: Any) -> Any:
        linear = draw(self, *facts)
        drawn.append(linear.tobytes())
        return linear

    monkeypatch.setattr(ObjectiveMechanism, "draw_linear", noted)
    out = deployment.server / "runs" / "a"
    interrupted(deployment, out)
    secret = out / "private" / "draw.secret"
    assert secret.exists()
    deployment.run(out, config=joint(deployment))
    assert (len(drawn), len(set(drawn))) == (2, 1)
    assert not secret.exists()


@pytest.mark.parametrize("how", ["cancelled", "closed"])
def test_a_run_that_is_given_up_leaves_no_secret(how: str, deployment: Deployment) -> None:
    out = deployment.server / "runs" / "a"
    interrupted(deployment, out)
    assert (out / "private" / "draw.secret").exists()
    if how == "cancelled":
        cancelling.record(out)
    else:
        close_run(out, "it was open when the server was put back from a backup.")
    assert not (out / "private" / "draw.secret").exists()
