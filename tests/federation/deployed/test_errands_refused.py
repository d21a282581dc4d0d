"""Errands that are refused: statements that no party signs, and models that none believes."""

from __future__ import annotations

import json
import shutil
from dataclasses import fields, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest

from fedpriv._toml import parse_toml, to_toml
from fedpriv.federation.deployed.errands import Errands
from fedpriv.federation.protocol.errands import Attest, Attested, HandOver
from fedpriv.privacy.statement.facts import TrustModel
from fedpriv.privacy.statement.signed import read_signed, sign_as_party, sign_as_server
from fedpriv.privacy.statement.statement import who_sees_what
from fedpriv.simulations.deploy.keys import read_identity
from fedpriv.simulations.engines.parties import protection
from fedpriv.simulations.experiment.file import parse_experiment
from fedpriv.simulations.run.files import read_json, write_json
from fedpriv.simulations.run.release_outcome import SIGNED
from tests.federation.deployed.deployments import FOUR, Deployment
from tests.federation.deployed.errands import (
    CLEAR,
    NAMES,
    ROUND,
    RUN,
    TWICE,
    done,
    handled,
    verified,
)

if TYPE_CHECKING:
    from pathlib import Path


def test_a_party_believes_no_other_statement_or_model(tmp_path: Path) -> None:
    deployment, out = Deployment(folder=tmp_path, **FOUR), tmp_path / "server" / "runs" / "a"
    deployment.run(out)
    done("attest", deployment, out, "south")  # which would sign no other one at all
    signed = read_signed((out / SIGNED).read_bytes())
    text, model = (out / SIGNED).read_bytes(), (out / "model.npz").read_bytes()
    # A statement that the true server signed, about another model, or with another epsilon.
    key = read_identity(deployment.server / "identity.key")
    changed = {**signed.document, "model": sha256(b"").hexdigest()}
    cheaper = json.loads(json.dumps(signed.document))
    for part in ("guarantee", "plan"):
        cheaper["statement"][part]["epsilon"] /= 2
    renamed = json.loads(json.dumps(signed.document))
    renamed["statement"]["run"]["data"] = "public data"
    forged = {**signed.document, "server": deployment.roster.identities[0].hex()}
    other = sign_as_server(forged, read_identity(deployment.home("north") / "identity.key"))
    cases: dict[str, Any] = {
        "not the one that the statement names": HandOver(
            run=RUN, **ROUND, statement=sign_as_server(changed, key).to_text().encode(), model=model
        ),
        "the statement is wrong (epsilon)": Attest(
            run=RUN, **ROUND, statement=sign_as_server(cheaper, key).to_text().encode()
        ),
        "is wrong (epsilon)": HandOver(
            run=RUN, **ROUND, statement=sign_as_server(cheaper, key).to_text().encode(), model=model
        ),
        "run.data of the statement is not what the experiment says": HandOver(
            run=RUN, **ROUND, statement=sign_as_server(renamed, key).to_text().encode(), model=model
        ),
        "cannot be read": Attest(run=RUN, **ROUND, statement=text[:-1]),
        "not signed by this party's server": HandOver(
            run=RUN, **ROUND, statement=other.to_text().encode(), model=model
        ),
    }
    for words, message in cases.items():
        reply = handled(deployment, "south", message, config=(out / "config.toml").read_text())
        assert words in reply.refusal, reply.refusal
        assert not reply.messages
    assert not (deployment.home("south") / "models").exists()


def test_no_party_signs_a_statement_that_leaves_out_what_is_taken_from_somebodys_word(
    tmp_path: Path,
) -> None:
    """Of metrics on test records, that these are public: the experiment says so."""
    deployment = Deployment(folder=tmp_path, **FOUR)
    public, out = tmp_path / "public.csv", tmp_path / "server" / "runs" / "a"
    public.write_text((deployment.home("south") / "records.csv").read_text())
    config = deployment.config(data={"path": str(public), "public_test": True})
    deployment.run(out, config=config)
    statement = read_json(out / "statement.json")
    assert "declared to be public" in statement["run"]["assumptions"][0]
    silent = {**statement, "run": {**statement["run"], "assumptions": []}, "warnings": []}
    write_json(out / "statement.json", silent)
    refused = done("attest", deployment, out)
    assert all("run.assumptions of the statement is not what" in said for said in refused.values())
    write_json(out / "statement.json", statement)
    (out / SIGNED).unlink(missing_ok=True)
    assert set(done("attest", deployment, out).values()) == {"signed"}


@pytest.mark.parametrize(
    ("policy", "ran", "told"),
    [
        (
            {"secure_aggregation": "off"},
            {"secure_aggregation": "off"},
            {"secure_aggregation": "active"},
        ),
        ({}, {}, {"least_parties": 4}),
    ],
)
def test_no_party_signs_for_protection_that_a_run_did_not_have(
    policy: dict[str, Any], ran: dict[str, Any], told: dict[str, Any], tmp_path: Path
) -> None:
    """Every party signed that a run had masks whose answers it had sent in the clear.

    The name of a run had no protection in it, and so was that of an experiment under masks, too.
    """
    deployment = Deployment(folder=tmp_path, **FOUR, policy=policy, experiment={"run": ran})
    out = tmp_path / "server" / "runs" / "a"
    deployment.run(out)
    shown = parse_experiment(parse_toml((out / "config.toml").read_text(), "")).replaced(run=told)
    (out / "config.toml").write_text(to_toml(shown.to_dict()))
    masks = protection(shown).parameters(len(NAMES))
    statement = read_json(out / "statement.json")
    statement["trust"] |= {
        "secure_aggregation": masks.mode.value,
        "colluding_parties": masks.colluders,
        "dropped_parties": masks.missing,
        "least_parties": masks.minimum,
        "tolerates": masks.sentence(),
    }
    plan, trust = statement["plan"], statement["trust"]
    trust["sees"] = who_sees_what(
        TrustModel(**{each.name: trust[each.name] for each in fields(TrustModel)}),
        share=None,
        **{name: plan[name] for name in ("noise_at", "released", "parties")},
    )
    statement["warnings"] = []
    write_json(out / "statement.json", statement)
    words = done("attest", deployment, out)
    assert all("of another experiment than this party is shown" in said for said in words.values())
    assert set(words) == set(NAMES)
    status, said = verified(out / SIGNED, "--roster", deployment.server / "roster.toml")
    assert (status, said["missing"]) == (0, list(NAMES))  # the server alone says so


@pytest.mark.parametrize("new_keys", [False, True])
def test_a_party_that_was_put_back_to_an_earlier_day_is_found_out(
    new_keys: bool, tmp_path: Path
) -> None:
    """Its whole machine: ledger and state agree with each other, and the budget is there again.

    With new keys since, it was taken for somebody who had never signed.
    """
    deployment = Deployment(folder=tmp_path, **FOUR, budget=TWICE)
    home, earlier = deployment.home("north"), tmp_path / "earlier"
    shutil.copytree(home, earlier)
    runs = tmp_path / "server" / "runs"
    deployment.run(runs / "a")
    assert set(done("attest", deployment, runs / "a").values()) == {"signed"}
    if new_keys:  # the keys of then are others than those of now
        signed = read_signed((runs / "a" / SIGNED).read_bytes())
        before = [{**each, "identity": "0f" * 32} for each in signed.document["parties"]]
        then = replace(signed, document={**signed.document, "parties": before[:1]})
        (runs / "a" / SIGNED).write_text(then.to_text())
    shutil.rmtree(home)
    shutil.copytree(earlier, home)
    deployment.run(runs / "b")
    words = done("attest", deployment, runs / "b")
    assert "another ledger than it signed with before" in words.pop("north")
    assert set(words.values()) == {"signed"}
    assert verified(runs / "b")[1]["missing"] == ["north"]


@pytest.mark.parametrize(
    "lie", [{"rows": 2**64 - 1}, {"releases": 2**64 - 1}, {"releases": 99}, {"releases": 0}]
)
def test_a_party_that_answers_nonsense_keeps_nobody_else_from_signing(
    lie: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A number that no statement can have ended the job, and all other signatures were lost.

    One that no true signature has was kept, with the signature: the statement of all others did not
    verify any more, and whoever had signed it was not asked again.
    """
    deployment, out = Deployment(folder=tmp_path, **CLEAR), tmp_path / "server" / "runs" / "a"
    deployment.run(out)
    attest = Errands._attest

    def lying(self: Errands, errand: Attest) -> Attested:
        said, own = attest(self, errand), self.signatory
        if own.name != "east":
            return said
        wrong = replace(said, **lie)
        if max(wrong.rows, wrong.releases) >= 1 << 63:
            return wrong
        signed = sign_as_party(
            read_signed(errand.statement).document,
            own.identity,
            number=own.number,
            name=own.name,
            head=wrong.head.hex(),
            rows=wrong.rows,
            releases=wrong.releases,
        )
        return replace(wrong, signature=signed.signature)

    monkeypatch.setattr(Errands, "_attest", lying)
    words = done("attest", deployment, out)
    assert words.pop("east") == "sent a false signature"
    assert set(words.values()) == {"signed"}
    assert set(done("handover", deployment, out).values()) == {"has it"}
    status, said = verified(out)
    assert (status, said["missing"]) == (0, ["east"])


def test_a_party_signs_one_statement_of_a_run_and_takes_over_its_model(tmp_path: Path) -> None:
    """A server had two statements signed by everybody: one run, two models, both complete."""
    deployment, out = Deployment(folder=tmp_path, **CLEAR), tmp_path / "server" / "runs" / "a"
    deployment.run(out)
    assert set(done("attest", deployment, out).values()) == {"signed"}
    key, text = read_identity(deployment.server / "identity.key"), (out / "config.toml").read_text()
    signed = read_signed((out / SIGNED).read_bytes())
    other = (out / "model.npz").read_bytes() + b"\0"  # which is an archive still
    document = {**signed.document, "model": sha256(other).hexdigest()}
    second = sign_as_server(document, key).to_text().encode()
    for message in (
        Attest(run=RUN, **ROUND, statement=second),
        HandOver(run=RUN, **ROUND, statement=second, model=other),
    ):
        reply = handled(deployment, "north", message, config=text)
        assert "has signed another statement of this run" in reply.refusal
        assert not reply.messages
    again = Attest(run=RUN, **ROUND, statement=signed.to_text().encode())
    assert handled(deployment, "north", again, config=text).messages
    assert set(done("handover", deployment, out).values()) == {"has it"}


def test_a_party_that_was_handed_a_model_signs_for_no_other(tmp_path: Path) -> None:
    """Before it had signed, a server could have it keep one model, and sign for another."""
    deployment, out = Deployment(folder=tmp_path, **CLEAR), tmp_path / "server" / "runs" / "a"
    deployment.run(out)
    assert set(done("attest", deployment, out, "north").values()) == {"signed", "not there"}
    key, text = read_identity(deployment.server / "identity.key"), (out / "config.toml").read_text()
    signed, model = read_signed((out / SIGNED).read_bytes()), (out / "model.npz").read_bytes()
    other = model + b"\0"  # which is an archive still
    document = {**signed.document, "model": sha256(other).hexdigest()}
    second = sign_as_server(document, key).to_text().encode()
    handed = HandOver(run=RUN, **ROUND, statement=second, model=other)
    assert handled(deployment, "north", handed, config=text).messages
    for message in (
        Attest(run=RUN, **ROUND, statement=signed.to_text().encode()),
        HandOver(run=RUN, **ROUND, statement=signed.to_text().encode(), model=model),
    ):
        reply = handled(deployment, "north", message, config=text)
        assert "has another model of this run" in reply.refusal
        assert not reply.messages
    attest = Attest(run=RUN, **ROUND, statement=second)  # the one that it knows
    assert handled(deployment, "north", attest, config=text).messages
    assert handled(deployment, "north", handed, config=text).messages


def test_a_refusal_that_quotes_a_statement_is_a_short_line_of_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Every message of a server could leave megabytes there, line breaks and all."""
    deployment, out = Deployment(folder=tmp_path, **CLEAR), tmp_path / "server" / "runs" / "a"
    deployment.run(out)
    done("attest", deployment, out, *NAMES)  # the server has signed
    key, text = read_identity(deployment.server / "identity.key"), (out / "config.toml").read_text()
    document = read_signed((out / SIGNED).read_bytes()).document
    long = sign_as_server({**document, "noise_shares": "\x1b[2J" * 100_000}, key)
    attest = Attest(run=RUN, **ROUND, statement=long.to_text().encode())
    caplog.clear()
    assert handled(deployment, "north", attest, config=text).refusal
    (line,) = [record.getMessage() for record in caplog.records]
    assert "claims shares of noise for" in line
    assert len(line) < 1100
    assert line.isprintable()
