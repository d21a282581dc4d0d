"""Keys and fingerprints in rosters: each in one form, in one row, and compared whole."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, derive_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import SSHCertificateBuilder, SSHCertificateType
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpriv.simulations.deploy.keys import node_public
from fedpriv.simulations.deploy.members.roster import identity_fingerprint, is_fingerprint_of
from fedpriv.simulations.deploy.members.rotation import Rotation, rotation
from tests.simulations.deploy.rosters import Chain


def test_a_fingerprint_shows_the_whole_digest_and_is_compared_in_any_groups() -> None:
    roster = Chain().last
    shown = roster.fingerprint
    assert [len(group) for group in shown.split()] == [4] * 16
    digits = roster.digest.hex()
    for text in (shown, shown.upper(), digits, shown.replace(" ", ":"), f"  {shown}\n"):
        assert is_fingerprint_of(text, roster.digest)
    for text in ("", shown[:-1], shown + "0", "0" * 64, digits[:32], shown.replace(" ", "x")):
        assert not is_fingerprint_of(text, roster.digest)


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_one_wrong_digit_of_a_fingerprint_is_noticed(data: st.DataObject) -> None:
    digest = Chain().last.digest
    at, other = data.draw(st.integers(0, 63)), data.draw(st.sampled_from("0123456789abcdef"))
    digits = digest.hex()
    assert is_fingerprint_of(digits[:at] + other + digits[at + 1 :], digest) == (
        other == digits[at]
    )


def test_the_pin_of_a_server_is_the_digest_of_its_key() -> None:
    assert identity_fingerprint(b"a" * 32) != identity_fingerprint(b"b" * 32)
    assert identity_fingerprint(b"a" * 32).startswith("sha256:")


@pytest.mark.parametrize("comment", [" of north", " ", "\n", "x", "===="])
def test_one_node_key_cannot_stand_in_two_rows_in_two_spellings(comment: str) -> None:
    first = Chain().last.members[0]
    with pytest.raises(ValueError, match="without a comment"):
        replace(first, name="shadow", node=first.node + comment)


def test_a_rotation_needs_whole_keys_and_signatures() -> None:
    with pytest.raises(ValueError, match="signatures of 64"):
        Rotation(replaced=bytes(32), proof=bytes(63))
    with pytest.raises(ValueError, match="not a known key of a rotation"):
        Rotation.from_dict({"replaced": "", "proof": "", "by": "me"})
    chain = Chain()
    key = chain._key()
    stated = rotation("north", replaced=bytes(32), new=key)
    assert stated.lost
    assert Rotation.from_dict(stated.to_dict()) == stated


def test_a_node_key_has_one_form_and_nobody_brings_that_of_another_in_a_certificate() -> None:
    """It was read as the key that it is about: its bearer sat at the other one's node."""
    chain = Chain()
    victim, row = derive_private_key(9, SECP384R1()), chain.member("squatter")
    certificate = (
        SSHCertificateBuilder()
        .public_key(victim.public_key())
        .serial(1)
        .type(SSHCertificateType.USER)
        .key_id(b"")
        .valid_principals([b"north"])
        .valid_before(2**63)
        .valid_after(0)
        .sign(Ed25519PrivateKey.generate())
    )
    line = " ".join(certificate.public_bytes().decode().split()[:2])
    key = node_public(victim)
    assert line.startswith("ecdsa-sha2-nistp384")
    for false in (line, f"{key} comment", f"{key}\n", "ecdsa-sha2-nistp384 AAAA", "", "ssh-rsa A"):
        with pytest.raises(ValueError, match="must be one line of a public EC key"):
            replace(row, node=false)
    assert replace(row, node=key).node == key
