"""A party attests what its own ledger says, and `verify` recomputes the rest without a network."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from typer.testing import CliRunner

from fedpriv.federation.deployed.stated_plan import digest_of_releases
from fedpriv.federation.deployed.statements import attesting
from fedpriv.federation.deployed.statements.stated_epsilon import Unsound
from fedpriv.federation.deployed.statements.stated_releases import releases_of
from fedpriv.federation.deployed.statements.verifying import verify
from fedpriv.federation.party.guard import QueryRefused
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.ledger import Ledger
from fedpriv.privacy.statement.signed import SignedStatement, read_signed
from fedpriv.privacy.statement.statement import unprotected
from fedpriv.privacy.tradeoff import gaussian_attack_advantage
from fedpriv.privacy.unit import Unit, neighbours_in_words
from fedpriv.simulations.cli import app
from tests.federation.deployed.statement_scenes import (
    NAMES,
    ROUNDS,
    RUN,
    Scene,
    adaptive_plan,
    gaussian_plan,
    shares_plan,
)

if TYPE_CHECKING:
    from pathlib import Path

    from fedpriv.federation.deployed.statements.attesting import Signatory
    from fedpriv.privacy.statement.signed import PartySignature

Change = Callable[[dict[str, Any]], object]

SHARES, SERVER_NOISE = Scene.make(), Scene.make(gaussian_plan())


def attest(signed: SignedStatement, ledger: Ledger, signatory: Signatory) -> PartySignature:
    """Of a party that was shown the plan of the statement before its first answer."""
    planned = None
    with suppress(Unsound):
        planned = digest_of_releases(releases_of(signed.document))
    return attesting.attest(signed, ledger, signatory, planned=planned, own_noise=True)


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
    statement["unprotected"] = list(
        unprotected(Unit.PARTY, Adjacency.REPLACE_ONE, metrics_published=False)
    )
    for part in (*statement["plan"]["mechanisms"], *(e for e, _ in statement["releases"])):
        part["unit"] = "party"


def hidden_shares(document: dict[str, Any]) -> None:
    """The releases under a key of another kind of plan, and under their own whatever one likes."""
    statement = document["statement"]
    plan, trust = statement["plan"], statement["trust"]
    plan["made"] = [each for each in plan["mechanisms"] for _ in range(each["count"])]
    plan["mechanisms"] = [
        {"name": "gaussian", "sensitivity": 2.0, "stddev": 1e6, "count": ROUNDS}
        | {"adjacency": "replace-one", "unit": "record"}
    ]
    document["noise_shares"] = None
    trust["tolerates"] = trust["tolerates"].replace("; noise of 3 honest shares", "")
    trust["sees"] = [*trust["sees"][:3], trust["tolerates"]]


def rates_of_their_own(document: dict[str, Any]) -> None:
    """A key by which nobody could tell which noise goes with which rate, and so nobody looked."""
    plan = document["statement"]["plan"]
    plan["rates"] = [1.0] * ROUNDS
    plan["mechanisms"] = [
        {**plan["mechanisms"][0], "count": count, "dimension": 4 + count} for count in (1, 2)
    ]


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
    "records of a person in the guarantee alone": (
        "epsilon",
        change("statement", "guarantee", "records_per_person", to=1),
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
    **{
        f"a claim of nobody's in {' '.join(map(str, path)) or 'the document'}": (
            "statement",
            change(*path, "also", to="epsilon = 0.01 for life"),
        )
        for path in (
            (),
            ("masks",),
            ("parties", 0),
            ("statement",),
            ("statement", "guarantee"),
            ("statement", "guarantee", "per_person"),
            ("statement", "run"),
            ("statement", "trust"),
            ("statement", "ledger"),
            ("statement", "plan"),
            ("statement", "plan", "budget"),
            ("statement", "plan", "mechanisms", 0),
            ("statement", "plan", "mechanisms", 0, "share"),
        )
    },
    "shares under another key": ("statement", hidden_shares),
    "rates that nobody looks at": ("releases", rates_of_their_own),
    "another thing released": ("statement", change("statement", "plan", "released", to="nothing")),
    "another strategy": ("statement", change("statement", "plan", "strategy", to="pathak")),
    "nothing seen on the way": (
        "statement",
        change("statement", "trust", "server_also_sees", to="nothing, as was audited"),
    ),
    "another sampler": ("statement", change("statement", "run", "sampler", to="Poisson")),
    "an audit of nobody's": ("statement", change("statement", "run", "audit_epsilon", to=0.01)),
    "code of nobody's": ("statement", change("statement", "run", "guests", to=["certified"])),
    "no day": ("statement", change("statement", "run", "date", to="for life")),
    "a version in words": ("statement", change("statement", "fedpriv", to="1.0, certified")),
    "another theorem": (
        "epsilon",
        change("statement", "guarantee", "accountant_version", to="exact, fedpriv 0.1.0"),
    ),
    "a number in words": ("statement", change("statement", "ledger", "budget_epsilon", to="2_0")),
    "a warning that is none": ("trust", change("statement", "warnings", to=["all is well"])),
    "a warning left out": ("trust", change("statement", "run", "assumptions", to=["a promise"])),
    "coefficients that no party has seen": (
        "statement",
        change("statement", "run", "coefficients", to=["age 0.5"]),
    ),
    "a simulation": ("statement", change("statement", "status", to="SIMULATED")),
    "seeded": ("statement", change("statement", "run", "randomness", to="seeded")),
    "more parties": ("statement", change("statement", "plan", "parties", to=6)),
    "noise of the server's in shares": (
        "trust",
        change("statement", "plan", "noise_at", to="server"),
    ),
    "noise of nobody's": ("trust", change("statement", "plan", "noise_at", to="nobody")),
    "nobody sees anything": ("trust", change("statement", "trust", "sees", to=[])),
    "another sentence": ("trust", change("statement", "trust", "sees", 2, to="all is hidden")),
    "all protected": ("trust", change("statement", "unprotected", to=[])),
    "all covered": ("trust", change("statement", "not_covered", to=[])),
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


def of_fewer_records(document: dict[str, Any]) -> None:
    """A person of one record, wherever it is said: its epsilon is then that of a record."""
    statement = document["statement"]
    guarantee = statement["guarantee"]
    for part in (guarantee, statement["run"]):
        part["records_per_person"] = 1
    guarantee["per_person"] = {key: guarantee[key] for key in ("epsilon", "delta")}


def of_other_records(document: dict[str, Any]) -> None:
    statement = document["statement"]
    for part in ("guarantee", "plan"):
        statement[part]["records"] -= 100
    statement["guarantee"]["delta_times_units"] = statement["guarantee"]["delta"] * 400


@pytest.mark.parametrize(
    ("name", "lie"),
    [
        ("records_per_person", of_fewer_records),
        ("person_records", change("statement", "run", "person_records", to=3)),
        ("person_parties", change("statement", "run", "person_parties", to=2)),
        ("records", of_other_records),
    ],
)
def test_a_party_knows_from_the_experiment_how_many_records_a_person_has(
    tmp_path: Path, name: str, lie: Change
) -> None:
    """All that follows from it was changed, too: without a party's signature nobody could tell."""
    document = SHARES.document()
    lie(document)
    signed = SHARES.signed(document)
    assert verify(signed).sound
    with (
        SHARES.ledger(tmp_path / "a.ledger") as ledger,
        pytest.raises(QueryRefused, match=rf"{name} = .* the experiment and the roster"),
    ):
        attest(signed, ledger, SHARES.signatory())


@pytest.mark.parametrize(("part", "name"), [("run", "data"), ("run", "outcome"), ("run", "tuning")])
def test_a_party_knows_from_the_experiment_what_is_said_in_words(
    part: str, name: str, tmp_path: Path
) -> None:
    """A server could call the data, and what was published of them, whatever it liked."""
    document = SERVER_NOISE.document()
    own = replace(SERVER_NOISE.signatory(), told={part: {name: document["statement"][part][name]}})
    document["statement"][part][name] = "public"
    signed = SERVER_NOISE.signed(document)
    with (
        SERVER_NOISE.ledger(tmp_path / "a.ledger") as ledger,
        pytest.raises(QueryRefused, match=f"{part}.{name} of the statement is not what the exp"),
    ):
        attest(signed, ledger, own)


def test_a_run_without_masks_tells_of_no_colluders_that_its_masks_withstand() -> None:
    document = SERVER_NOISE.document()
    document["masks"], document["statement"]["trust"]["secure_aggregation"] = None, "off"
    found = {each.check: each for each in verify(SERVER_NOISE.signed(document)).findings}
    assert "whom it tolerates" in found["threshold"].words


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
        "another experiment than": replace(own, experiment="dc" * 32),
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
