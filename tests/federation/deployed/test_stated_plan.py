"""A stated plan: joined before anything is paid, and priced as a whole."""

from __future__ import annotations

from dataclasses import replace
from math import erfc, exp, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.optimize import brentq

from fedpriv.federation.deployed.journal import Journal
from fedpriv.federation.deployed.stated_plan import StatedPlan, digest_of_releases
from fedpriv.federation.engines.grid import RoundFailed
from fedpriv.federation.party.guard import QueryRefused
from fedpriv.federation.party.memory import Memory
from fedpriv.federation.protocol.wire import ClearAnswer, Joined, pack
from fedpriv.federation.queries.bounds import share_mechanism
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import GaussianEvent, SkellamEvent
from fedpriv.privacy.ledger import Ledger
from fedpriv.privacy.mechanisms.shares import NoiseShare
from fedpriv.privacy.planning.plan import sampled
from fedpriv.privacy.unit import Unit
from tests.federation.deployed.deployments import NAMES, Deployment
from tests.federation.deployed.stated_plans import (
    DELTA,
    SAMPLED,
    SEAT,
    ask,
    cost,
    deployed,
    event,
    join,
    north,
    query,
    rows,
    stated,
)

if TYPE_CHECKING:
    from pathlib import Path

A = Adjacency.ADD_REMOVE

# A run, from end to end.


def test_a_sampled_run_finishes_and_every_ledger_states_its_epsilon(tmp_path: Path) -> None:
    deployment = deployed(tmp_path)
    result = deployment.run(tmp_path / "out")
    assert result["rounds"] == 3
    for name in NAMES:
        with deployment.ledger(name) as ledger:
            ledger.verify()
            spent = ledger.spent()
            assert (spent.guarantee.epsilon, spent.guarantee.delta) == (result["epsilon"], DELTA)
            (run,) = ledger.runs()
            assert (run.declared, run.reserved, run.committed) == (True, 3, 3)


def test_a_run_that_does_not_fit_is_refused_before_anybody_pays(tmp_path: Path) -> None:
    """The server's ledger has room, and those of the parties, which add up otherwise, have not."""
    deployment = deployed(tmp_path)
    for name in NAMES:
        deployment.write_party(name, composition="rdp")
    with pytest.raises(RoundFailed, match="no party has joined"):
        deployment.run(tmp_path / "out")
    for name in NAMES:
        with deployment.ledger(name) as ledger:
            assert ledger.spent().total.amount == 0
    (path,) = deployment.server.glob("*.ledger")
    with Ledger.open(path, read_only=True) as ledger:
        assert ledger.spent().total.amount == 0


def test_full_batches_are_paid_as_before_where_the_ledger_prices_them(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    deployment = Deployment(folder=tmp_path, budget={"composition": "gdp"})
    result = deployment.run(tmp_path / "out")
    with deployment.ledger("north") as ledger:
        (run,) = ledger.runs()
        assert (run.declared, run.reserved) == (False, result["rounds"])


def test_a_ledger_of_pairs_takes_full_batches_as_a_whole(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    deployment = Deployment(folder=tmp_path, budget={"composition": "basic"})
    result = deployment.run(tmp_path / "out")
    for name in NAMES:
        with deployment.ledger(name) as ledger:
            assert ledger.spent().guarantee.epsilon == result["epsilon"]
            assert ledger.runs()[0].declared


@pytest.mark.parametrize("rule", ["basic", "rdp"])
def test_samples_with_shares_of_noise(tmp_path: Path, rule: str) -> None:
    """Each party samples its own records, adds its share, and nobody sees an exact sum."""
    tmp_path.chmod(0o700)
    parts = {table: dict(keys) for table, keys in SAMPLED["experiment"].items()}
    parts["privacy"] |= {"noise_at": "parties", "epsilon": 1.0}
    deployment = Deployment(
        folder=tmp_path,
        policy={"noise_at": "parties"},
        budget={**SAMPLED["budget"], "composition": rule, "epsilon": 4.0},
        experiment=parts,
    )
    result = deployment.run(tmp_path / "out")
    assert result["rounds"] == 3
    for name in NAMES:
        with deployment.ledger(name) as ledger:
            ledger.verify()
            (run,) = ledger.runs()
            assert (run.declared, run.reserved) == (True, 3)
            spent = ledger.spent().guarantee.epsilon
            assert spent == result["epsilon"] if rule == "basic" else spent >= result["epsilon"]


def test_a_share_is_held_against_the_sample_that_is_asked_for(tmp_path: Path) -> None:
    """An event of a smaller sample than the party draws would be cheaper than what is shown."""
    deployment = deployed(tmp_path, clear=True, composition="rdp", epsilon=100.0)
    task, party = north(deployment).engagement.task, north(deployment).party
    share = NoiseShare(law="skellam", parameter=1e16, minimum=2, colluders=1)
    whole = SkellamEvent(variance=1.0, l1_sensitivity=1.0, l2_sensitivity=1.0, adjacency=A)
    asked = query(deployment, event=whole, share=share, sampling_rate=0.5)
    mechanism = share_mechanism(asked, task)
    assert mechanism is not None
    with Journal(deployment.home("north") / "state").held():
        for stated_rate in (0.1, 1.0):
            wrong = replace(asked, event=sampled(mechanism.event(), stated_rate))
            with pytest.raises(QueryRefused, match="not that of the shares"):
                party.answer(wrong)
        party.answer(replace(asked, event=sampled(mechanism.event(), 0.5)))


# The price: two oracles.


@pytest.mark.parametrize(
    ("rate", "noise", "rounds", "delta", "epsilon"),
    [  # specification, reference values: privacy-loss distributions at 1e-4
        (0.01, 1.0, 1000, 1e-5, 1.82824365),
        (0.05, 5.0, 1000, 1e-6, 1.40030665),
    ],
)
def test_a_party_prices_a_plan_by_itself(
    tmp_path: Path, rate: float, noise: float, rounds: int, delta: float, epsilon: float
) -> None:
    steps = ((event(noise, rate), rounds),)
    deployment = deployed(tmp_path, clear=True, delta=delta, epsilon=epsilon * (1 + 2e-4))
    plan = stated(deployment, steps=steps, delta=delta, epsilon=epsilon * (1 + 2e-4))
    assert not join(deployment, plan).refusal
    lying = replace(plan, epsilon=epsilon * (1 - 2e-4))
    assert "its releases cost" in join(deployment, lying, seat=b"q" * 32).refusal
    deployment.write_party("north", delta=delta, epsilon=epsilon * (1 - 2e-4))
    (deployment.home("north") / "north.ledger").unlink()
    (deployment.home("north") / "state" / "ledger").unlink()
    assert "do not fit" in join(deployment, plan, seat=b"r" * 32).refusal


def test_one_release_costs_what_its_two_laws_say(sampling: Deployment) -> None:
    """δ(ε) of (1-q)N(0, σ²) + q·N(1, σ²) against N(0, σ²), in closed form, both orders."""
    q, sigma = 0.2, 1.0

    def phi(x: float) -> float:
        return erfc(-x / sqrt(2)) / 2

    def hockey_stick(epsilon: float) -> float:
        # The likelihood ratio 1 - q + q·exp((2x - 1)/2σ²) rises with x.
        up = sigma**2 * np.log((exp(epsilon) - 1 + q) / q) + 0.5
        joins = (
            (1 - q) * phi(-up / sigma) + q * phi((1 - up) / sigma) - exp(epsilon) * phi(-up / sigma)
        )
        if exp(-epsilon) <= 1 - q:
            return joins
        low = sigma**2 * np.log((exp(-epsilon) - 1 + q) / q) + 0.5
        mixed = (1 - q) * phi(low / sigma) + q * phi((low - 1) / sigma)
        return max(joins, phi(low / sigma) - exp(epsilon) * mixed)

    exact = brentq(lambda epsilon: hockey_stick(epsilon) - DELTA, 1e-3, 20)
    charged = cost(((event(sigma, q), 1),))
    assert exact <= charged <= exact * 1.001
    plan = stated(sampling, steps=((event(sigma, q), 1),), epsilon=exact * 0.999)
    assert "its releases cost" in join(sampling, plan).refusal


# Joining.


def test_joining_pays_nothing_and_the_first_release_pays_for_all(sampling: Deployment) -> None:
    assert isinstance(join(sampling, stated(sampling)).messages[0], Joined)
    assert rows(sampling) == []
    assert isinstance(ask(sampling, query(sampling)).messages[0], ClearAnswer)
    assert rows(sampling) == ["declared", "reserved"]
    with sampling.ledger("north") as ledger:  # all of it, and it stays so if the run stops here
        assert ledger.spent().guarantee.epsilon == cost()
    assert isinstance(ask(sampling, query(sampling, 1)).messages[0], ClearAnswer)
    with sampling.ledger("north") as ledger:
        assert ledger.spent().guarantee.epsilon == cost()


def test_two_runs_add_up_whatever_their_order(tmp_path: Path) -> None:
    sampling = deployed(tmp_path, clear=True, delta=2 * DELTA, epsilon=2 * cost())
    one, other = stated(sampling), stated(sampling, run=f"{north(sampling).engagement.run}-2")
    second = b"q" * 32
    for plan, seat in ((one, SEAT), (other, second)):
        assert not join(sampling, plan, seat=seat).refusal
        assert not ask(sampling, query(sampling, run=plan.run), seat=seat).refusal
    assert not ask(sampling, query(sampling, 2)).refusal
    with sampling.ledger("north") as ledger:
        spent = ledger.spent().guarantee
        assert (spent.epsilon, spent.delta) == (2 * cost(), 2 * DELTA)
    third = stated(sampling, run=f"{north(sampling).engagement.run}-3")
    assert "do not fit" in join(sampling, third, seat=b"r" * 32).refusal


@pytest.mark.parametrize("seat", [SEAT, b"q" * 32])
def test_a_run_has_one_plan(sampling: Deployment, seat: bytes) -> None:
    """Stated again in the same place, or in another one by a server that was restarted."""
    assert not join(sampling, stated(sampling)).refusal
    assert not ask(sampling, query(sampling)).refusal
    more = stated(sampling, steps=((event(3.0), 3), (event(4.0), 1)))
    joined = join(sampling, more, seat=seat)
    refused = joined if joined.refusal else ask(sampling, query(sampling, 1), seat=seat)
    assert "another plan" in refused.refusal or "LedgerConflict" in refused.refusal
    assert rows(sampling) == ["declared", "reserved"]


def test_the_plan_that_a_run_began_under_is_remembered_and_none_comes_after_its_first_answer(
    tmp_path: Path,
) -> None:
    deployment = deployed(tmp_path, clear=True, composition="rdp", epsilon=100.0)
    journal = Journal(deployment.home("north") / "state")
    full = ((GaussianEvent(relative_noise=9.0, adjacency=A), 2),)
    plan = stated(deployment, steps=full)
    asked = query(deployment, event=full[0][0], sampling_rate=1.0)
    late = replace(plan, run=f"{plan.run}2")
    for seat, shown, name in (
        (SEAT, plan, plan.run),
        (b"q" * 32, replace(plan, steps=((full[0][0], 1),)), plan.run),
        (b"r" * 32, b"", late.run),
        (b"s" * 32, late, late.run),
    ):
        assert not join(deployment, shown, seat=seat).refusal
        assert not ask(deployment, replace(asked, run=name), seat=seat).refusal
        asked = replace(asked, round=1 - asked.round)
    assert journal.planned(plan.run) == digest_of_releases(full)
    assert journal.planned(late.run) is None
    assert not journal.own_noise(plan.run)


def test_that_an_answer_was_exact_is_never_forgotten(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "state")
    with journal.held():
        assert not journal.own_noise("a")  # nothing is known of it
        for name, answers in (
            ("a", (True, True)),
            ("b", (True, False, True)),
            ("c", (False, True)),
        ):
            for index, own in enumerate(answers):
                journal.note(name, first=not index, shown=b"", plan=None, own_noise=own)
    assert [journal.own_noise(name) for name in "abc"] == [True, False, False]


def test_a_restarted_server_goes_on_though_nothing_is_left(tmp_path: Path) -> None:
    deployment = deployed(tmp_path, clear=True, epsilon=cost())
    plan = stated(deployment)
    for seat, round_ in ((SEAT, 0), (b"q" * 32, 1)):
        assert not join(deployment, plan, seat=seat).refusal
        assert not ask(deployment, query(deployment, round_), seat=seat).refusal


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"epsilon": cost() * 0.99}, "its releases cost"),
        ({"steps": ((event(0.9), 1),), "epsilon": 1e3}, "do not fit"),
        ({"steps": ((event(0.4), 1),), "epsilon": 1e3}, "insists on 0.5"),
        ({"steps": ((replace(event(), unit=Unit.PERSON), 1),)}, "planned for unit 'person'"),
        ({"run": "another"}, "another run"),
        ({"delta": 0.0, "epsilon": 1e3}, "its releases cost inf"),
    ],
)
def test_a_plan_that_cannot_be_answered_is_not_joined(
    sampling: Deployment, change: dict[str, Any], reason: str
) -> None:
    reply = join(sampling, stated(sampling, **change))
    assert reason in reply.refusal
    assert not reply.messages
    assert not (sampling.home("north") / "north.ledger").exists() or rows(sampling) == []


@pytest.mark.parametrize(
    ("rule", "reason"), [("gdp", "has no price"), ("rdp", "made with composition 'basic'")]
)
def test_a_ledger_that_cannot_price_a_plan_says_which_could(
    tmp_path: Path, rule: str, reason: str
) -> None:
    deployment = deployed(tmp_path, clear=True, composition=rule, epsilon=cost())
    reply = join(deployment, stated(deployment))
    assert reason in reply.refusal
    assert rule in reply.refusal
    assert rows(deployment) == []


@pytest.mark.parametrize("data", [b"{}", b"[]", b"\xff", b"null", b'{"run":1}', b" "])
def test_bytes_that_are_no_plan_are_refused(sampling: Deployment, data: bytes) -> None:
    assert "cannot be read" in join(sampling, data).refusal


def test_a_plan_has_one_form_on_the_wire(sampling: Deployment) -> None:
    plan = stated(sampling)
    assert StatedPlan.from_bytes(plan.to_bytes()) == plan
    assert "one form" in join(sampling, plan.to_bytes().replace(b",", b", ", 1)).refusal


def test_a_seat_of_an_older_version_has_no_plan() -> None:
    parts = [SEAT, bytes(32), b"", b"name", pack([]), pack([])]
    assert Memory.from_bytes(pack(parts)).plan == b""
