"""Public-key operations that simulated parties share: the same results, each computed once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedpriv.secagg.errors import BadKey, BadSignature
from fedpriv.secagg.primitives import public_keys
from fedpriv.secagg.primitives.keys import agree
from fedpriv.secagg.primitives.public_keys import PublicKeys, SharedPublicKeys
from tests.secagg.cohort import Dice

if TYPE_CHECKING:
    from collections.abc import Callable


def counted(monkeypatch: pytest.MonkeyPatch, name: str) -> list[object]:
    """Have calls of a primitive counted."""
    calls: list[object] = []
    primitive: Callable[..., Any] = getattr(public_keys, name)

    def count(*arguments: object, **more: object) -> Any:
        calls.append(arguments)
        return primitive(*arguments, **more)

    monkeypatch.setattr(public_keys, name, count)
    return calls


def private_keys(count: int) -> list[X25519PrivateKey]:
    return [X25519PrivateKey.from_private_bytes(Dice("key", i)(32)) for i in range(count)]


def test_every_pair_agrees_on_its_own_secret_once(monkeypatch: pytest.MonkeyPatch) -> None:
    keys, shared = private_keys(6), SharedPublicKeys()
    calls = counted(monkeypatch, "agree")
    for one in keys:
        for other in keys:
            if one is not other:
                public = other.public_key().public_bytes_raw()
                assert shared.agree(one, public) == agree(one, public)
    assert len(calls) == 15


def test_a_signature_is_verified_once_and_a_bad_one_refused_to_everybody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shared, signer = SharedPublicKeys(), Ed25519PrivateKey.from_private_bytes(Dice("s")(32))
    identity, signature = signer.public_key().public_bytes_raw(), signer.sign(b"content")
    calls = counted(monkeypatch, "require_signature")
    for _ in range(3):
        shared.require_signature(identity, signature, b"content", signer=0)
    assert len(calls) == 1
    for wrong in ((identity, signature, b"other"), (identity, bytes(64), b"content")):
        for _ in range(2):
            with pytest.raises(BadSignature):
                shared.require_signature(*wrong, signer=0)
    assert len(calls) == 5


@pytest.mark.parametrize("operations", [PublicKeys(), SharedPublicKeys()])
def test_a_key_of_low_order_is_refused_to_everybody(operations: PublicKeys) -> None:
    for private in private_keys(2):
        for _ in range(2):
            with pytest.raises(BadKey):
                operations.agree(private, bytes(32))


def test_results_are_forgotten_when_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(public_keys, "_MOST_RESULTS", 2)
    keys, shared = private_keys(4), SharedPublicKeys()
    for other in keys[1:]:
        shared.agree(keys[0], other.public_key().public_bytes_raw())
    assert len(shared._secrets) == 2
    public = keys[1].public_key().public_bytes_raw()
    assert shared.agree(keys[0], public) == agree(keys[0], public)
