"""Who signed a statement: for its own server, roster, name and ledger, and nobody else's."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from typer.testing import CliRunner

from fedpriv.federation.deployed.statements.verifying import verify
from fedpriv.federation.party.guard import QueryRefused
from fedpriv.simulations.cli import app
from tests.federation.deployed.statement_scenes import ROUNDS, RUN, SHARES, Scene, attest, attested

if TYPE_CHECKING:
    from pathlib import Path


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
        "claims other masks": replace(own, protection=replace(own.protection, level="off")),
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
