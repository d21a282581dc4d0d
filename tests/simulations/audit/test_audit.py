"""Audits of true claims: much of every one is shown, and none is contradicted.

Every claim is audited with a confidence of 0.999, and noise follows from a seed: a test that passes
once passes again. Over all seeds, each would fail for no reason at most once in a thousand.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedpriv.audit.canaries import minimiser_scene
from fedpriv.privacy.gaussian import gdp_epsilon
from fedpriv.simulations.audit.adversaries import adversary
from fedpriv.simulations.audit.audit import audit_experiment
from fedpriv.simulations.audit.claim import claim_of
from fedpriv.simulations.audit.neighbours import neighbours
from fedpriv.simulations.audit.repetition import Dice, Side
from fedpriv.simulations.audit.result import in_words
from fedpriv.simulations.audit.search import exact_shift, worst_neighbours
from fedpriv.simulations.run.prepare import check, prepare
from tests.simulations.audit.scenes import ADD_REMOVE, OBJECTIVE, OUTPUT, STRESS, study

PERSONS: dict[str, dict[str, Any]] = {
    "data": {"name": "visits", "partition": "natural", "parties": 4, "records": 400},
    "privacy": {"unit": "person"},
    "persons": {"records": 4, "parties": 2},
}
PARTIES: dict[str, dict[str, Any]] = {
    "strategy": {"name": "federated-averaging", "rounds": 2},
    "data": {"parties": 20, "records": 4000},
    "privacy": {"unit": "party", "adjacency": "add-remove"},
}
TUNED: dict[str, dict[str, Any]] = {
    "tuning": {
        "on": "private",
        "score": "loss",
        "expected_trials": 2,
        "grid": {"strategy.clip": [0.1, 0.5]},
    }
}
ALONE: dict[str, dict[str, Any]] = {"data": {"parties": 1}}
HUBER: dict[str, dict[str, Any]] = {"model": {"name": "huber-svm", "l2": 0.01}}
INFERENCE: dict[str, dict[str, Any]] = {"strategy": {"name": "inference"}}
SECOND: dict[str, dict[str, Any]] = {"strategy": {"name": "second-order"}}
SHARES = {"privacy": {"noise_at": "parties"}}
PURE = {"privacy": {"delta": 0.0}}
LOCAL = {"run": {"engine": "local"}, "strategy": {"rounds": 1, "clip": 0.1}}
LEAVING = {"run": {"dropout": 0.3}, "data": {"parties": 10}}

# The changes, and the share of μ that the best adversary on these neighbours could show.
CASES: dict[str, tuple[tuple[dict[str, Any], ...], float | None]] = {
    "gradients": ((), 0.99),
    "gradients, add-remove": ((ADD_REMOVE,), 0.99),
    "gradients, shares": ((SHARES,), 0.75),  # noise for parties that collude, too
    "gradients, masked": ((LOCAL,), 0.99),
    "gradients, drop-outs": ((LEAVING,), None),
    "persons": ((PERSONS,), 0.99),
    "parties": ((PARTIES,), 0.99),
    "output": ((OUTPUT,), 0.85),
    "second-order": ((SECOND,), 0.85),
    "output, huber": ((OUTPUT, HUBER), 0.95),
}
SLOW: dict[str, tuple[tuple[dict[str, Any], ...], float | None]] = {
    "second-order, add-remove": ((SECOND, ADD_REMOVE), 0.95),
    "objective": ((OBJECTIVE,), 0.75),
    "objective, add-remove": ((OBJECTIVE, ADD_REMOVE), 0.9),
    "joint output, add-remove": (
        (OUTPUT, ADD_REMOVE, {"strategy": {"name": "output-perturbation", "fit": "joint"}}),
        0.8,
    ),
    "sampled": (
        (ADD_REMOVE, {"strategy": {"sampling_rate": 0.2, "rounds": 2, "clip": 0.1}}),
        None,
    ),
}


# Of the reach, what 600 runs show. The points of a second-order run follow from its first release:
# they differ within a pair of runs, and so do the sums beside the canary, which costs power.
SHOWN = {"second-order, add-remove": 0.68}


@pytest.mark.parametrize("name", [*CASES, *(SLOW if STRESS else ())])
def test_a_true_claim_is_shown_and_not_contradicted(name: str) -> None:
    changes, share = (CASES | SLOW)[name]
    runs = 600 if STRESS else 30
    found = audit_experiment(study(*changes), runs=runs, confidence=0.999)
    assert found.passed, in_words(found)
    assert found.problem == ""
    mu = found.claimed.mu
    assert mu is not None
    if share is not None:
        assert found.method == "shift"
        assert found.reach is not None
        assert share * mu < found.reach < 1.001 * mu
        assert found.mu > (SHOWN.get(name, 0.8) * share if STRESS else 0.2) * mu


@pytest.mark.deep
@pytest.mark.parametrize("changes", [(), (OUTPUT, ALONE), (OUTPUT, HUBER), (OBJECTIVE, HUBER)])
def test_four_fifths_of_a_claim_are_shown_by_the_runs_that_are_made_unasked(
    changes: tuple[dict[str, Any], ...],
) -> None:
    """At ε = 4 (μ = 0.925), 95 % confidence: the mean is 88 % or more, the spread 3 %."""
    found = audit_experiment(study(*changes, {"privacy": {"epsilon": 4.0}}))
    assert found.passed
    assert found.claimed.mu is not None
    assert found.mu > 0.8 * found.claimed.mu


def test_pure_claims_are_audited_without_any_assumption() -> None:
    found = audit_experiment(study(PURE), runs=60, confidence=0.95)
    assert (found.method, found.claimed.mu) == ("threshold", None)
    assert found.passed
    assert 0.3 < found.epsilon < found.claimed.epsilon


def test_whoever_sees_the_model_alone_sees_less() -> None:
    wanted = study({"strategy": {"rounds": 5, "clip": 0.1}})
    every = audit_experiment(wanted, runs=40, confidence=0.95)
    last = audit_experiment(wanted, runs=40, confidence=0.95, model_only=True)
    assert (every.sees, last.sees) == ("every release", "the last model")
    assert last.mu < every.mu


def test_what_is_found_follows_from_the_seed() -> None:
    one, same, other = (
        audit_experiment(study(OUTPUT), runs=20, seed=seed).shift for seed in (0, 0, 1)
    )
    assert one == same != other


def test_the_profile_of_a_perturbed_objective_is_the_limit_and_not_its_budget() -> None:
    """Where nΛ is small the Jacobian allows more in the middle than the budget's point would."""
    wanted = study(OBJECTIVE, {"model": {"l2": 1e-4}, "privacy": {"epsilon": 1.0}})
    strategy = check(prepare(wanted))
    assert strategy is not None
    assert strategy.plan is not None
    claim = claim_of(strategy.plan, strategy.task)
    assert claim.mu is not None
    assert not claim.exact
    assert claim.limit > 1.05 * claim.mu
    assert claim.allows(true_positives=0.55, false_positives=0.5)
    assert not claim.allows(true_positives=0.99, false_positives=0.5)


@pytest.mark.parametrize("changes", [OBJECTIVE, INFERENCE], ids=["objective", "inference"])
def test_all_that_is_released_with_a_minimiser_is_in_what_is_claimed(
    changes: dict[str, Any],
) -> None:
    """At ε the profile has the δ of the budget: noise beside b, on a Hessian as well, is paid."""
    strategy = check(prepare(study(changes)))
    assert strategy is not None
    assert strategy.plan is not None
    claim = claim_of(strategy.plan, strategy.task)
    last = max(claim.points[1:])
    assert last[0] == claim.epsilon
    assert last[1] == pytest.approx(claim.delta, rel=0.02)


def test_inference_is_audited_by_its_random_term() -> None:
    own = prepare(study(INFERENCE))
    scene = minimiser_scene(own.task.dimension - 1, 1000, length=0.03, angle=10.0)
    pair = neighbours(own, scene, party=0, spread=True)
    dice = Dice(seed=0)
    sides = [Side(each, dice=dice) for each in (pair.first, pair.second)]
    claim = claim_of(sides[0].plan, sides[0].pristine.task)
    assert claim.mu is not None
    apart, known = exact_shift(pair)
    assert known
    assert 0.7 < apart / claim.mu < 1.001
    attacker = adversary(*sides)
    assert attacker.sees == "the released minimiser"
    one, other = (attacker.statistic(side, 0) for side in sides)  # with equal noise
    assert one > other


LINE_SEARCH = {"strategy": {"name": "agd"}}


@pytest.mark.parametrize("changes", [LINE_SEARCH, TUNED], ids=["agd", "tuning"])
def test_what_one_repetition_asks_is_not_answered_by_another(changes: dict[str, Any]) -> None:
    """Sums of losses at points that differ from run to run were those of the first run."""
    prepared = prepare(study(changes))
    dice = Dice(seed=3)
    both, second = (Side(prepared, dice=dice) for _ in range(2))
    both.run(0, lambda _seen: None)
    model = second.run(1, lambda _seen: None)
    np.testing.assert_array_equal(both.run(1, lambda _seen: None), model)


def test_a_tuning_is_audited_by_its_model() -> None:
    """Its exchanges are those of trials, of which none is released."""
    found = audit_experiment(study(TUNED), runs=20, confidence=0.999)
    assert found.passed
    assert (found.sees, found.method) == ("the last model", "threshold")


def test_neighbours_differ_in_the_canary_alone() -> None:
    pair = worst_neighbours(prepare(study(ADD_REMOVE)))
    one, other = (side.data.dataset.train for side in (pair.first, pair.second))
    assert len(one) == len(other) + 1
    rows = {row.tobytes() for row in other.X}
    assert sum(row.tobytes() not in rows for row in one.X) == 1
    assert pair.public_facts_differ == ""
    assert exact_shift(pair)[1]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"strategy": {"name": "non-private"}}, "with a guarantee"),
        ({"privacy": {"epsilon": float("inf")}}, "finite privacy.epsilon"),
        ({"run": {"engine": "ray"}}, "--engine"),
        ({"privacy": {"adjacency": "add-remove"}}, "data.records"),
    ],
)
def test_what_claims_nothing_is_refused(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        audit_experiment(study(change), runs=20)


def test_too_few_runs_are_refused() -> None:
    with pytest.raises(ValueError, match="runs must be at least 20"):
        audit_experiment(study(), runs=19)
    assert np.isfinite(audit_experiment(study(OUTPUT), runs=20).mu)


def test_without_normal_statistics_no_epsilon_rests_on_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The ε of a threshold is ln((TPR - δ)/FPR), and not that of the Gaussian with its μ."""
    monkeypatch.setattr("fedpriv.simulations.audit.result.normality", lambda *_: 0.0)
    found = audit_experiment(study(OUTPUT), runs=200, confidence=0.95)
    assert (found.method, found.claimed.gaussian) == ("threshold", True)
    assert found.threshold is not None
    assert found.mu == found.threshold > 0
    assert 0 < found.epsilon < gdp_epsilon(mu=found.mu, delta=1e-5)
