"""Attestation of a run: its statement, signed by the server and by every party that is there.

Everything comes from the directory of a finished run. The server signs once; signatures of parties
are added whenever they can be had, each checked before it is kept.

A ledger only grows. A party whose machine was put back to an earlier day, ledger and state alike,
cannot tell; but the heads that it signed before are in the statements of other runs. One that signs
with a shorter ledger, or with another one of the same length, has forgotten what was spent: its
signature is not kept, and people are told.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from fedpriv._toml import read_toml
from fedpriv.federation.deployed.statements.statement_document import (
    Member,
    make_document,
    members_of,
)
from fedpriv.federation.deployed.statements.verifying import of_parties
from fedpriv.federation.protocol.errands import Attest, Attested
from fedpriv.privacy.statement.signed import (
    NotCanonical,
    PartySignature,
    SignedStatement,
    sign_as_server,
)
from fedpriv.simulations.deploy.keys import identity_public
from fedpriv.simulations.deploy.run.jobs.errands import PATIENCE, send
from fedpriv.simulations.deploy.run.jobs.statement_file import (
    members,
    read_statement,
    write_statement_file,
)
from fedpriv.simulations.describe.files import STATISTICS_FILE
from fedpriv.simulations.engines.parties import protection
from fedpriv.simulations.experiment.file import parse_experiment
from fedpriv.simulations.run.files import read_json
from fedpriv.simulations.run.model_file import NAME
from fedpriv.simulations.run.release_outcome import SIGNED

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from flwr.serverapp import Grid

    from fedpriv.federation.engines.courier import Patience
    from fedpriv.federation.engines.seals import Seal
    from fedpriv.simulations.deploy.members.roster import Roster


def signed_by_server(directory: Path, roster: Roster, key: Ed25519PrivateKey) -> SignedStatement:
    """The statement of a finished run, as it was signed before, or signed by the server now.

    Args:
        directory: Of the run.
        roster: With which the run began.
        key: The server's identity.

    Raises:
        ValueError: The run is not finished, or the server has another identity since.
    """
    if (directory / SIGNED).exists():
        return read_statement(directory)
    if not (directory / "result.json").exists():
        raise ValueError(f"the run in {str(directory)!r} is not finished: it has no statement.")
    if identity_public(key) != roster.server:
        raise ValueError(
            "the server has another identity than when the run began, and cannot sign as that one."
        )
    experiment = parse_experiment(read_toml(directory / "config.toml", "experiment"))
    document = make_document(
        read_json(directory / "statement.json"),
        protection=protection(experiment),
        parties=members(roster),
        roster=roster.digest.hex(),
        server=roster.server,
        experiment=_digest(directory / "config.toml"),
        model=_digest(directory / (STATISTICS_FILE if experiment.describing else NAME)),
    )
    signed = sign_as_server(document, key)
    write_statement_file(directory, signed)
    return signed


def collect(
    signed: SignedStatement,
    directory: Path,
    grid: Grid,
    *,
    names: tuple[str, ...],
    seal: Seal,
    patience: Patience = PATIENCE,
    spared: Collection[int] = (),
) -> dict[str, str]:
    """Ask every party that is there and has not signed to do so; what came of it, for each.

    Args:
        signed: The statement so far.
        directory: Of the run.
        grid: Flower's.
        names: Of the parties, by number.
        seal: Signs requests, checks replies and knows which party a node is.
        patience: How long to wait.
        spared: The parties that are not asked.
    """
    done = {each.name for each in signed.parties}
    bare = SignedStatement(document=signed.document, server=signed.server)
    outcome = send(
        grid,
        "attest",
        lambda run: Attest(run=run, round=0, party=0, statement=bare.to_text().encode()),
        names=names,
        expected=Attested,
        seal=seal,
        patience=patience,
        spared={*spared, *(number for number, name in enumerate(names) if name in done)},
    )
    known = {each.name: each for each in members_of(signed.document)}
    grown = _longest_ledgers(directory.parent)
    words = {name: "signed" if name in done else said for name, said in outcome.words.items()}
    for number, said in outcome.results.items():
        signature, member = _signature(number, names[number], said), known.get(names[number])
        if signature is None or member is None or not _holds(bare, signature, member):
            words[names[number]] = "sent a false signature"
        elif _went_back(signature, grown.get(member.name)):
            words[names[number]] = (
                f"has another ledger than it signed with before, or an older copy, of "
                f"{signature.rows} rows: what was spent since is forgotten there"
            )
        else:
            signed = signed.with_party(signature)
            words[names[number]] = "signed"
    write_statement_file(directory, signed)
    return words


def _signature(number: int, name: str, said: Attested) -> PartySignature | None:
    """What a party has sent; None if no statement can have it, which is no other party's fault."""
    try:
        return PartySignature(
            number=number,
            name=name,
            head=said.head.hex(),
            rows=said.rows,
            releases=said.releases,
            signature=said.signature,
        )
    except NotCanonical:
        return None


def _holds(bare: SignedStatement, signature: PartySignature, member: Member) -> bool:
    """Whether the statement still holds with a signature: else one party would spoil it for all."""
    return all(each.passed for each in of_parties(bare.with_party(signature), (member,)))


def _longest_ledgers(runs: Path) -> dict[str, PartySignature]:
    """By name, the signature with the longest ledger that a party has given for any run.

    A party keeps its name, and its ledger, when it has new keys; nobody else ever has the name.
    """
    longest: dict[str, PartySignature] = {}
    for path in sorted(runs.glob(f"*/{SIGNED}")):
        try:
            statement = read_statement(path)
        except ValueError:  # which is for whoever reads that run
            continue
        for each in statement.parties:
            best = longest.setdefault(each.name, each)
            if each.rows > best.rows:
                longest[each.name] = each
    return longest


def _went_back(now: PartySignature, before: PartySignature | None) -> bool:
    """Whether a ledger is shorter than it was, or as long and another one."""
    return before is not None and (
        now.rows < before.rows or (now.rows == before.rows and now.head != before.head)
    )


def _digest(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()
