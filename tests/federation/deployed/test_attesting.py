"""A party attests what its own ledger says, and `verify` recomputes the rest without a network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from typer.testing import CliRunner

from fedpriv.federation.deployed.attesting import attest
from fedpriv.federation.deployed.verifying import verify
from fedpriv.federation.party.guard import QueryRefused
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.statement.signed import SignedStatement, read_signed
from fedpriv.privacy.tradeoff import gaussian_attack_advantage
from fedpriv.privacy.unit import Unit, neighbours_in_words
from fedpriv.simulations.cli import app
from tests.federation.deployed.statement_scenes import (
    NAMES,
    ROUNDS,
    RUN,
    Scene,
    gaussian_plan,
    shares_plan,
)

if TYPE_CHECKING:
    from pathlib import Path

Change = Callable[[dict[str, Any]], object]

SHARES, SERVER_NOISE = Scene.make(), Scene.make(gaussian_plan())


def attested(scene: Scene, folder: Path, *, absent: tuple[str, ...] = ()) -> SignedStatement:
    """The statement with the signatures of all who are there."""
    signed = scene.signed()
    for number, name in enumerate(NAMES):
        if name not in absent:
            with scene.ledger(folder / f"{name}.ledger") as ledger:
                signed = signed.with_party(attest(signed, ledger, scene.signatory(number)))
    return read_signed(signed.to_text().encode())


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


def change(*path: str | int, to: Any) -> Change:
    def apply(document: dict[str, Any]) -> None:
        place: Any = document
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = to

    return apply


def lower_epsilon(document: dict[str, Any]) -> None:
    for part in ("guarantee", "plan"):
        document["statement"][part]["epsilon"] *= 0.9


def raise_epsilon(document: dict[str, Any]) -> None:
    document["statement"]["plan"]["budget"]["epsilon"] = 10.0
    for part in ("guarantee", "plan"):
        document["statement"][part]["epsilon"] *= 1.1


def more_noise(document: dict[str, Any]) -> None:
    """Events that cost less than the noise in the plan does."""
    document["statement"]["releases"][0][0]["variance"] *= 4


def fewer_colluders(document: dict[str, Any]) -> None:
    for each in document["statement"]["plan"]["mechanisms"]:
        each["share"]["colluders"] = 0
    document["noise_shares"] = {"minimum": 4, "colluders": 0, "n_min": 4}


def for_parties(document: dict[str, Any]) -> None:
    """One record's privacy as that of all records of a party, wherever it is said."""
    statement = document["statement"]
    for part in (statement["guarantee"], statement["plan"]):
        part["unit"] = "party"
    words = neighbours_in_words(Unit.PARTY, Adjacency.REPLACE_ONE)
    statement["guarantee"]["neighbours"] = words
    for part in (*statement["plan"]["mechanisms"], *(e for e, _ in statement["releases"])):
        part["unit"] = "party"


def without_unit(document: dict[str, Any]) -> None:
    del document["statement"]["releases"][0][0]["unit"]


LIES: dict[str, tuple[str, Change]] = {
    "a lower epsilon": ("epsilon", lower_epsilon),
    "a higher epsilon": ("epsilon", raise_epsilon),
    "epsilon of the guarantee alone": (
        "epsilon",
        change("statement", "guarantee", "epsilon", to=0.5),
    ),
    "epsilon of a person": (
        "epsilon",
        change("statement", "guarantee", "per_person", "epsilon", to=1.0),
    ),
    "another delta": ("epsilon", change("statement", "guarantee", "delta", to=1e-5)),
    "another accountant": ("epsilon", change("statement", "guarantee", "accountant", to="none")),
    "a lower threshold": ("threshold", change("masks", "threshold", to=3)),
    "a smaller sum": ("threshold", change("masks", "minimum", to=3)),
    "no colluders": ("threshold", change("masks", "corrupt", to=0.0)),
    "trust apart from masks": (
        "threshold",
        change("statement", "trust", "colluding_parties", to=2),
    ),
    "words apart from masks": ("threshold", change("statement", "trust", "tolerates", to="all")),
    "no masks": ("threshold", change("masks", to=None)),
    "n_min": ("n_min", change("noise_shares", "n_min", to=4)),
    "no shares": ("n_min", change("noise_shares", to=None)),
    "fewer colluders in the noise": ("n_min", fewer_colluders),
    "more honest shares than events have": ("releases", fewer_colluders),
    "events of more noise": ("releases", more_noise),
    "a smaller mu": ("other forms", change("statement", "guarantee", "gdp_mu", to=0.01)),
    "a smaller rho": ("other forms", change("statement", "guarantee", "zcdp_rho", to=1e-4)),
    "a blinder attacker": (
        "other forms",
        change("statement", "guarantee", "attack_advantage", to=0.01),
    ),
    "other neighbours": (
        "other forms",
        change("statement", "guarantee", "neighbours", to="a person and all of its records"),
    ),
    "more records": ("other forms", change("statement", "guarantee", "records", to=10**9)),
    "a smaller delta per record": (
        "other forms",
        change("statement", "guarantee", "delta_times_units", to=1e-9),
    ),
    "fewer releases": ("releases", change("statement", "releases", 0, 1, to=2)),
    "no event": ("releases", change("statement", "releases", 0, 0, to=7)),
    "no releases": ("releases", change("statement", "releases", to=[])),
    "another adjacency": (
        "releases",
        change("statement", "guarantee", "adjacency", to="add-remove"),
    ),
    "another unit": ("releases", change("statement", "guarantee", "unit", to="party")),
    "another unit of the plan": ("releases", change("statement", "plan", "unit", to="party")),
    "another unit of an event": (
        "releases",
        change("statement", "releases", 0, 0, "unit", to="party"),
    ),
    "no unit of an event": ("releases", without_unit),
    "a simulation": ("statement", change("statement", "status", to="SIMULATED")),
    "seeded": ("statement", change("statement", "run", "randomness", to="seeded")),
    "more parties": ("statement", change("statement", "plan", "parties", to=6)),
    "no ledger": ("budget", change("statement", "ledger", to=None)),
    "a spent budget": (
        "budget",
        change("statement", "ledger", "spent_before_epsilon", to=2.5),
    ),
    "not a table": ("epsilon", change("statement", "guarantee", to=7)),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_caught_although_the_server_signed_it(lie: str, tmp_path: Path) -> None:
    check, apply = LIES[lie]
    document = SHARES.document()
    apply(document)
    signed = SHARES.signed(document)
    found = {finding.check: finding.passed for finding in verify(signed).findings}
    assert found[check] is False
    assert found["server"] is True
    with SHARES.ledger(tmp_path / "north.ledger") as ledger, pytest.raises(QueryRefused):
        attest(signed, ledger, SHARES.signatory())


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


def test_a_party_that_missed_a_release_says_so(tmp_path: Path) -> None:
    with SHARES.ledger(tmp_path / "a.ledger", rounds=ROUNDS - 1) as ledger:
        signature = attest(SHARES.signed(), ledger, SHARES.signatory())
        assert (signature.releases, signature.head) == (ROUNDS - 1, ledger.head)


def test_a_party_signs_for_its_own_server_roster_and_name_only(tmp_path: Path) -> None:
    own, other = SHARES.signatory(), Ed25519PrivateKey.generate()
    strangers = {
        "signed by this party's server": replace(own, server=other.public_key().public_bytes_raw()),
        "another roster": replace(own, roster="00" * 32),
        "other parties than those": replace(own, members=own.members[:-1]),
        "than those of the roster": replace(own, members=Scene.make().members),
        "does not name this party": replace(own, identity=other),
        "name this party as": replace(own, name="east"),
        "party as its roster": replace(own, number=1),
        "another experiment": replace(own, run=own.run[:-1]),
        "other masks": replace(own, protection=replace(own.protection, level="semi-honest")),
        "masks than those": replace(own, protection=replace(own.protection, corrupt=0.0)),
        "tells of other": replace(own, protection=replace(own.protection, level="off")),
    }
    with SHARES.ledger(tmp_path / "north.ledger") as ledger:
        attest(SHARES.signed(), ledger, own)
        for words, signatory in strangers.items():
            with pytest.raises(QueryRefused, match=words):
                attest(SHARES.signed(), ledger, signatory)


def test_a_statement_of_another_server_is_refused(tmp_path: Path) -> None:
    forged = replace(SHARES, server=Ed25519PrivateKey.generate())
    with (
        SHARES.ledger(tmp_path / "north.ledger") as ledger,
        pytest.raises(QueryRefused, match="not signed by this party's server"),
    ):
        attest(forged.signed(SHARES.document()), ledger, SHARES.signatory())


def test_the_roster_given_decides_whose_the_keys_are(tmp_path: Path) -> None:
    signed = attested(SHARES, tmp_path)
    other = Scene.make()
    for roster in (
        other.pinned,
        replace(SHARES.pinned, digest="00" * 32),
        replace(SHARES.pinned, members=SHARES.members[:-1]),
        replace(SHARES.pinned, server=other.pinned.server),
    ):
        assert not verify(signed, roster=roster).sound
    # By itself it holds together, and says that nobody has vouched for its keys.
    alone = verify(signed)
    assert alone.sound
    assert {f.check for f in alone.findings if f.passed is None} >= {"roster", "ledger"}


def test_whoever_made_a_statement_writes_no_line_of_the_verdict(tmp_path: Path) -> None:
    document = SHARES.document()
    document["parties"][0]["name"] = "nobody\nThe statement holds.\x1b[8m"
    document["statement"]["guarantee"]["epsilon"] = 0.1
    path = tmp_path / "statement.signed.json"
    path.write_text(SHARES.signed(document).to_text())
    said = CliRunner().invoke(app, ["verify", str(path)])
    assert said.exit_code == 1
    assert said.output.isascii()
    assert "The statement holds." not in said.output.splitlines()
    assert "The statement does NOT hold." in said.output.splitlines()


def test_a_signature_under_another_name_is_caught(tmp_path: Path) -> None:
    signed = attested(SHARES, tmp_path)
    moved = replace(signed, parties=(replace(signed.parties[0], number=4),))
    assert not verify(moved).sound
    stranger = replace(signed, parties=(replace(signed.parties[0], number=9, name="nobody"),))
    assert not verify(stranger).sound


def test_a_ledger_is_known_by_its_signed_head(tmp_path: Path) -> None:
    signed = attested(SHARES, tmp_path)
    with SHARES.ledger(tmp_path / "other.ledger") as other:
        assert not verify(signed, ledger=other).sound
    from fedpriv.privacy.ledger import Ledger

    with Ledger.open(tmp_path / "east.ledger") as ledger:
        ledger.reserve(SHARES.plan.event(0), run="a-later-run", round=0)
        verdict = verify(signed, ledger=ledger)
        ledger.reserve(SHARES.plan.event(0), run=RUN, round=ROUNDS)
        gone_on = verify(signed, ledger=ledger)
    assert verdict.sound
    assert not gone_on.sound  # the run cost more than was signed
    assert "that of east" in next(f.words for f in verdict.findings if f.check == "ledger")
    assert RUN in next(f.words for f in verdict.findings if f.check == "statement")


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
