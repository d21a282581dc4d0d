"""Every fault that can be planted in a member's directory is found, with a remedy."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedpriv.federation.deployed.journal import Journal, LedgerMark
from fedpriv.federation.deployed.policy import read_party
from fedpriv.privacy.ledger import Ledger
from fedpriv.simulations.deploy import certificates, keys
from fedpriv.simulations.deploy.flower import patches
from fedpriv.simulations.deploy.folders import read_node
from fedpriv.simulations.deploy.health import reach
from fedpriv.simulations.deploy.health.doctor import examine
from fedpriv.simulations.deploy.members.epochs import forget
from fedpriv.simulations.deploy.members.roster import read_roster, write_roster
from tests.simulations.deploy.conftest import LABEL

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedpriv.simulations.deploy.folders import PartyFolder, ServerFolder
    from tests.simulations.conftest import Command
    from tests.simulations.deploy.conftest import Founder


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
    "a ledger that is lost": (lost_ledger, {"ledger"}, "knows of answers"),
    "no server": (
        lambda f: f.node.write_text("port = 1"),
        {"port"},
        "must have server",
    ),
}


def failures(folder: PartyFolder | ServerFolder, **options: Any) -> dict[str, Any]:
    return {check.name: check for check in examine(folder, **options) if not check.passed}


def test_a_new_party_and_a_new_server_are_well(deployment: Founder) -> None:
    made = deployment()
    assert failures(made.server) == {}
    for folder in made.parties:
        assert failures(folder, network=False) == {}


def test_doctor_says_how_many_may_collude_and_how_many_be_missing(deployment: Founder) -> None:
    made = deployment()
    members: tuple[ServerFolder | PartyFolder, ...] = (made.server, *made.parties)
    for folder in members:
        (found,) = (c.found for c in examine(folder, network=False) if c.name == "thresholds")
        assert found == (
            "3 parties, active. Tolerates 1 party colluding with the server and none missing. "
            "With 1 missing the run stops and nothing is revealed. No sum of fewer than 3."
        )


def test_status_says_so_too_and_nothing_while_there_is_no_roster(
    fedpriv: Command, deployment: Founder
) -> None:
    made = deployment()
    for folder in (made.server.root, made.parties[0].root):
        done = fedpriv("deploy", "status", folder)
        assert done.code == 1  # no process was started
        assert "masks    3 parties, active. Tolerates 1 party colluding" in done.out
    made.parties[0].roster.unlink()
    done = fedpriv("deploy", "status", made.parties[0].root)
    assert (done.code, "Tolerates" in done.out) == (1, False)


@pytest.mark.parametrize("fault", PARTY_FAULTS)
def test_doctor_finds_what_is_wrong_with_a_party_and_nothing_else(
    fault: str, deployment: Founder
) -> None:
    folder = deployment().parties[0]
    plant, names, message = PARTY_FAULTS[fault]
    plant(folder)
    failed = failures(folder, network=False)
    assert set(failed) == names
    assert any(message in check.found for check in failed.values()), failed
    assert all(check.remedy for check in failed.values())


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


@pytest.mark.parametrize("fault", SERVER_FAULTS)
def test_doctor_finds_what_is_wrong_with_a_server_and_nothing_else(
    fault: str, deployment: Founder
) -> None:
    folder = deployment().server
    plant, names, message = SERVER_FAULTS[fault]
    plant(folder)
    failed = failures(folder)
    assert set(failed) == names
    assert any(message in check.found for check in failed.values()), failed
    assert all(check.remedy for check in failed.values())


def test_certificates_that_have_expired_or_are_not_valid_yet_are_found(
    deployment: Founder,
) -> None:
    made = deployment()
    later = datetime.now(tz=UTC) + timedelta(days=366)
    assert set(failures(made.server, now=later)) == {"server certificate"}
    assert "deploy renew" in failures(made.server, now=later)["server certificate"].remedy
    end = datetime.now(tz=UTC) + timedelta(days=certificates.CA_DAYS + 1)
    assert set(failures(made.server, now=end)) == {"CA certificate", "server certificate"}
    assert set(failures(made.parties[0], network=False, now=end)) == {"CA certificate"}
    before = datetime.now(tz=UTC) - timedelta(days=1)
    assert "clock" in failures(made.server, now=before)["CA certificate"].remedy
    soon = datetime.now(tz=UTC) + timedelta(days=340)
    checks = {check.name: check.found for check in examine(made.server, now=soon)}
    assert "renew it soon" in checks["server certificate"]


def test_a_port_that_another_process_has_is_found(deployment: Founder) -> None:
    folder = deployment().parties[0]
    with socket.create_server(("127.0.0.1", read_node(folder).port)):
        assert set(failures(folder, network=False)) == {"port"}


def test_a_server_that_is_down_is_found_where_the_network_is_looked_at(
    deployment: Founder,
) -> None:
    failed = failures(deployment().parties[0])
    assert set(failed) == {"server", "clock"}
    assert "start the server" in failed["server"].remedy


@pytest.mark.parametrize(
    ("skew", "passed"), [(0.3, True), (4.0, True), (6.0, False), (-100.0, True), (-400.0, False)]
)
def test_a_clock_that_flower_would_refuse_is_found(
    skew: float, passed: bool, deployment: Founder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reach, "clock_skew", lambda _folder: skew)
    checks = {check.name: check for check in examine(deployment().parties[0])}
    assert checks["clock"].passed is passed


def test_another_version_of_flower_is_found(
    deployment: Founder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patches, "installed", lambda: "1.42.0")
    assert set(failures(deployment().server)) == {"versions"}


def test_the_command_says_what_to_do_and_its_exit_status_tells(
    fedpriv: Command, deployment: Founder
) -> None:
    folder = deployment().parties[0]
    assert fedpriv("doctor", folder.policy, "--offline").code == 0
    folder.identity.chmod(0o644)
    done = fedpriv("doctor", folder.root, "--offline")
    assert done.code == 1
    assert "FAIL  permissions" in done.out
    assert f"remedy: chmod 600 {folder.identity}" in done.out
    assert "PRIVATE" not in done.out
    done = fedpriv("doctor", folder.root, "--offline", "--json")
    assert done.code == 1
    checks = {check["name"]: check for check in json.loads(done.out)["checks"]}
    assert not checks["permissions"]["passed"]
    assert checks["identity"]["passed"]
    assert fedpriv("doctor", folder.root / "state").code == 2


def test_doctor_says_which_features_refuse_a_file_and_when_none_does(deployment: Founder) -> None:
    folder = deployment().parties[0]

    def schema_note() -> str:
        (check,) = (c for c in examine(folder, network=False) if c.name == "schema")
        assert check.passed
        return check.found

    assert "one value of age, dose out of range or missing keeps this party" in schema_note()
    text = folder.schema.read_text().replace('kind = "number"', 'kind = "number"\nfill = 1')
    folder.schema.write_text(f'out_of_range = "clamp"\n{text}')
    assert schema_note() == "no value of a feature keeps this party from answering"


def test_under_add_remove_the_roster_bounds_the_number_of_records(deployment: Founder) -> None:
    folder = deployment().parties[0]
    edited(folder.policy, 'adjacency = "replace-one"', 'adjacency = "add-remove"')
    path = folder.root / "records.csv"
    path.write_text(path.read_text().rsplit("\n", 2)[0] + "\n")  # one less
    assert failures(folder, network=False) == {}
    another_record(folder)
    another_record(folder)
    assert set(failures(folder, network=False)) == {"records"}
