"""Every fault that can be planted in a member's directory is found, with a remedy."""

from __future__ import annotations

import json
import socket
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from fedpriv.simulations.deploy import certificates
from fedpriv.simulations.deploy.flower import patches
from fedpriv.simulations.deploy.folders import read_node
from fedpriv.simulations.deploy.health import reach
from fedpriv.simulations.deploy.health.doctor import examine
from tests.simulations.deploy.planted_faults import (
    PARTY_FAULTS,
    SERVER_FAULTS,
    another_record,
    edited,
)

if TYPE_CHECKING:
    from fedpriv.simulations.deploy.folders import PartyFolder, ServerFolder
    from tests.simulations.conftest import Command
    from tests.simulations.deploy.conftest import Founder


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
