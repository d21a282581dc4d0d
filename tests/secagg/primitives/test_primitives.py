"""Known answers of the standards, through the functions that the protocol calls."""

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from fedpriv.secagg.errors import BadKey, BadSignature
from fedpriv.secagg.primitives.keys import (
    agree,
    derive,
    public_key,
    require_signature,
    require_sound,
    seal,
    unseal,
)
from fedpriv.secagg.primitives.masks import apply_masks
from tests.secagg.cohort import Dice

LOW_ORDER = [  # the points of order 1, 2, 4 and 8 of Curve25519 and its twist, canonical or not
    "0000000000000000000000000000000000000000000000000000000000000000",
    "0100000000000000000000000000000000000000000000000000000000000000",
    "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
    "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
]


def counter_mode(key: bytes, counter: int, blocks: int) -> bytes:
    """AES-CTR keystream built from single-block encryptions."""
    cipher = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # noqa: S305
    return b"".join(cipher.update((counter + i).to_bytes(16, "big")) for i in range(blocks))


def xor(a: bytes, b: bytes) -> bytes:
    return bytes(x ^ y for x, y in zip(a, b, strict=True))


def test_the_oracle_agrees_with_nist_sp_800_38a_f_5_5() -> None:
    key = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
    counter = int("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff", 16)
    plaintext = bytes.fromhex(
        "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51"
        "30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710"
    )
    ciphertext = bytes.fromhex(
        "601ec313775789a5b7a7f504bbf3d228f443e3ca4d62b59aca84e990cacaf5c5"
        "2b0930daa23de94ce87017ba2d84988ddfc9c58db67aada613c2dd08457941a6"
    )
    assert xor(plaintext, counter_mode(key, counter, 4)) == ciphertext


@pytest.mark.parametrize("dtype", ["<u4", "<u8"])
@pytest.mark.parametrize("size", [0, 1, 7, 32_768, 50_001])
def test_a_mask_is_the_counter_mode_keystream(dtype: str, size: int) -> None:
    key = bytes(range(32))
    vector = np.zeros(size, dtype=dtype)
    apply_masks(vector, add=[key])
    blocks = -(-vector.nbytes // 16)
    assert vector.tobytes() == counter_mode(key, 0, blocks)[: vector.nbytes]


@pytest.mark.parametrize("dtype", ["<u4", "<u8"])
def test_masks_are_added_and_subtracted_modulo_the_ring(dtype: str) -> None:
    keys = [Dice("mask", i)(32) for i in range(300)]  # more than are open at a time
    start = np.frombuffer(Dice("vector")(8 * 40_000), dtype=dtype).copy()
    vector = start.copy()
    apply_masks(vector, add=keys[:200], subtract=keys[200:])
    expected = start.copy()
    for key in keys[:200]:
        expected += _mask(key, expected)
    for key in keys[200:]:
        expected -= _mask(key, expected)
    assert (vector == expected).all()
    apply_masks(vector, add=keys[200:], subtract=keys[:200])
    assert (vector == start).all()


def _mask(key: bytes, like: np.ndarray) -> np.ndarray:
    mask = np.zeros_like(like)
    apply_masks(mask, add=[key])
    return mask


def test_a_mask_key_of_the_wrong_size_is_refused() -> None:
    with pytest.raises(ValueError, match="must have 32 bytes, got 16"):
        apply_masks(np.zeros(3, dtype=np.uint32), add=[bytes(16)])


def test_agreement_is_x25519_of_rfc_7748() -> None:
    scalar = bytes.fromhex("a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4")
    point = bytes.fromhex("e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c")
    shared = bytes.fromhex("c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552")
    assert agree(X25519PrivateKey.from_private_bytes(scalar), point) == shared


def test_key_pairs_are_those_of_rfc_7748() -> None:
    alice = bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
    bob = bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
    shared = bytes.fromhex("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742")
    assert public_key(alice) == bytes.fromhex(
        "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
    )
    assert agree(X25519PrivateKey.from_private_bytes(alice), public_key(bob)) == shared
    assert agree(X25519PrivateKey.from_private_bytes(bob), public_key(alice)) == shared


@pytest.mark.parametrize("point", LOW_ORDER)
def test_a_key_of_low_order_is_refused(point: str) -> None:
    with pytest.raises(BadKey):
        require_sound(bytes.fromhex(point))
    with pytest.raises(BadKey):
        agree(X25519PrivateKey.from_private_bytes(Dice("any")(32)), bytes.fromhex(point))


def test_a_second_form_of_the_same_key_is_refused() -> None:
    key = public_key(Dice("twin")(32))
    require_sound(key)
    with pytest.raises(BadKey, match="canonical"):
        require_sound(key[:31] + bytes([key[31] | 0x80]))


def test_a_key_of_the_wrong_size_is_refused() -> None:
    with pytest.raises(BadKey, match="wrong size"):
        require_sound(public_key(Dice("short")(32))[:31])


def test_derivation_is_hkdf_sha256_of_rfc_5869() -> None:
    """Test cases 1 and 3; 32 bytes are the first block of the longer outputs printed there."""
    secret = bytes([0x0B] * 22)
    salt, info = bytes(range(13)), bytes(range(0xF0, 0xFA))
    case_1 = "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf"
    case_3 = "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d"
    assert derive(secret, info, salt).hex() == case_1
    assert derive(secret, b"").hex() == case_3


def test_signatures_are_ed25519_of_rfc_8032() -> None:
    identity = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
    signature = bytes.fromhex(
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555"
        "fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"
    )
    require_signature(identity, signature, b"", signer=0)
    with pytest.raises(BadSignature, match="party 3"):
        require_signature(identity, signature, b"x", signer=3)


def test_a_signature_of_another_identity_is_refused() -> None:
    mine, other = (Ed25519PrivateKey.from_private_bytes(Dice(name)(32)) for name in "ab")
    with pytest.raises(BadSignature):
        require_signature(other.public_key().public_bytes_raw(), mine.sign(b"m"), b"m", signer=1)


def test_a_channel_is_aes_256_gcm() -> None:
    """Test cases 13 and 14 of the specification of GCM."""
    assert seal(bytes(32), b"", b"").hex() == "530f8afbc74536b9a963b4f1c4cb738b"
    sealed = "cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919"
    assert seal(bytes(32), bytes(16), b"").hex() == sealed


def test_a_channel_opens_only_what_was_sealed_for_it() -> None:
    key, sealed = Dice("k")(32), seal(Dice("k")(32), b"shares", b"from 1 to 2")
    assert unseal(key, sealed, b"from 1 to 2") == b"shares"
    assert unseal(key, sealed, b"from 2 to 1") is None
    assert unseal(Dice("other")(32), sealed, b"from 1 to 2") is None
    for i in range(len(sealed)):
        broken = sealed[:i] + bytes([sealed[i] ^ 1]) + sealed[i + 1 :]
        assert unseal(key, broken, b"from 1 to 2") is None
