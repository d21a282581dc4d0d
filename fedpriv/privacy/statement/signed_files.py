r"""Signed files: a folder of which every file is signed for, by one Ed25519 key.

One signature over a context of its own, ``fedpriv signed files\0``, and the canonical JSON of a
table with what the folder is about, the SHA-256 of every file in it, and the public key of who
signed. There is one text of it, and any other bytes are refused, as for a signed statement.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from fedpriv.privacy.ledger.storage.chain import canonical_json
from fedpriv.privacy.statement.signed import NotCanonical, from_hex, is_signed, read_canonical

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

FORMAT = "fedpriv signed files 1"
_CONTEXT = b"fedpriv signed files\0"
_SIGNATURE_BYTES, _HASH_BYTES, _KEY_BYTES = 64, 32, 32


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedFiles:
    """The hashes of files, with one signature over all of them.

    Attributes:
        about: What the files are about, as JSON-ready values.
        files: SHA-256 of every file by its name, in hexadecimal digits.
        signer: Public key of who signed, in hexadecimal digits.
        signature: Over all that.
    """

    about: Mapping[str, Any]
    files: Mapping[str, str]
    signer: str
    signature: bytes

    def __post_init__(self) -> None:
        from_hex(self.signer, _KEY_BYTES)
        for digest in self.files.values():
            from_hex(digest, _HASH_BYTES)
        if len(self.signature) != _SIGNATURE_BYTES:
            raise NotCanonical(f"a signature must have {_SIGNATURE_BYTES} bytes.")

    @property
    def signed(self) -> bool:
        """Whether the signature is the signer's, over just this."""
        data = _data(self.about, self.files, self.signer)
        return is_signed(bytes.fromhex(self.signer), self.signature, data)

    def to_text(self) -> str:
        """The one text of this value; `read_signed_files` inverts it."""
        values = {
            "format": FORMAT,
            "about": self.about,
            "files": self.files,
            "signer": self.signer,
            "signature": self.signature.hex(),
        }
        return canonical_json(values) + "\n"


def sign_files(
    files: Mapping[str, bytes], key: Ed25519PrivateKey, *, about: Mapping[str, Any]
) -> SignedFiles:
    """Sign for the content of files."""
    hashes = {name: hash_of(content) for name, content in files.items()}
    signer = key.public_key().public_bytes_raw().hex()
    return SignedFiles(
        about=about,
        files=hashes,
        signer=signer,
        signature=key.sign(_data(about, hashes, signer)),
    )


def read_signed_files(data: bytes) -> SignedFiles:
    """Read what `SignedFiles.to_text` wrote; whether its signature is good is another question.

    Raises:
        NotCanonical: The bytes are not exactly such a text.
    """
    values = read_canonical(data.removesuffix(b"\n"))
    try:
        if values["format"] != FORMAT:
            raise NotCanonical(f"it is not of the format {FORMAT!r}.")
        if not isinstance(values["about"], dict) or not isinstance(values["files"], dict):
            raise NotCanonical("what is signed must be tables.")
        found = SignedFiles(
            about=values["about"],
            files=values["files"],
            signer=values["signer"],
            signature=from_hex(values["signature"], _SIGNATURE_BYTES),
        )
    except (KeyError, TypeError):
        raise NotCanonical("it does not say what was signed: a part is missing.") from None
    if found.to_text().encode() != data:
        raise NotCanonical("it is not written as signed files are: something was changed.")
    return found


def hash_of(content: bytes) -> str:
    """SHA-256 in hexadecimal digits."""
    return sha256(content).hexdigest()


def _data(about: Mapping[str, Any], files: Mapping[str, str], signer: str) -> bytes:
    return _CONTEXT + canonical_json({"about": about, "files": files, "signer": signer}).encode()
