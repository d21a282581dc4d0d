"""Claims and their verdicts: a corpus, oracles for the numbers, and errors by name."""

from __future__ import annotations

import json
from itertools import product
from math import comb, sqrt
from typing import TYPE_CHECKING, Any

import pytest
from mpmath import erfc, exp, mp, mpf

from fedpriv._toml import to_toml
from fedpriv.audit.claims import KINDS, Outcome, claim_from_dict
from fedpriv.audit.claims.gaussian import gaussian_epsilon, poisson_epsilon
from fedpriv.audit.claims.participation import _law_of_squares, participation_epsilon
from fedpriv.audit.claims.verdict import SLACK, in_words
from tests.audit.claims.corpus import CORPUS, Case

if TYPE_CHECKING:
    from pathlib import Path

    from tests.simulations.conftest import Command


@pytest.mark.parametrize("case", CORPUS, ids=[case.about for case in CORPUS])
def test_a_claim_of_the_corpus_is_what_it_is(case: Case) -> None:
    verdict = claim_from_dict(case.claim).judged()
    assert verdict.outcome == case.outcome
    if case.epsilon is None:
        assert verdict.epsilon is None
    else:
        assert verdict.epsilon == pytest.approx(case.epsilon, rel=5e-3)
    assert case.reason in verdict.reason
    assert verdict.unit.split()[0] in ("one", "all")
    assert verdict.adjacency == case.claim["adjacency"]
    if verdict.outcome == Outcome.FALSE:
        assert verdict.at_least > case.claim["epsilon"] * SLACK
    assert verdict.at_least <= (verdict.epsilon or 0.0)
    assert in_words(verdict)[0].lower().startswith(case.outcome.lower())
    json.dumps(verdict.to_dict(), allow_nan=False)


def test_the_corpus_has_every_kind_but_that_of_rounds() -> None:
    assert {case.claim["kind"] for case in CORPUS} == KINDS.keys() - {"rounds"}


def gaussian_delta(mu: float, epsilon: float) -> Any:
    """δ of μ-GDP in high precision: Φ(−ε/μ + μ/2) − e^ε·Φ(−ε/μ − μ/2)."""
    with mp.workdps(40):

        def tail(x: Any) -> Any:
            return erfc(x / mp.sqrt(2)) / 2

        m, e = mpf(mu), mpf(epsilon)
        return tail(e / m - m / 2) - exp(e) * tail(e / m + m / 2)


@pytest.mark.parametrize(
    ("chance", "rounds", "relative"), [(0.3, 5, 1.0), (0.05, 40, 2.0), (0.5, 1, 0.7)]
)
def test_participation_is_the_mean_over_who_took_part(
    chance: float, rounds: int, relative: float
) -> None:
    delta = 1e-4
    epsilon = participation_epsilon(
        relative_noise=relative, rounds=rounds, draws=1, chance=chance, delta=delta
    )
    assert epsilon is not None

    def mean(at: float) -> float:
        terms = (
            comb(rounds, k)
            * chance**k
            * (1 - chance) ** (rounds - k)
            * gaussian_delta(sqrt(k) / relative, at)
            for k in range(1, rounds + 1)
        )
        return float(sum(terms))

    assert mean(epsilon) <= delta * (1 + 1e-9)
    assert mean(epsilon * 0.999) > delta


def test_participation_lies_between_poisson_and_no_sampling() -> None:
    """A sample that nobody sees hides more; rounds in which all take part hide less."""
    rounds, chance, noise, delta = 200, 0.1, 2.0, 1e-5
    drawn = participation_epsilon(
        relative_noise=noise, rounds=rounds, draws=1, chance=chance, delta=delta
    )
    poisson, _ = poisson_epsilon(noise=noise, rounds=rounds, rate=chance, delta=delta)
    full, _ = gaussian_epsilon(relative_noise=noise, rounds=rounds, delta=delta)
    assert drawn is not None
    assert poisson < drawn < full


def test_draws_with_replacement_are_counted_by_their_squares() -> None:
    """Against every sequence of draws, one by one."""
    rounds, draws, chance = 2, 3, 0.25
    law, lost = _law_of_squares(rounds, draws, chance, 1e-6)
    brute: dict[int, float] = {}
    for flips in product((0, 1), repeat=rounds * draws):
        total = sum(sum(flips[r * draws : (r + 1) * draws]) ** 2 for r in range(rounds))
        chance_of = chance ** sum(flips) * (1 - chance) ** (len(flips) - sum(flips))
        brute[total] = brute.get(total, 0.0) + chance_of
    assert lost < 1e-14
    assert {s: p for s, p in enumerate(law) if p} == pytest.approx(brute, rel=1e-12)


def test_an_exchange_costs_more_than_an_addition_and_less_than_two_full_batches() -> None:
    terms = {"kind": "gaussian", "noise_multiplier": 2.0, "rounds": 50, "delta": 1e-6}
    sampled = terms | {"sampling": "poisson", "sampling_rate": 0.05}
    found = {
        name: claim_from_dict(values | {"adjacency": name}).judged().epsilon
        for name, values in (("add-remove", sampled), ("replace-one", sampled))
    }
    full = claim_from_dict(terms | {"adjacency": "replace-one"}).judged().epsilon
    assert found["add-remove"] < found["replace-one"] <= full  # type: ignore[operator]


def test_who_leaves_a_cohort_of_fixed_size_is_followed_by_another() -> None:
    """Then the sum moves by 2C, as in an exchange; with nobody in the place it moves by C."""

    def proved(adjacency: str, noise: float) -> float | None:
        claim = {
            "kind": "gaussian", "noise_multiplier": noise, "rounds": 30, "sampling": "fixed size",
            "sampling_rate": 0.1, "adjacency": adjacency, "delta": 1e-5,
        }  # fmt: skip
        return claim_from_dict(claim).judged().epsilon

    assert proved("add-remove", 4.0) == proved("replace-one", 4.0) == proved("zero-out", 2.0)


def test_a_claim_within_half_a_percent_is_no_false_one() -> None:
    claim = {"kind": "gaussian", "noise_multiplier": 1.0, "rounds": 1, "delta": 1e-5}
    asked = claim | {"adjacency": "add-remove"}
    proved = claim_from_dict(asked).judged()
    assert proved.outcome is Outcome.UNSTATED
    assert proved.epsilon is not None
    for factor, outcome in ((1.0, "sound"), (0.996, "sound"), (0.99, "false")):
        verdict = claim_from_dict(asked | {"epsilon": proved.epsilon * factor}).judged()
        assert verdict.outcome == outcome


def test_rounds_of_unknown_mechanisms_add_up() -> None:
    claim = {"kind": "rounds", "epsilon_per_round": 0.5, "rounds": 10, "adjacency": "replace-one"}
    pure = claim_from_dict(claim | {"delta": 0.0, "epsilon": 0.5}).judged()
    assert pure.outcome is Outcome.UNPROVED
    assert pure.epsilon == pytest.approx(5.0)
    assert claim_from_dict(claim | {"delta": 1e-6, "epsilon": 5.0}).judged().outcome == "sound"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "opacuss"}, "kind must be one of 'gaussian', 'laplace'"),
        ({"kind": None}, "kind must be one of"),
        ({"steps": None}, "steps is missing: a claim of kind 'opacus' must state it"),
        ({"sigma": 1.0}, "sigma is no key of a claim of kind 'opacus'. Known are epsilon, delta"),
        ({"noise_multiplier": "1"}, "noise_multiplier must be a number, got '1'"),
        ({"steps": 2.5}, "steps must be a whole number, got 2.5"),
        ({"poisson_sampling": 1}, "poisson_sampling must be true or false, got 1"),
        ({"adjacency": "swap"}, "adjacency must be one of"),
        ({"epsilon": 0.0}, "epsilon must be positive"),
        ({"delta": 0.0}, "delta must lie strictly between 0 and 1"),
        ({"sample_rate": 1.5}, "sample_rate must be in (0, 1], got 1.5"),
        ({"accountant": "moments"}, "accountant must be one of"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(change: dict[str, Any], message: str) -> None:
    claim = {
        "kind": "opacus", "noise_multiplier": 1.0, "sample_rate": 0.01, "steps": 1000,
        "adjacency": "add-remove", "delta": 1e-5, "epsilon": 1.83,
    }  # fmt: skip
    values = {key: value for key, value in (claim | change).items() if value is not None}
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        claim_from_dict(values)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        ({"kind": "gaussian", "rounds": 1}, "the noise must be stated once"),
        ({"kind": "gaussian", "rounds": 1, "clip": 1.0}, "the noise must be stated once"),
        (
            {"kind": "gaussian", "rounds": 1, "noise_multiplier": 1.0, "sampling": "poisson"},
            "do not go together",
        ),
        (
            {"kind": "flower-fixed-clipping", "noise_multiplier": 1.0, "sampled_clients": 10,
             "rounds": 1, "largest_weight": 0.05},
            "largest_weight must be at least 1 / sampled_clients = 0.1",
        ),
        (
            {"kind": "flower-fixed-clipping", "noise_multiplier": 1.0, "sampled_clients": 10,
             "rounds": 1, "clients": 5},
            "clients must be at least sampled_clients = 10, got 5",
        ),
        (
            {"kind": "flower-adaptive-clipping", "noise_multiplier": 1.0, "sampled_clients": 10,
             "rounds": 1},
            "count_stddev must be above noise_multiplier / 2",
        ),
        (
            {"kind": "pfl", "noise_parameter": 1.0, "population": 5, "cohort_size": 5,
             "rounds": 1},
            "cohort_size must be below population",
        ),
    ],
)  # fmt: skip
def test_settings_that_do_not_go_together_are_refused(claim: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=r"\w") as refused:
        claim_from_dict(claim | {"adjacency": "zero-out", "delta": 1e-5})
    assert message in str(refused.value)


def test_the_command_says_what_is_true_and_ends_with_its_status(
    fedpriv: Command, tmp_path: Path
) -> None:
    codes = {"sound": 0, "no claim": 0, "false": 1, "not proved": 1, "not DP": 1}
    for case in (CORPUS[0], CORPUS[1], CORPUS[9], CORPUS[17]):
        path = tmp_path / "claim.toml"
        path.write_text(to_toml(case.claim))
        done = fedpriv("check", path)
        assert done.code == codes[case.outcome]
        assert done.out.lower().startswith(case.outcome.lower())
        found = json.loads(fedpriv("check", path, "--json").out)
        assert found["outcome"] == case.outcome
        assert found["holds"] is (done.code == 0)
    path.write_text('kind = "lunch"')
    done = fedpriv("check", path)
    assert done.code == 2
    assert "kind must be one of" in done.message
    assert fedpriv("check").code == 2
    assert fedpriv("check", "--kinds", "--json").json().keys() == KINDS.keys()
    assert "flwr 1.41.0" in fedpriv("check", "--kinds").out
