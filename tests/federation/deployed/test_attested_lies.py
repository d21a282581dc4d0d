"""Lies of a server in a statement: each is caught, although the server signed it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from fedpriv.federation.deployed.statements.verifying import verify
from fedpriv.federation.party.guard import QueryRefused
from tests.federation.deployed.statement_scenes import ROUNDS, SERVER_NOISE, SHARES, attest

if TYPE_CHECKING:
    from pathlib import Path

Change = Callable[[dict[str, Any]], object]


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
