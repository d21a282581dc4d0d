"""The federation's own certificate authority, and the certificate of its server.

One CA signs one kind of certificate: the server's. A party trusts this CA and no other, so that no
public authority can vouch for an impostor. Parties have no certificates: node keys admit them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from ipaddress import ip_address
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    EllipticCurvePrivateKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedpriv._validate import require_count

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

LOCAL_NAMES = ("localhost", "127.0.0.1")
CA_DAYS = 1825
SERVER_DAYS = 365
_BACKDATED = timedelta(minutes=5)  # clocks differ


@dataclass(frozen=True, slots=True, kw_only=True)
class Issued:
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes


def new_authority(federation: str, *, days: int = CA_DAYS) -> Issued:
    """A CA of its own for a federation, which can sign servers and no further CA."""
    require_count(days=days)
    key = generate_private_key(SECP256R1())
    name = _name(f"fedpriv CA of {federation}")
    builder = (
        _builder(name, name, key, days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return _issued(builder.sign(key, SHA256()), key)


def new_server(authority: Issued, names: Iterable[str], *, days: int = SERVER_DAYS) -> Issued:
    """A server's certificate for DNS names and IP addresses, those of the machine itself too."""
    require_count(days=days)
    ca, ca_key = x509.load_pem_x509_certificate(authority.certificate), _key(authority.key)
    key = generate_private_key(SECP256R1())
    alternatives = list(dict.fromkeys([*names, *LOCAL_NAMES]))
    builder = (
        _builder(_name(alternatives[0]), ca.subject, key, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.SubjectAlternativeName([_alternative(name) for name in alternatives]),
            critical=False,
        )
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()),
            critical=False,
        )
    )
    return _issued(builder.sign(ca_key, SHA256()), key)


def read_certificate(path: Path) -> x509.Certificate:
    """Read a PEM certificate; `ValueError` if it is none."""
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except OSError as error:
        raise ValueError(f"{str(path)!r} cannot be read: {error.strerror}.") from None
    except ValueError:
        raise ValueError(f"{str(path)!r} is not a certificate in PEM.") from None


def fingerprint(certificate: x509.Certificate) -> str:
    """``sha256:`` and the digest of the DER form: what ``policy.server`` of a party pins."""
    return f"sha256:{sha256(certificate.public_bytes(Encoding.DER)).hexdigest()}"


def names_of(certificate: x509.Certificate) -> tuple[str, ...]:
    """The names that a certificate is good for."""
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return ()
    return tuple(str(entry.value) for entry in extension.value)


def days_left(certificate: x509.Certificate, *, now: datetime | None = None) -> float:
    """Days until a certificate expires; below zero if it has, or is not valid yet."""
    now = now or datetime.now(tz=UTC)
    if now < certificate.not_valid_before_utc:
        return (now - certificate.not_valid_before_utc) / timedelta(days=1)
    return (certificate.not_valid_after_utc - now) / timedelta(days=1)


def signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Whether the authority issued the certificate."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def belongs(certificate: x509.Certificate, key: bytes) -> bool:
    """Whether a private key in PEM is that of the certificate."""
    return _key(key).public_key() == certificate.public_key()


def _builder(
    subject: x509.Name, issuer: x509.Name, key: EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(tz=UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + timedelta(days=days))
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _issued(certificate: x509.Certificate, key: EllipticCurvePrivateKey) -> Issued:
    return Issued(
        certificate=certificate.public_bytes(Encoding.PEM),
        key=key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )


def _key(pem: bytes) -> EllipticCurvePrivateKey:
    try:
        key = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError):
        raise ValueError("this is not a private key in PEM without password.") from None
    if not isinstance(key, EllipticCurvePrivateKey):
        raise ValueError("the key of a certificate must be an EC key.")
    return key
