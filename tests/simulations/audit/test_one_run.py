"""Audits in one run: a true claim is shown, and faults in clip, noise and sum are caught.

Claims have μ = 1.67. With half the noise or twice the clip it is really 3.33: of 1,000 audits with
1,000 canaries and 95 % confidence 97 % saw it. Noise follows from a seed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedpriv.federation.party.answers import Holdings
from fedpriv.privacy.mechanisms import GaussianMechanism
from fedpriv.simulations.audit.audit import audit_experiment
from fedpriv.simulations.audit.claim import Claim
from fedpriv.simulations.audit.one_run import PlantedSide, on_random_records
from fedpriv.simulations.audit.planted import Planted
from fedpriv.simulations.audit.repetition import Dice
from fedpriv.simulations.audit.result import in_words, judged_in_one_run
from fedpriv.simulations.run.prepare import prepare
from tests.simulations.audit.scenes import ADD_REMOVE, OUTPUT, study

NETWORK: dict[str, dict[str, Any]] = {
    "model": {"name": "mlp", "hidden": [100]},
    "strategy": {"name": "gradient-perturbation", "rounds": 3, "clip": 0.1, "learning_rate": 1.0},
}
SAMPLED: dict[str, dict[str, Any]] = {"strategy": {**NETWORK["strategy"], "sampling_rate": 0.5}}
SHARES = {"privacy": {"noise_at": "parties"}}


@pytest.mark.parametrize(
    ("changes", "least"),
    [((), 0.35), ((ADD_REMOVE,), 0.35), ((SHARES,), 0.2), ((ADD_REMOVE, SAMPLED), 0.1)],
    ids=["exchanged", "in or out", "shares", "sampled"],
)
def test_a_network_is_audited_in_one_run(changes: tuple[dict[str, Any], ...], least: float) -> None:
    found = audit_experiment(study(NETWORK, *changes))
    assert found.passed, in_words(found)
    assert (found.method, found.runs, found.canaries) == ("one-run", 1, 1000)
    assert found.claimed.mu is not None
    assert least * found.claimed.mu < found.mu < found.claimed.mu
    assert 0 < found.epsilon < found.claimed.epsilon
    assert f"{found.right} of {found.guesses} guesses right" in " ".join(in_words(found))
    if found.reach is not None and SHARES not in changes:
        assert found.reach == pytest.approx(found.claimed.mu, rel=0.01)


def test_half_the_noise_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = GaussianMechanism._draw
    monkeypatch.setattr(GaussianMechanism, "_draw", lambda *facts: whole(*facts) // 2)
    found = audit_experiment(study(NETWORK))
    assert not found.passed
    assert found.mu > found.claimed.limit


def test_a_doubled_clip_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = Holdings.answer

    def doubled(self: Holdings, query: Any, draws: Any) -> Any:
        return answer(self, replace(query, clip_norm=2 * query.clip_norm), draws)

    monkeypatch.setattr(Holdings, "answer", doubled)
    assert not audit_experiment(study(NETWORK)).passed


def test_canaries_are_sampled_like_records() -> None:
    """Of 400 heads, at a rate of a half: Bin(400, 0.5), 200 ± 50 but for one time in 10⁶."""
    own = on_random_records(prepare(study(NETWORK, ADD_REMOVE, SAMPLED)))
    planted = Planted.drawn(400, own.task.dimension, replacing=False, rng=np.random.default_rng(0))
    planted = replace(planted, coins=np.ones(400, np.bool_))
    side = PlantedSide(own, dice=Dice(seed=0), planted=planted)
    side.scores()
    there = np.abs(side.sums.added[planted.blocks]).sum(axis=1) > 0
    assert 150 < there.sum() < 250


def test_a_claim_of_points_is_held_against_them_alone() -> None:
    """Ninety of a hundred right are within ε = 8 at δ = 0.1, and beyond ε = 0.1 at 10⁻⁵."""
    own = prepare(study(NETWORK))

    def passed(epsilon: float, delta: float) -> bool:
        claim = Claim(
            epsilon=epsilon,
            delta=delta,
            mu=0.1,
            limit=0.1,
            gaussian=True,
            exact=False,
            points=((epsilon, delta),),
        )
        return judged_in_one_run(
            own,
            claim,
            canaries=1000,
            guesses=100,
            right=90,
            reach=None,
            noise=(None, ""),
            confidence=0.95,
            seed=0,
            seconds=0.0,
        ).passed

    assert passed(8.0, 0.1)
    assert not passed(0.1, 1e-5)


def test_what_is_found_follows_from_the_seed() -> None:
    one, same, other = (
        audit_experiment(study(NETWORK), canaries=200, seed=seed).right for seed in (0, 0, 1)
    )
    assert one == same != other


def test_linear_models_are_run_many_times_unless_one_run_is_asked_for() -> None:
    wanted = study()
    assert audit_experiment(wanted, runs=20).method == "shift"
    with pytest.raises(ValueError, match="room for 11"):
        audit_experiment(wanted, one_run=True)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ((OUTPUT,), "noisy sums of gradients"),
        ((NETWORK, {"run": {"engine": "local"}}), "run.engine = 'vectorized'"),
        ((NETWORK, {"run": {"dropout": 0.1}}), "without run.dropout"),
        (
            (
                NETWORK,
                {"data": {"name": "visits", "partition": "natural", "records": 400}},
                {"privacy": {"unit": "person"}, "persons": {"records": 4, "parties": 2}},
            ),
            "privacy.unit = 'record'",
        ),
    ],
)
def test_what_it_cannot_audit_is_refused(changes: tuple[dict[str, Any], ...], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        audit_experiment(study(*changes), one_run=True)
    with pytest.raises(ValueError, match="sees the model alone"):
        audit_experiment(study(NETWORK), one_run=True, model_only=True)
