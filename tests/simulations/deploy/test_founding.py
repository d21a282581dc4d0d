"""What `fedpriv deploy init` leaves on the disk: secrets, keys, certificates and policies."""

from __future__ import annotations

import os
import socket
import ssl
import threading
from typing import TYPE_CHECKING, Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.serialization import load_ssh_public_key

from fedpriv.federation.deployed.policy import read_party
from fedpriv.simulations.deploy.certificates import (
    CA_DAYS,
    days_left,
    fingerprint,
    names_of,
    new_authority,
    new_server,
    read_certificate,
)
from fedpriv.simulations.deploy.federation import parse_federation
from fedpriv.simulations.deploy.founding import found, renew
from fedpriv.simulations.deploy.keys import (
    identity_public,
    node_public,
    read_identity,
    read_node_key,
    too_open,
    write_private,
)
from fedpriv.simulations.deploy.members.roster import identity_fingerprint, read_roster
from fedpriv.simulations.deploy.templates import party_values
from tests.simulations.deploy.conftest import NAMES, Founder, federation_values
from tests.simulations.deploy.disks import mode, secrets_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.simulations.conftest import Command


def everything(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_every_secret_is_readable_by_its_owner_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        found(parse_federation(federation_values()), tmp_path / "d")
    finally:
        os.umask(before)
    secrets = secrets_of(tmp_path)
    assert len(secrets) == 1 + 3 + 3 * 3
    for path in secrets:
        assert mode(path) == 0o600, path
        assert mode(path.parent) == 0o700, path
        assert too_open(path) is None
    secrets[0].chmod(0o640)
    assert "chmod 600" in str(too_open(secrets[0]))


def secret_lines(path: Path) -> list[str]:
    """The lines of a private key that tell something of it.

    Where there are several, the last is the end of the public half, which the certificate may
    happen to break into the same lines.
    """
    lines = [line for line in path.read_text().splitlines() if not line.startswith("-----")]
    return [line for line in lines[:-1] or lines if len(line) > 20]


def test_no_secret_is_in_a_public_file_or_printed(
    fedpriv: Command, federation_file: Path, tmp_path: Path
) -> None:
    done = fedpriv("deploy", "init", federation_file, "--output", tmp_path / "d")
    assert done.code == 0, done.err
    secrets = secrets_of(tmp_path / "d")
    lines = {line for path in secrets if path.suffix == ".key" for line in secret_lines(path)}
    assert lines
    public = [path for path in everything(tmp_path / "d") if path not in secrets]
    for text in (done.out, done.err, *(path.read_text() for path in public)):
        assert "PRIVATE KEY" not in text
        assert not any(line in text for line in lines)


def test_keys_have_the_formats_that_flower_and_the_protocol_read(deployment: Founder) -> None:
    made = deployment()
    roster = read_roster(made.server.roster)
    assert roster.names == NAMES
    for folder, member in zip(made.parties, roster.members, strict=True):
        assert folder.node_key.read_text().startswith("-----BEGIN OPENSSH PRIVATE KEY-----")
        assert folder.identity.read_text().startswith("-----BEGIN PRIVATE KEY-----")
        assert node_public(read_node_key(folder.node_key)) == member.node
        assert isinstance(load_ssh_public_key(member.node.encode()), EllipticCurvePublicKey)
        assert identity_public(read_identity(folder.identity)) == member.identity
        assert (made.server.nodes / f"{member.name}.pub").read_text().strip() == member.node
        assert read_roster(folder.roster) == roster


def test_every_key_is_a_new_one(deployment: Founder) -> None:
    secrets = [path.read_bytes() for path in secrets_of(deployment().root)]
    assert len(set(secrets)) == len(secrets)


def test_a_key_of_another_kind_is_refused(tmp_path: Path) -> None:
    founded = found(parse_federation(federation_values()), tmp_path / "d")
    party = founded.parties[0]
    with pytest.raises(ValueError, match="not a private key in OpenSSH format"):
        read_node_key(party.identity)
    with pytest.raises(ValueError, match="must be an Ed25519 key"):
        read_identity(founded.server.key)


def test_the_proposed_policy_is_one_that_a_party_can_read_and_pins_authority_and_server(
    deployment: Founder,
) -> None:
    made = deployment()
    for folder, name in zip(made.parties, NAMES, strict=True):
        file = read_party(folder.policy)
        assert file.name == name
        assert file.budget.epsilon == 20.0
        assert file.policy.server == fingerprint(read_certificate(folder.ca))
        signing = identity_public(read_identity(made.server.identity))
        assert file.policy.server_identity == identity_fingerprint(signing)
        assert read_roster(folder.roster).server == signing
        assert file.policy.secure_aggregation == "active"


@pytest.mark.parametrize(
    ("count", "policy", "least"),
    [(2, {}, 2), (3, {}, 3), (3, {"colluding": 0.0}, 2), (4, {}, 3), (5, {}, 4)],
)
def test_the_proposed_minimum_is_that_of_a_run_by_the_same_policy(
    count: int, policy: dict[str, Any], least: int
) -> None:
    """A party that insisted on more would refuse every run."""
    names = tuple(f"clinic-{n}" for n in range(count))
    federation = parse_federation(federation_values(names, policy=policy))
    proposed = party_values(federation, names[0], server="x", identity="y")
    assert proposed["policy"]["min_parties"] == least


@pytest.mark.parametrize(
    ("colluding", "message"), [(0.7, "2 of 3 parties colluding"), ("few", "must lie in")]
)
def test_a_federation_that_could_open_no_sum_is_not_founded(
    tmp_path: Path, colluding: object, message: str
) -> None:
    values = federation_values(policy={"colluding": colluding})
    with pytest.raises(ValueError, match=message):
        found(parse_federation(values), tmp_path / "deployment")
    assert not (tmp_path / "deployment" / "ca").exists()


def test_a_policy_that_parties_could_not_read_is_refused_before_anything_is_made(
    tmp_path: Path,
) -> None:
    with pytest.raises(ValueError, match=r"policy\.min_nois is not a known key"):
        found(
            parse_federation(federation_values(policy={"min_nois": 1.0})), tmp_path / "deployment"
        )
    assert not (tmp_path / "deployment" / "ca").exists()


def test_init_refuses_to_overwrite_and_leaves_everything_as_it_was(
    fedpriv: Command, federation_file: Path, tmp_path: Path
) -> None:
    assert fedpriv("deploy", "init", federation_file, "--output", tmp_path / "d").code == 0
    before = everything(tmp_path / "d")
    again = fedpriv("deploy", "init", federation_file, "--output", tmp_path / "d")
    assert again.code == 2
    assert "--force" in again.message
    assert everything(tmp_path / "d") == before
    forced = fedpriv("deploy", "init", federation_file, "--output", tmp_path / "d", "--force")
    assert forced.code == 0, forced.err
    after = everything(tmp_path / "d")
    assert after.keys() == before.keys()
    assert all(after[path] != before[path] for path in secrets_of(tmp_path / "d"))


def test_a_secret_is_never_written_over_another_without_force(tmp_path: Path) -> None:
    write_private(tmp_path / "a.key", b"first")
    with pytest.raises(ValueError, match="--force"):
        write_private(tmp_path / "a.key", b"second")
    assert (tmp_path / "a.key").read_bytes() == b"first"


def handshake(ca: Path, certificate: Path, key: Path, name: str) -> x509.Certificate:
    """A real TLS handshake between two sockets; the certificate that the client accepted."""
    ours, theirs = socket.socketpair()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    def serve() -> None:
        try:
            context.wrap_socket(theirs, server_side=True).close()
        except (ssl.SSLError, OSError):
            theirs.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        client = ssl.create_default_context(cafile=str(ca))
        with client.wrap_socket(ours, server_hostname=name) as line:
            return x509.load_der_x509_certificate(line.getpeercert(binary_form=True) or b"")
    finally:
        ours.close()
        thread.join(timeout=10)


@pytest.mark.parametrize("name", ["fed.example.org", "10.1.2.3", "localhost", "127.0.0.1"])
def test_the_server_proves_itself_under_all_its_names_in_a_real_handshake(
    tmp_path: Path, name: str
) -> None:
    server = {"address": "fed.example.org", "port": 9443, "names": ["10.1.2.3"]}
    made = found(parse_federation(federation_values(server=server)), tmp_path / "d")
    folder = made.server
    served = handshake(made.parties[0].ca, folder.certificate, folder.key, name)
    assert name in names_of(served)
    assert 364 < days_left(served) <= 365
    assert CA_DAYS - 1 < days_left(read_certificate(folder.ca)) <= CA_DAYS


def test_a_handshake_fails_for_another_name_and_for_another_authority(tmp_path: Path) -> None:
    folder = found(parse_federation(federation_values()), tmp_path / "d").server
    foreign = tmp_path / "foreign.crt"
    foreign.write_bytes(new_authority("clinics").certificate)
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        handshake(folder.ca, folder.certificate, folder.key, "other.example.org")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(foreign, folder.certificate, folder.key, "127.0.0.1")


def test_the_authority_signs_servers_and_cannot_make_authorities() -> None:
    authority = new_authority("clinics")
    ca = x509.load_pem_x509_certificate(authority.certificate)
    server = x509.load_pem_x509_certificate(new_server(authority, ["a.example"]).certificate)
    assert ca.extensions.get_extension_for_class(x509.BasicConstraints).value.path_length == 0
    assert not server.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    server.verify_directly_issued_by(ca)


def test_renewing_gives_a_new_key_under_the_same_authority(tmp_path: Path) -> None:
    made = found(parse_federation(federation_values()), tmp_path / "d")
    old_key, old = made.server.key.read_bytes(), read_certificate(made.server.certificate)
    new = renew(tmp_path / "d")
    assert made.server.key.read_bytes() != old_key
    assert new.serial_number != old.serial_number
    assert mode(made.server.key) == 0o600
    handshake(made.parties[0].ca, made.server.certificate, made.server.key, "127.0.0.1")
    (tmp_path / "d" / "ca" / "ca.key").unlink()
    with pytest.raises(ValueError, match="bring the CA's key"):
        renew(tmp_path / "d")
