"""The noise of audited runs: every law is as planned, and faults are seen that hide elsewhere.

What is put back here shows the adversary of an audit *less* than true noise does, or no more: all
of it would pass without a look at the noise itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv.privacy.mechanisms import GaussianMechanism
from fedpriv.privacy.planning.objective.objective import ObjectiveMechanism
from fedpriv.privacy.randomness import RandomStream
from fedpriv.simulations.audit.audit import audit_experiment
from fedpriv.simulations.audit.repetition import Dice
from fedpriv.simulations.audit.result import in_words
from tests.simulations.audit.scenes import ADD_REMOVE, OBJECTIVE, OUTPUT, study

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

ROUNDS = {"strategy": {"rounds": 8, "clip": 0.1}}
NETWORK: dict[str, dict[str, Any]] = {
    "model": {"name": "mlp", "hidden": [100]},
    "strategy": {"name": "gradient-perturbation", "rounds": 8, "clip": 0.1, "learning_rate": 1.0},
}
PURE = {"privacy": {"delta": 0.0}}
SHARES = {"privacy": {"noise_at": "parties"}}
SAMPLED = {"strategy": {**ROUNDS["strategy"], "sampling_rate": 0.2}}
LEAVING = {"run": {"dropout": 0.3}, "data": {"parties": 10}}


@pytest.mark.parametrize(
    "changes",
    [
        (ROUNDS,),
        (ROUNDS, SHARES),
        (ADD_REMOVE, SAMPLED),
        (ROUNDS, PURE),
        (ROUNDS, {"run": {"engine": "local"}}),
        (OUTPUT,),
        pytest.param((OBJECTIVE,), marks=pytest.mark.deep),
        ({"strategy": {"name": "second-order"}},),
        (NETWORK,),
        (NETWORK, SHARES),
    ],
    ids=str,
)
def test_true_noise_of_every_law_is_as_planned(changes: tuple[dict[str, Any], ...]) -> None:
    found = audit_experiment(study(*changes), runs=20, confidence=0.999)
    assert found.passed, in_words(found)
    assert found.noise is not None
    assert found.noise >= 200
    assert f"noise: {found.noise:,} numbers follow the law of the plan" in in_words(found)


def test_where_the_exact_sum_is_not_known_no_noise_is_judged() -> None:
    assert audit_experiment(study(ROUNDS, LEAVING), runs=20, confidence=0.999).noise is None


def test_a_linear_term_without_a_coordinate_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ObjectiveMechanism.draw_linear

    def but_one(self: ObjectiveMechanism, *facts: Any) -> Any:
        drawn = whole(self, *facts).copy()
        drawn[0] = 0
        return drawn

    monkeypatch.setattr(ObjectiveMechanism, "draw_linear", but_one)
    found = audit_experiment(study(OBJECTIVE, {"model": {"name": "huber-svm"}}), runs=20)
    assert not found.passed
    assert "in coordinate 0 it is 0.0" in found.problem  # noise on the minimiser is left there


def _one_draw(self: Dice, purpose: str) -> Callable[[int], RandomStream]:
    return lambda _round: RandomStream.seeded(self.seed, purpose, self.stage, self.repetition)


@pytest.mark.parametrize("changes", [(ROUNDS,), (NETWORK,)], ids=["many runs", "one run"])
def test_noise_that_serves_every_round_is_caught(
    changes: tuple[dict[str, Any], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The difference of two releases has none; their sum, which is looked at, has more."""
    monkeypatch.setattr(Dice, "streams", _one_draw)
    found = audit_experiment(study(*changes), runs=40)
    assert found.mu < found.claimed.limit  # the statistic alone sees nothing
    assert not found.passed
    assert "a combination of rounds has 0 of the planned noise" in found.problem
    assert found.problem in " ".join(in_words(found))


@pytest.mark.parametrize("changes", [(ROUNDS,), (NETWORK,)], ids=["many runs", "one run"])
def test_a_coordinate_without_noise_is_caught(
    changes: tuple[dict[str, Any], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = GaussianMechanism._draw

    def but_one(
        self: GaussianMechanism, shape: tuple[int, ...], step: float, stream: RandomStream
    ) -> NDArray[np.int64]:
        drawn = whole(self, shape, step, stream).copy()
        drawn[..., 0] = 0
        return drawn

    monkeypatch.setattr(GaussianMechanism, "_draw", but_one)
    found = audit_experiment(study(*changes), runs=40)
    assert not found.passed
    assert "in coordinate 0 it is 0 of the planned one" in found.problem


def test_bounded_noise_of_the_same_spread_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sums over coordinates and rounds are nearly normal."""

    def uniform(
        self: GaussianMechanism, shape: tuple[int, ...], step: float, stream: RandomStream
    ) -> NDArray[np.int64]:
        unit = stream.words(int(np.prod(shape))).astype(np.float64) / 2.0**64 - 0.5
        wide = np.rint(unit * np.sqrt(12) * self.stddev / step)
        return np.asarray(wide.reshape(shape), np.int64)

    monkeypatch.setattr(GaussianMechanism, "_draw", uniform)
    found = audit_experiment(study(ROUNDS), runs=150)
    assert found.mu < found.claimed.limit
    assert not found.passed
    assert "its distribution is" in found.problem
