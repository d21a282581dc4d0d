"""Primitives: X25519 agreement, HKDF-SHA256 derivation, Ed25519 signatures, AES-256-GCM channels.

`fedpriv.secagg.primitives.binding` defines the byte strings that they are applied to.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedpriv.secagg.errors import BadKey, BadSignature

KEY_BYTES = 32
SIGNATURE_BYTES = 64
SALT_BYTES = 16
TAG_BYTES = 16

_FIELD = 2**255 - 19
_NONCE = bytes(12)  # constant: a channel key, fresh with its salt, encrypts one message
_ANY_SCALAR = X25519PrivateKey.from_private_bytes(bytes(32))


def derive(secret: bytes, info: bytes, salt: bytes | None = None) -> bytes:
    """A 32-byte key from a secret: HKDF-SHA256 (RFC 5869)."""
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=salt, info=info).derive(secret)


def public_key(private: bytes) -> bytes:
    """The X25519 public key of 32 private bytes."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def agree(private: X25519PrivateKey, public: bytes) -> bytes:
    """The X25519 shared secret (RFC 7748).

    Raises:
        BadKey: If ``public`` has low order, so that the secret is zero for every private key, or is
            not the canonical encoding of its point: keys are compared by their bytes.
    """
    if int.from_bytes(public, "little") >= _FIELD:
        raise BadKey("A public key is not in its canonical form.")
    try:
        return private.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise BadKey("A public key has low order or the wrong size.") from None


def require_sound(public: bytes) -> None:
    """Refuse a public key of low order, which no honest party has.

    Scalars are multiples of 8 but not of the large prime order, so one of them maps a point to zero
    if and only if all of them do.
    """
    agree(_ANY_SCALAR, public)


def require_signature(identity: bytes, signature: bytes, content: bytes, *, signer: int) -> None:
    """Refuse a signature that does not verify under ``identity``, a raw Ed25519 public key."""
    if not is_signed(content, signature, by=identity):
        raise BadSignature(f"The signature of party {signer} does not verify.")


def is_signed(content: bytes, signature: bytes, *, by: bytes) -> bool:
    """Whether a signature of ``content`` verifies under a raw Ed25519 public key."""
    try:
        Ed25519PublicKey.from_public_bytes(by).verify(signature, content)
    except InvalidSignature:
        return False
    return True


def seal(key: bytes, plaintext: bytes, info: bytes) -> bytes:
    """AES-256-GCM under a single-use key, with ``info`` as associated data."""
    return AESGCM(key).encrypt(_NONCE, plaintext, info)


def unseal(key: bytes, ciphertext: bytes, info: bytes) -> bytes | None:
    """The plaintext, or None if the ciphertext was not sealed for this receiver and round."""
    try:
        return AESGCM(key).decrypt(_NONCE, ciphertext, info)
    except InvalidTag:
        return None
