"""A party attests what its own ledger says, and `verify` recomputes the rest without a network."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from fedpriv.federation.deployed.stated_plan import digest_of_releases
from fedpriv.federation.deployed.statements import attesting
from fedpriv.federation.deployed.statements.verifying import verify
from fedpriv.federation.party.guard import QueryRefused
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.ledger import Ledger
from fedpriv.privacy.statement.statement import unprotected
from fedpriv.privacy.tradeoff import gaussian_attack_advantage
from fedpriv.privacy.unit import Unit, neighbours_in_words
from tests.federation.deployed.statement_scenes import (
    ROUNDS,
    RUN,
    SERVER_NOISE,
    SHARES,
    Scene,
    adaptive_plan,
    attest,
    attested,
    gaussian_plan,
    shares_plan,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("scene", [SHARES, SERVER_NOISE], ids=["shares", "server"])
def test_a_true_statement_verifies(scene: Scene, tmp_path: Path) -> None:
    verdict = verify(attested(scene, tmp_path), roster=scene.pinned)
    assert verdict.sound, verdict.findings
    assert verdict.missing == ()
    said = {finding.check: finding.words for finding in verdict.findings}
    assert said["threshold"].startswith("t = 4 of 5, active, with 1 colluding")
    assert said["n_min"].startswith("n_min = 3" if scene is SHARES else "the noise is added by")
    assert all(finding.passed for finding in verdict.findings[:-2])


def test_who_did_not_sign_is_named(tmp_path: Path) -> None:
    verdict = verify(attested(SHARES, tmp_path, absent=("east", "west")), roster=SHARES.pinned)
    assert verdict.sound
    assert verdict.missing == ("east", "west")


def for_parties(document: dict[str, Any]) -> None:
    """One record's privacy as that of all records of a party, wherever it is said."""
    statement = document["statement"]
    for part in (statement["guarantee"], statement["plan"]):
        part["unit"] = "party"
    words = neighbours_in_words(Unit.PARTY, Adjacency.REPLACE_ONE)
    statement["guarantee"]["neighbours"] = words
    statement["unprotected"] = list(
        unprotected(Unit.PARTY, Adjacency.REPLACE_ONE, metrics_published=False)
    )
    for part in (*statement["plan"]["mechanisms"], *(e for e, _ in statement["releases"])):
        part["unit"] = "party"


def test_a_party_that_did_not_pay_refuses(tmp_path: Path) -> None:
    with (
        SHARES.ledger(tmp_path / "a.ledger", run="another-run") as ledger,
        pytest.raises(QueryRefused, match="paid for no release of this run"),
    ):
        attest(SHARES.signed(), ledger, SHARES.signatory())


def test_a_party_that_paid_more_refuses(tmp_path: Path) -> None:
    with (
        SHARES.ledger(tmp_path / "a.ledger", rounds=ROUNDS + 1) as ledger,
        pytest.raises(QueryRefused, match="not stated"),
    ):
        attest(SHARES.signed(), ledger, SHARES.signatory())


def test_a_party_that_paid_another_price_refuses(tmp_path: Path) -> None:
    dearer = Scene.make(shares_plan(epsilon=1.5))
    with (
        dearer.ledger(tmp_path / "a.ledger") as ledger,
        pytest.raises(QueryRefused, match="not stated"),
    ):
        attest(SHARES.signed(), ledger, SHARES.signatory())


def test_a_part_of_a_plan_that_was_paid_for_as_a_whole_is_not_signed_for(tmp_path: Path) -> None:
    """When a run stops may depend on what was seen: its ε is that of the whole plan."""
    whole = gaussian_plan()
    stopped = Scene.make(replace(whole, mechanisms=whole.mechanisms[:1]))
    with Ledger.create(
        tmp_path / "a.ledger",
        data_name="north",
        budget=whole.budget,
        adjacency="replace-one",
        composition="basic",
    ) as ledger:
        ledger.declare(RUN, [(whole.event(0), ROUNDS)], delta=whole.budget.delta)
        ledger.reserve(whole.event(0), run=RUN, round=0)
        assert stopped.plan.epsilon < ledger.spent().guarantee.epsilon
        with pytest.raises(QueryRefused, match="a plan of more releases than are stated"):
            attest(stopped.signed(), ledger, stopped.signatory())
        found = verify(stopped.signed(), ledger=ledger)
        told = Scene.make(whole)
        signature = attesting.attest(told.signed(), ledger, told.signatory())
        assert signature.releases == 1
    assert found.sound is False


def test_releases_that_no_plan_named_before_the_first_are_not_signed_for_as_a_plan(
    tmp_path: Path,
) -> None:
    """A server that asks until it has seen enough states afterwards what it asked for."""
    other = digest_of_releases([(SERVER_NOISE.plan.event(0), ROUNDS + 1)])
    with SERVER_NOISE.ledger(tmp_path / "a.ledger") as ledger:
        for planned in (None, other):
            with pytest.raises(QueryRefused, match="before its first answer"):
                attesting.attest(
                    SERVER_NOISE.signed(), ledger, SERVER_NOISE.signatory(), planned=planned
                )


def test_a_party_that_gave_exact_answers_does_not_sign_that_the_parties_added_the_noise(
    tmp_path: Path,
) -> None:
    """The events are the same, and the document holds together: only the party can know."""
    scene = Scene.make()
    signed, told = scene.signed(), digest_of_releases([(scene.plan.event(0), ROUNDS)])
    assert "nobody sees a sum without noise" in str(signed.document)
    assert verify(signed).sound
    with scene.ledger(tmp_path / "a.ledger") as ledger:
        with pytest.raises(QueryRefused, match="that the parties added the noise"):
            attesting.attest(signed, ledger, scene.signatory(), planned=told)
        attesting.attest(signed, ledger, scene.signatory(), planned=told, own_noise=True)


def test_a_budget_that_the_experiment_does_not_state_is_not_signed_for(tmp_path: Path) -> None:
    """Of noise that is chosen on the way the budget is all that was fixed before."""
    scene = Scene.make(adaptive_plan())
    own = scene.signatory()
    with Ledger.create(
        tmp_path / "a.ledger",
        data_name="north",
        budget=Budget(epsilon=50.0, delta=1e-6),
        adjacency="replace-one",
        composition="rdp",
    ) as ledger:
        for index, (event, _) in enumerate(scene.plan.releases):
            ledger.reserve(event, run=RUN, round=index)
        assert attesting.attest(scene.signed(), ledger, own).releases == 1
        stated = replace(own, budget=Budget(epsilon=1.0, delta=1e-6))
        with pytest.raises(QueryRefused, match="chosen on the way: the statement must state"):
            attesting.attest(scene.signed(), ledger, stated)


def test_a_delta_that_the_experiment_does_not_state_is_not_signed_for(tmp_path: Path) -> None:
    """The same releases have a smaller epsilon at a larger delta, which people may not look at."""
    scene = Scene.make(gaussian_plan())
    own, planned = scene.signatory(), digest_of_releases(scene.plan.releases)
    with scene.ledger(tmp_path / "a.ledger") as ledger:
        signed = attesting.attest(scene.signed(), ledger, own, planned=planned)
        assert signed.releases == ROUNDS
        stated = replace(own, budget=replace(own.budget, delta=own.budget.delta / 10))
        with pytest.raises(QueryRefused, match="has another budget than the experiment"):
            attesting.attest(scene.signed(), ledger, stated, planned=planned)


def test_a_party_of_another_adjacency_refuses(tmp_path: Path) -> None:
    with (
        SHARES.ledger(tmp_path / "a.ledger", adjacency="add-remove") as ledger,
        pytest.raises(QueryRefused, match="adjacency"),
    ):
        attest(SHARES.signed(), ledger, SHARES.signatory())


def test_a_party_whose_ledger_is_for_another_unit_refuses(tmp_path: Path) -> None:
    with (
        SHARES.ledger(tmp_path / "a.ledger", unit="party") as ledger,
        pytest.raises(QueryRefused, match="not for unit 'party', as this party's ledger is"),
    ):
        attest(SHARES.signed(), ledger, SHARES.signatory())


def test_a_unit_that_was_exchanged_everywhere_is_not_what_a_party_paid_for(tmp_path: Path) -> None:
    document = SHARES.document()
    for_parties(document)
    signed = SHARES.signed(document)
    assert all(finding.passed is not False for finding in verify(signed).findings)
    with (
        SHARES.ledger(tmp_path / "a.ledger") as ledger,
        pytest.raises(QueryRefused, match="not for unit 'record', as this party's ledger is"),
    ):
        attest(signed, ledger, SHARES.signatory())


def test_a_run_without_masks_tells_of_no_colluders_that_its_masks_withstand() -> None:
    document = SERVER_NOISE.document()
    document["masks"], document["statement"]["trust"]["secure_aggregation"] = None, "off"
    found = {each.check: each for each in verify(SERVER_NOISE.signed(document)).findings}
    assert "whom it tolerates" in found["threshold"].words


def test_a_party_that_missed_a_release_says_so(tmp_path: Path) -> None:
    with SHARES.ledger(tmp_path / "a.ledger", rounds=ROUNDS - 1) as ledger:
        signature = attest(SHARES.signed(), ledger, SHARES.signatory())
        assert (signature.releases, signature.head) == (ROUNDS - 1, ledger.head)


@pytest.mark.parametrize("form", ["gdp_mu", "zcdp_rho"])
def test_other_forms_of_gaussian_releases_are_computed_again(form: str) -> None:
    """Skellam shares have no mu; what noise at the server has, must not be stated smaller."""
    document = SERVER_NOISE.document()
    guarantee = document["statement"]["guarantee"]
    true = guarantee[form]
    for factor, holds in ((1.0, True), (1.5, True), (0.9, False)):
        guarantee[form] = true * factor
        if form == "gdp_mu":
            guarantee["attack_advantage"] = gaussian_attack_advantage(mu=guarantee[form])
        found = {each.check: each.passed for each in verify(SERVER_NOISE.signed(document)).findings}
        assert found["other forms"] is holds
        assert found["epsilon"]


def test_less_noise_in_the_plan_than_in_the_events_is_caught() -> None:
    document = SERVER_NOISE.document()
    document["statement"]["plan"]["mechanisms"][0]["stddev"] /= 2
    found = {each.check: each for each in verify(SERVER_NOISE.signed(document)).findings}
    assert found["epsilon"].passed  # which the events alone decide
    assert "not what the noise of its plan costs" in found["releases"].words
