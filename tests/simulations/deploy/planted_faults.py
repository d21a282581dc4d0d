"""Faults planted in the directories of members, each with what the doctor must say of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedpriv.federation.deployed.journal import Journal, LedgerMark
from fedpriv.federation.deployed.policy import read_party
from fedpriv.privacy.ledger import Ledger
from fedpriv.simulations.deploy import certificates, keys
from fedpriv.simulations.deploy.members.epochs import forget
from fedpriv.simulations.deploy.members.roster import read_roster, write_roster
from tests.simulations.deploy.conftest import LABEL

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedpriv.simulations.deploy.folders import PartyFolder, ServerFolder


def edited(path: Any, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def other_identity(folder: PartyFolder | ServerFolder) -> None:
    key = Ed25519PrivateKey.generate()
    keys.write_private(folder.identity, keys.identity_private(key), force=True)


def other_node_key(folder: PartyFolder) -> None:
    keys.write_private(folder.node_key, keys.node_private(keys.new_node_key()), force=True)


def left_out_of_the_roster(folder: PartyFolder) -> None:
    roster = read_roster(folder.roster)
    write_roster(folder.roster, replace(roster, members=roster.members[1:]))


def another_record(folder: PartyFolder) -> None:
    with (folder.root / "records.csv").open("a") as file:
        file.write("50,5,yes\n")


def text_in_a_listed_column(folder: PartyFolder) -> None:
    """One of 40 incomes is a text: a run that suggests bounds for them was refused for it."""
    edited(folder.policy, "[policy]\n", '[policy]\nsuggest_bounds = ["income"]\n')
    path = folder.root / "records.csv"
    header, first, *rows = path.read_text().splitlines()
    told = [f"{header},income", f"{first},much", *(f"{row},100" for row in rows)]
    path.write_text("\n".join(told) + "\n")


def held_out_beyond_the_schema(folder: PartyFolder) -> None:
    edited(folder.policy, 'data = "records.csv"\n', 'data = "records.csv"\ntest = "test.csv"\n')
    (folder.root / "test.csv").write_text("age,dose,sick\n50,5,yes\n50,5,perhaps\n")


def broken_ledger(folder: PartyFolder) -> None:
    (folder.root / "north.ledger").write_bytes(b"this was a ledger once" * 100)


def lost_ledger(folder: PartyFolder) -> None:
    answers = folder.root / "state" / "answers"
    answers.mkdir(parents=True, exist_ok=True)
    (answers / "run").touch()


def older_ledger(folder: PartyFolder) -> None:
    file = read_party(folder.policy)
    Ledger.create(
        file.ledger, data_name="north", budget=file.budget, adjacency=file.adjacency
    ).close()
    journal = Journal(file.state)
    with journal.held():
        journal.mark(LedgerMark(rows=7, head=bytes(32)))


PARTY_FAULTS: dict[str, tuple[Callable[[PartyFolder], Any], set[str], str]] = {
    "unknown key of the policy": (
        lambda f: edited(f.policy, "min_noise", "min_nois"),
        {"policy", "CA certificate", "identity", "node key", "schema", "records", "ledger"}
        | {"thresholds", "roster", "server identity"},
        "Did you mean 'min_noise'",
    ),
    "more colluders than the roster can bear": (
        lambda f: edited(f.policy, "[policy]\n", "[policy]\ncolluding = 0.7\n"),
        {"thresholds"},
        "no threshold is secure with 2 of 3 parties colluding",
    ),
    "another authority": (
        lambda f: f.ca.write_bytes(certificates.new_authority("x").certificate),
        {"CA certificate"},
        "pins another one",
    ),
    "no certificate": (lambda f: f.ca.write_text("x"), {"CA certificate"}, "not a certificate"),
    "open identity": (lambda f: f.identity.chmod(0o644), {"permissions"}, "mode 0644"),
    "open directory": (lambda f: f.root.chmod(0o755), {"permissions"}, "mode 0755"),
    "no secret": (lambda f: f.secret.unlink(), {"permissions"}, "worker.secret is missing"),
    "another identity": (other_identity, {"identity"}, "pins another identity"),
    "another node key": (other_node_key, {"node key"}, "another node key"),
    "identity of another kind": (
        lambda f: f.identity.write_bytes(f.node_key.read_bytes()),
        {"identity"},
        "identity.key' ",
    ),
    "not in the roster": (
        left_out_of_the_roster,
        {"roster", "identity", "node key", "records", "thresholds"},  # too few for min_parties
        "'north' is not in the roster",
    ),
    "a roster that was copied in": (
        lambda f: write_roster(f.roster, read_roster(f.roster).successor()),
        {"roster"},
        "is not the roster that was accepted, epoch 4",
    ),
    "no roster accepted yet": (
        lambda f: forget(f.root / "state"),
        {"roster"},
        "no roster was accepted by 'north' yet",
    ),
    "another server in the roster": (
        lambda f: write_roster(f.roster, replace(read_roster(f.roster), server=bytes(32))),
        {"roster", "server identity"},
        "policy.server_identity pins another one",
    ),
    "no roster": (
        lambda f: f.roster.unlink(),
        {"roster", "identity", "node key", "records", "thresholds", "server identity"},
        "cannot be read",
    ),
    "no records": (lambda f: (f.root / "records.csv").unlink(), {"records"}, "records.csv"),
    "a record outside the schema": (
        lambda f: edited(f.root / "records.csv", "age,dose,sick\n", "age,dose,sick\n500,1,no\n"),
        {"records"},
        "age",
    ),
    "a text in a column that the policy lists": (
        text_in_a_listed_column,
        {"records"},
        "column 'income': row 1 does not hold a number",
    ),
    "a listed column that is not there": (
        lambda f: edited(f.policy, "[policy]\n", '[policy]\nsuggest_bounds = ["income"]\n'),
        {"records"},
        "the header lacks column 'income'",
    ),
    "a held-out record outside the schema": (
        held_out_beyond_the_schema,
        {"records"},
        "'sick': 1 value is none of the declared values, first in row 2",
    ),
    "a record more": (another_record, {"records"}, "41 records, and the roster says 40"),
    "no ledger any more": (broken_ledger, {"ledger"}, "ledger"),
    "a label that is not described": (
        lambda f: edited(f.schema, LABEL, ""),
        {"schema", "records"},
        "label 'sick' must be described",
    ),
    "a column of parties": (
        lambda f: edited(f.schema, "label =", 'party = "clinic"\nlabel ='),
        {"schema", "records"},
        "party must not be given",
    ),
    "records that are dropped": (
        lambda f: edited(f.schema, "label =", 'missing = "drop"\nlabel ='),
        {"schema", "records"},
        "missing must not be 'drop'",
    ),
    "an older ledger": (older_ledger, {"ledger"}, "older than state/, or is another"),
    "a ledger that is lost": (lost_ledger, {"ledger"}, "has a record of answers"),
    "no server": (
        lambda f: f.node.write_text("port = 1"),
        {"port"},
        "must have server",
    ),
}


def foreign_certificate(folder: ServerFolder) -> None:
    issued = certificates.new_server(certificates.new_authority("clinics"), ["127.0.0.1"])
    folder.certificate.write_bytes(issued.certificate)
    keys.write_private(folder.key, issued.key, force=True)


def foreign_key(folder: ServerFolder) -> None:
    issued = certificates.new_server(certificates.new_authority("clinics"), ["127.0.0.1"])
    keys.write_private(folder.key, issued.key, force=True)


def stranger_among_nodes(folder: ServerFolder) -> None:
    (folder.nodes / "east.pub").write_text(keys.node_public(keys.new_node_key()))


def unfinished_roster(folder: ServerFolder) -> None:
    roster = read_roster(folder.roster)
    silent = replace(roster.members[0], records=None)
    write_roster(folder.roster, roster.successor(silent))


SERVER_FAULTS: dict[str, tuple[Callable[[ServerFolder], Any], set[str], str]] = {
    "certificate of another authority": (
        foreign_certificate,
        {"server certificate"},
        "not signed by ca.crt",
    ),
    "key of another certificate": (foreign_key, {"server certificate"}, "not the key of"),
    "moved to another address": (
        lambda f: edited(f.federation, '"127.0.0.1"', '"fed.example.org"'),
        {"server certificate"},
        "not for fed.example.org",
    ),
    "open key": (lambda f: f.key.chmod(0o640), {"permissions"}, "mode 0640"),
    "open identity": (lambda f: f.identity.chmod(0o640), {"permissions"}, "mode 0640"),
    "another identity": (other_identity, {"identity"}, "pins another identity for this server"),
    "a stranger's node key": (stranger_among_nodes, {"node keys"}, "differ for east"),
    "a party that has not said its size": (unfinished_roster, {"roster"}, "records of north"),
    "nobody": (
        lambda f: write_roster(f.roster, replace(read_roster(f.roster), members=())),
        {"roster", "node keys", "thresholds"},
        "nobody is in the roster",
    ),
    "broken ledger": (
        lambda f: (f.root / "clinics.ledger").write_bytes(b"x" * 5000),
        {"ledger"},
        "ledger",
    ),
}
