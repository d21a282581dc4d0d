import copy
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import expon, norm

from fedpriv.privacy.randomness import RandomStream
from tests.statistical import assert_counts_follow, assert_distribution_follows

FloatArray = NDArray[np.float64]


@pytest.fixture
def stream() -> RandomStream:
    return RandomStream.seeded(20240229, "test_randomness")


def test_the_stream_is_aes_256_in_counter_mode() -> None:
    key = bytes(range(32))
    block_cipher = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # noqa: S305
    blocks = b"".join(block_cipher.update(i.to_bytes(16, "big")) for i in range(20_000))
    stream = RandomStream(key, secure=False)
    # Odd sizes, some longer than one internal buffer: the pieces must join without a gap.
    pieces = [stream.bytes(n) for n in (0, 1, 15, 17, 150_001, 131_072, 3)]
    joined = b"".join(pieces)
    assert joined == blocks[: len(joined)]


def test_words_are_the_bytes_of_the_stream() -> None:
    words = RandomStream.seeded(1).words(5)
    assert words.tobytes() == RandomStream.seeded(1).bytes(40)


def test_a_seed_repeats_and_the_operating_system_does_not() -> None:
    assert RandomStream.seeded(3, "a").bytes(32) == RandomStream.seeded(3, "a").bytes(32)
    assert RandomStream.from_os().bytes(32) != RandomStream.from_os().bytes(32)
    assert RandomStream.from_os().secure
    assert not RandomStream.seeded(3).secure


_labels = st.lists(st.one_of(st.integers(), st.text()), max_size=3)


@given(st.integers(), _labels, st.integers(), _labels)
def test_streams_agree_exactly_when_seed_and_labels_do(
    seed: int, labels: list[int | str], other_seed: int, other_labels: list[int | str]
) -> None:
    same = (seed, labels) == (other_seed, other_labels)
    first = RandomStream.seeded(seed, *labels).bytes(16)
    assert (first == RandomStream.seeded(other_seed, *other_labels).bytes(16)) is same


@pytest.mark.parametrize(
    ("labels", "others"),
    [(("ab",), ("a", "b")), ((1,), ("1",)), ((256,), (1, 0)), ((-1,), (255,)), ((), ("",))],
)
def test_labels_are_encoded_without_ambiguity(
    labels: tuple[int | str, ...], others: tuple[int | str, ...]
) -> None:
    first = RandomStream.seeded(0, *labels).bytes(16)
    assert first != RandomStream.seeded(0, *others).bytes(16)


@pytest.mark.parametrize("label", [1.5, None, True, b"x"])
def test_a_label_of_another_type_is_refused(label: object) -> None:
    with pytest.raises(TypeError, match="label"):
        RandomStream.seeded(0, label)  # type: ignore[arg-type]


def test_uniform_never_reaches_zero_or_one() -> None:
    class Extremes(RandomStream):
        def words(self, count: int) -> NDArray[np.uint64]:
            return np.array([0, 2**64 - 1], dtype=np.uint64)

    low, high = Extremes(bytes(32), secure=False).uniform(2)
    assert (low, high) == (2.0**-53, 1 - 2.0**-53)


@pytest.mark.parametrize(
    ("draw", "cdf"),
    [
        (RandomStream.uniform, lambda x: x),
        (RandomStream.normal, norm.cdf),
        (RandomStream.exponential, expon.cdf),
    ],
    ids=["uniform", "normal", "exponential"],
)
def test_continuous_draws_follow_their_law_and_half_the_scale_is_caught(
    draw: Callable[[RandomStream, int], FloatArray],
    cdf: Callable[[FloatArray], FloatArray],
    stream: RandomStream,
) -> None:
    """False failure 1e-9 each."""
    draws = draw(stream, 200_000)
    assert_distribution_follows(draws, cdf)
    with pytest.raises(AssertionError, match="outside the band"):
        assert_distribution_follows(draws / 2, cdf)


@pytest.mark.parametrize("below", [1, 2, 3, 10, 2**32, 2**63])
def test_integers_are_uniform_below_their_bound(below: int, stream: RandomStream) -> None:
    """False failure 1e-9."""
    draws = stream.integers(below, 20_000)
    cells = min(below, 10)
    counts = np.bincount([d * cells // below for d in draws.tolist()], minlength=cells)
    edges = [-(-cell * below // cells) for cell in range(cells + 1)]
    assert_counts_follow(counts, np.diff(np.array(edges, dtype=float)) / below)


def test_integers_have_no_modulo_bias(stream: RandomStream) -> None:
    """Three quarters of 2^63: plain `word % below` would hit the lower third half as often again.

    False failure 1e-9; the biased twin is caught.
    """
    below = 3 * 2**61
    fair = stream.integers(below, 20_000) // 2**61
    assert_counts_follow(np.bincount(fair, minlength=3), np.full(3, 1 / 3))
    biased = (stream.words(20_000) % np.uint64(below)) // np.uint64(2**61)
    with pytest.raises(AssertionError, match="outside"):
        assert_counts_follow(np.bincount(biased.astype(int), minlength=3), np.full(3, 1 / 3))


def test_every_permutation_is_equally_likely(stream: RandomStream) -> None:
    """False failure 1e-9."""
    index = {order: i for i, order in enumerate(permutations(range(4)))}
    drawn = [index[tuple(stream.permutation(4).tolist())] for _ in range(20_000)]
    assert_counts_follow(np.bincount(drawn, minlength=24), np.full(24, 1 / 24))


def test_a_permutation_redraws_tied_keys() -> None:
    keys = [np.array([5, 5, 1], dtype=np.uint64), np.array([5, 7, 1], dtype=np.uint64)]

    class Tied(RandomStream):
        def words(self, count: int) -> NDArray[np.uint64]:
            return keys.pop(0)

    assert Tied(bytes(32), secure=False).permutation(3).tolist() == [2, 0, 1]
    assert not keys


def test_nothing_drawn_is_nothing_spent(stream: RandomStream) -> None:
    twin = RandomStream.seeded(20240229, "test_randomness")
    assert stream.bytes(0) == b""
    for empty in (stream.words(0), stream.uniform(0), stream.normal(0), stream.integers(5, 0)):
        assert empty.shape == (0,)
    assert stream.bytes(16) == twin.bytes(16)


@pytest.mark.parametrize("count", [-1, 1.0, True, None])
def test_a_count_that_is_none_is_refused(count: int, stream: RandomStream) -> None:
    with pytest.raises(ValueError, match="count must be an integer of at least 0"):
        stream.words(count)


@pytest.mark.parametrize("below", [0, -1, 2**63 + 1, 2.0])
def test_a_bound_that_no_integer_fits_is_refused(below: int, stream: RandomStream) -> None:
    with pytest.raises(ValueError, match="below must be"):
        stream.integers(below, 1)


def test_a_key_of_another_length_is_refused_without_being_shown() -> None:
    with pytest.raises(ValueError, match="32 bytes, got 16") as caught:
        RandomStream(b"sixteen byte key", secure=True)
    assert "sixteen" not in str(caught.value)


def test_a_stream_is_never_copied(stream: RandomStream) -> None:
    for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied"):
            duplicate(stream)


def test_a_stream_does_not_show_its_key() -> None:
    stream = RandomStream(b"k" * 32, secure=True)
    assert repr(stream) == str(stream) == "RandomStream(secure=True)"
    assert not hasattr(stream, "__dict__")
    assert b"k" * 32 not in [getattr(stream, name) for name in RandomStream.__slots__]


_FORK = """
import os
from fedpriv.privacy.randomness import RandomStream

stream = {opened}
stream.bytes(16)
reading, writing = os.pipe()
if os.fork() == 0:
    try:
        answer = stream.bytes(16).hex()
    except RuntimeError as error:
        answer = "refused" if "fork" in str(error) else "wrong error"
    os.write(writing, answer.encode())
    os._exit(0)
os.wait()
print(os.read(reading, 100).decode(), stream.bytes(16).hex())
"""


def _child_and_parent(opened: str) -> list[str]:
    script = _FORK.format(opened=opened)
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60
    )
    return done.stdout.split()


def test_a_fork_re_keys_a_secure_stream() -> None:
    child, parent = _child_and_parent("RandomStream.from_os()")
    assert len(child) == len(parent) == 32
    assert child != parent


def test_a_fork_refuses_to_continue_a_seeded_stream() -> None:
    child, parent = _child_and_parent("RandomStream.seeded(1)")
    assert child == "refused"
    continued = RandomStream.seeded(1)
    continued.bytes(16)
    assert parent == continued.bytes(16).hex()


# Secrets that are kept until a release is there.


def test_a_kept_secret_gives_the_same_stream_and_labels_give_independent_ones() -> None:
    secret = bytes(range(32))
    first = RandomStream.from_secret(secret, "noise").words(8)
    np.testing.assert_array_equal(RandomStream.from_secret(secret, "noise").words(8), first)
    for other in (
        RandomStream.from_secret(secret, "sample"),
        RandomStream.from_secret(secret),
        RandomStream.from_secret(secret[::-1], "noise"),
    ):
        assert (other.words(8) != first).all()
    assert RandomStream.from_secret(secret, "noise").secure


@pytest.mark.parametrize("secret", [b"", bytes(31), bytes(32), bytearray(range(32)), "0" * 32])
def test_what_is_no_secret_or_was_erased_opens_no_stream(secret: Any) -> None:
    with pytest.raises(ValueError, match="secret must"):
        RandomStream.from_secret(secret, "noise")


def test_the_stream_of_a_secret_does_not_cross_a_fork() -> None:
    """It would be re-keyed, and a release drawn twice; or repeated, and noise used twice."""
    stream = RandomStream.from_secret(bytes(range(32)), "noise")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            stream.words(1)
        except RuntimeError:
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
