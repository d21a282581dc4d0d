"""Rotation of keys: a statement that new keys take the place of old ones, signed by both.

A row of the roster keeps its place, its number and its name when its keys are replaced. Everybody
can check in the roster itself that the old identity agreed; where it was lost the row says so, and
that its owner is behind the new keys has to be found out by other means.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from fedpriv.privacy.ledger.storage.chain import canonical_json

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

IDENTITY_BYTES = 32
_SIGNATURE_BYTES = 64
_CONTEXT = b"fedpriv rotation 1\x00"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """How a member came by its present keys.

    Attributes:
        epoch: The epoch of the roster that brought them; 0 in a bundle, before there is one.
        replaced: The public identity that was replaced.
        proof: Signature of the new identity: who takes the seat holds its key.
        consent: Signature of the replaced one; empty if its key was lost.
    """

    replaced: bytes
    proof: bytes
    consent: bytes = b""
    epoch: int = 0

    def __post_init__(self) -> None:
        lengths = (len(self.replaced), len(self.proof), len(self.consent) or _SIGNATURE_BYTES)
        if lengths != (IDENTITY_BYTES, _SIGNATURE_BYTES, _SIGNATURE_BYTES):
            raise ValueError(
                f"a rotation must have a replaced identity of {IDENTITY_BYTES} bytes and "
                f"signatures of {_SIGNATURE_BYTES}."
            )
        if type(self.epoch) is not int or self.epoch < 0:
            raise ValueError(f"the epoch of a rotation must be a number, got {self.epoch!r}.")

    @property
    def lost(self) -> bool:
        """Whether the replaced identity did not sign."""
        return not self.consent

    def to_dict(self) -> dict[str, Any]:
        """The rotation as a table of TOML."""
        values = {
            "epoch": self.epoch,
            "replaced": b64encode(self.replaced).decode(),
            "proof": b64encode(self.proof).decode(),
            "consent": b64encode(self.consent).decode(),
        }
        return {key: value for key, value in values.items() if value}

    @classmethod
    def from_dict(cls, values: Any) -> Rotation:
        """Read a rotation; `ValueError` for anything that `to_dict` would not write."""
        try:
            if unknown := values.keys() - {"epoch", "replaced", "proof", "consent"}:
                raise ValueError(f"{sorted(unknown)[0]!r} is not a known key of a rotation.")
            return cls(
                replaced=b64decode(values["replaced"], validate=True),
                proof=b64decode(values["proof"], validate=True),
                consent=b64decode(values.get("consent", ""), validate=True),
                epoch=values.get("epoch", 0),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"a rotation needs replaced and proof as text: {error}.") from None


def rotation(
    name: str,
    *,
    replaced: bytes,
    new: Ed25519PrivateKey,
    node: str = "",
    old: Ed25519PrivateKey | None = None,
) -> Rotation:
    """State that new keys replace an identity.

    Args:
        name: The party; empty for the server.
        replaced: The public identity that was used so far.
        new: The private one from now on.
        node: The new public node key; the server has none.
        old: The private identity that was used so far; None if it was lost.
    """
    text = _statement(
        name, replaced=replaced, identity=new.public_key().public_bytes_raw(), node=node
    )
    return Rotation(
        replaced=replaced, proof=new.sign(text), consent=b"" if old is None else old.sign(text)
    )


def require_signed(stated: Rotation, name: str, *, identity: bytes, node: str = "") -> None:
    """Refuse a rotation that the new identity did not sign, or the replaced one unless lost.

    Raises:
        ValueError: A signature is not the one of these keys.
    """
    text = _statement(name, replaced=stated.replaced, identity=identity, node=node)
    signed = [(identity, stated.proof)]
    if not stated.lost:
        signed.append((stated.replaced, stated.consent))
    try:
        for public, signature in signed:
            Ed25519PublicKey.from_public_bytes(public).verify(signature, text)
    except (ValueError, InvalidSignature):
        raise ValueError(
            f"the new keys of {name or 'the server'} are not signed as they must be, by the new "
            "identity and by the old one: accept them from nobody."
        ) from None


def _statement(name: str, *, replaced: bytes, identity: bytes, node: str) -> bytes:
    values = {"name": name, "replaced": replaced.hex(), "identity": identity.hex(), "node": node}
    return _CONTEXT + canonical_json(values).encode()
