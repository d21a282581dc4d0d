"""Randomness of a deployed party: the operating system's alone, and no seed reaches it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv.federation.protocol.wire import Ask
from fedpriv.federation.queries.kinds import GradientQuery
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import GaussianEvent
from fedpriv.privacy.randomness import RandomStream
from fedpriv.secagg import FixedPoint
from tests.federation.deployed.deployments import Deployment
from tests.federation.deployed.north_party import CLEAR, RUN, answer, ask, join, noisy, query

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def seeds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Who asked for a seeded stream, or for a generator of numpy."""
    seen: list[str] = []
    seeded, generator = RandomStream.seeded, np.random.default_rng

    def stream(*arguments: Any) -> RandomStream:
        seen.append("stream")
        return seeded(*arguments)

    def numpy(*arguments: Any) -> np.random.Generator:
        seen.append("numpy")
        return generator(*arguments)

    monkeypatch.setattr(RandomStream, "seeded", stream)
    monkeypatch.setattr(np.random, "default_rng", numpy)
    return seen


def test_no_seed_reaches_a_deployed_party(clear: Deployment, seeds: list[str]) -> None:
    """No stream of a party comes from a seed: not its noise, its samples, its keys or its salts."""
    answer(clear, noisy(clear))
    ask(clear, join(), Ask(run=RUN, round=1, party=0), asked=noisy(clear))
    answer(clear, query(clear, 1, sampling_rate=0.5))
    assert seeds == []


def test_the_watch_for_seeds_has_teeth(seeds: list[str]) -> None:
    from tests.federation.engines.grids import host

    host.__wrapped__(0).party.answer(
        GradientQuery(
            run="run",
            round=0,
            grid=FixedPoint(step=2.0**-20, bits=64),
            event=GaussianEvent(relative_noise=10.0, adjacency=Adjacency.REPLACE_ONE),
            theta=np.zeros(4),
            clip_norm=1.0,
        )
    )
    assert "stream" in seeds


def test_equal_seeds_in_two_deployments_give_different_noise(tmp_path: Path) -> None:
    """The same records and the same experiment, twice: only what the machine drew differs."""
    tmp_path.chmod(0o700)
    answers = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir(mode=0o700)
        deployment = Deployment(
            folder=tmp_path / name,
            policy=CLEAR["policy"],
            experiment={"run": {"secure_aggregation": "off", "seed": 7}},
        )
        answers.append(answer(deployment, noisy(deployment)))
    assert (answers[0] != answers[1]).all()
