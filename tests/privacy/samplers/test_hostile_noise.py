"""Attacks on the noise: faults that statistics of ordinary size would not show.

Most tests are deterministic. A crafted stream stands in for the random one, or the numbers of a
table are compared with exact arithmetic; the others state their false-failure probability.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from math import floor, ldexp, nextafter
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from mpmath.ctx_mp import MPContext
from numpy.typing import NDArray

import fedpriv.privacy.samplers.gaussian as gaussian_module
from fedpriv.privacy.randomness import RandomStream
from fedpriv.privacy.samplers import (
    DiscreteGaussian,
    DiscreteLaplace,
    RoundedGaussian,
    RoundedLaplace,
    Skellam,
    rounded_normals,
)
from fedpriv.privacy.samplers.rejection import RejectionTable
from tests.privacy.samplers.laws import exactly
from tests.privacy.samplers.script import Script

# --- The stream -----------------------------------------------------------------------------------


@pytest.mark.parametrize("below", [5, 3 * 2**61, 2**63])
@pytest.mark.parametrize("count", [1, 2, 1001, 5003])
def test_integers_are_the_accepted_words_of_the_stream_each_used_once(
    below: int, count: int
) -> None:
    words = RandomStream.seeded(9, below).words(4 * count + 100).tolist()
    accepted = [word % below for word in words if word < 2**64 - 2**64 % below]
    drawn = RandomStream.seeded(9, below).integers(below, count)
    assert drawn.tolist() == accepted[:count]


def test_the_last_word_that_is_not_biased_is_accepted_and_the_next_is_not() -> None:
    class Edge(RandomStream):
        def words(self, count: int) -> NDArray[np.uint64]:
            return np.array([left.pop(0) for _ in range(count)], dtype=np.uint64)

    left = [2**64 - 1, 2**64 - 2, 3]  # 2^64 is one more than a multiple of 5
    assert Edge(bytes(32), secure=False).integers(5, 1).tolist() == [4]
    assert left == [3]


def test_a_real_stream_is_keyed_by_32_bytes_of_the_operating_system(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []

    def urandom(size: int) -> bytes:
        asked.append(size)
        return bytes(range(size))

    monkeypatch.setattr(os, "urandom", urandom)
    drawn = RandomStream.from_os().bytes(32)
    assert asked == [32]
    assert drawn == RandomStream(bytes(range(32)), secure=False).bytes(32)


_FORK = """
import os
from fedpriv.privacy.randomness import RandomStream

stream = {opened}
reading, writing = os.pipe()
parent = os.getpid()
child = os.fork()
if child == 0:
    os.getpid = lambda: parent  # as in a process namespace of its own, or after the parent's end
    try:
        answer = stream.bytes(16).hex()
    except RuntimeError:
        answer = "refused"
    os.write(writing, answer.encode())
    os._exit(0)
os.waitpid(child, 0)
print(os.read(reading, 100).decode(), stream.bytes(16).hex())
"""


@pytest.mark.parametrize("opened", ["RandomStream.from_os()", "RandomStream.seeded(1)"])
def test_a_child_with_the_process_number_of_its_parent_shares_no_noise(opened: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FORK.format(opened=opened)],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    child, parent = done.stdout.split()
    assert child != parent
    assert (child == "refused") is ("seeded" in opened)


TABLES: list[tuple[str, Callable[[], RejectionTable]]] = [
    (repr(sampler), lambda sampler=sampler: sampler._table)  # type: ignore[misc]
    for scale in (0.3, 7.3, 33.0, 200.0, 1e4, 2.0**40.3)
    for sampler in (
        DiscreteGaussian(stddev=scale),
        DiscreteLaplace(scale=scale),
        Skellam(variance=scale**2),
    )
]

# --- Tables ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", [make for _, make in TABLES], ids=[name for name, _ in TABLES])
def test_a_table_reaches_as_far_as_its_law_on_both_sides(
    table: Callable[[], RejectionTable],
) -> None:
    built = table()
    bins = built.lower.size - 1
    assert bins % 2 == 0
    assert (bins // 2) << built.width_bits > built.law.reach


class TwoPoints:
    """A law whose float64 value at 1 is too small, by as much as `Law` allows."""

    reach = 0.0  # two bins: {-1} and {0}

    def __init__(self, at_one: float) -> None:
        self.at_one = at_one

    def ratio(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.where(x == 0, 1.0, self.at_one)

    def exact_ratio(self, x: Any, context: MPContext) -> Any:
        raised = context.mpf(self.at_one) * (1 + context.ldexp(1, -42))
        return context.mpf(1) if x == 0 else raised


def test_a_probability_that_float64_rounds_down_still_fits_its_slots() -> None:
    """f·S/c would exceed 1, and be cut to it, if c were not a little larger than f·S asks for."""
    mp = exactly()
    slots, at_one = 20_000, 0.5
    table = RejectionTable.build(TwoPoints(at_one))
    for _ in range(100):  # until the share of the first bin is a whole number, or just below it
        at_one = slots / table.scale
        table = RejectionTable.build(TwoPoints(at_one))
    while at_one * table.scale > slots:
        at_one = nextafter(at_one, 0.0)
        table = RejectionTable.build(TwoPoints(at_one))
    assert slots - at_one * table.scale < 1e-10
    for index, x in enumerate((-1, 0)):
        accept = table.law.exact_ratio(mp.mpf(x), mp) * mp.mpf(table.scale)
        assert accept <= int(table.counts[index])


class Flat:
    """The same probability everywhere."""

    ratio = staticmethod(np.ones_like)

    def __init__(self, reach: float) -> None:
        self.reach = reach


def test_the_counts_of_a_table_never_need_more_slots_than_there_are() -> None:
    """Σ⌈x⌉ < Σx + bins, whatever the law. Powers of two of bins own whole numbers of slots."""
    for reach in (1.0, 63.0, 100.0, 1000.0, 1023.0):
        table = RejectionTable.build(cast("Any", Flat(reach)))
        assert table.counts.sum() == 65_536
        assert table.counts[-1] >= 0


HALF = [
    RejectionTable.build(sampler._table.law, offset=0.5)
    for scale in (3.0, 40.0, 200.0)
    for sampler in (DiscreteGaussian(stddev=scale), DiscreteLaplace(scale=scale))
]


@pytest.mark.parametrize("table", HALF, ids=lambda table: repr(table.law))
def test_the_bounds_of_bins_hold_for_a_law_at_half_integers(table: RejectionTable) -> None:
    """Narrow laws show it: at 2^40 cells to a deviation half a cell is within the margins."""
    mp = exactly()
    bins, width = table.lower.size - 1, 1 << table.width_bits
    unit = mp.ldexp(1, -table.uniform_bits)
    for index in np.flatnonzero(table.counts[:-1]).tolist():
        first = (index - bins // 2) * width
        for x in (first, first + width - 1):
            accept = table.law.exact_ratio(mp.mpf(x) + 0.5, mp) * mp.mpf(table.scale)
            accept /= int(table.counts[index])
            assert int(table.lower[index]) * unit <= accept <= 1
            assert accept <= int(table.upper[index]) * unit


@pytest.mark.parametrize("table", HALF[-2:], ids=lambda table: repr(table.law))
def test_a_proposal_is_judged_by_the_law_at_its_half_integer(table: RejectionTable) -> None:
    """u a millionth below and above the threshold, inside a bin whose bounds leave it open."""
    mp = exactly()
    bins, width = table.lower.size - 1, 1 << table.width_bits
    bits = table.uniform_bits + 64
    tried, place = 0, width // 2
    for index in np.flatnonzero(table.counts[:-1]).tolist():
        x = (index - bins // 2) * width + place
        accept = table.law.exact_ratio(mp.mpf(x) + 0.5, mp) * mp.mpf(table.scale)
        accept /= int(table.counts[index])
        if accept < mp.ldexp(1, -20):
            continue  # closer than a tie: more bits would be drawn
        slot = int(np.flatnonzero(table.bin_of_slot == index)[0])
        for nudge, kept in ((-1e-6, [x]), (1e-6, [])):
            u = int(mp.floor(mp.ldexp(accept * (1 + nudge), bits)))
            leading = u >> 64
            if not table.lower[index] <= leading < table.upper[index]:
                continue
            word = slot | place << 16 | leading << (16 + table.width_bits)
            script = Script(word, u % 2**64)
            assert table._propose(1, cast("RandomStream", script)).tolist() == kept
            tried += 1
    assert tried >= 4


@pytest.mark.parametrize("sampler", [RoundedGaussian(stddev=5.0), RoundedLaplace(scale=5.0)])
def test_rounding_puts_the_border_of_two_integers_between_two_cells(
    sampler: RoundedGaussian | RoundedLaplace,
) -> None:
    half = 1 << (sampler._fine_bits - 1)
    cells = np.array([-half - 1, -half, half - 1, half, 3 * half - 1, 3 * half])
    table = SimpleNamespace(draw=lambda count, stream: cells.copy())
    object.__setattr__(sampler, "_table", table)
    assert sampler.draw(6, RandomStream.seeded(0)).tolist() == [-1, 0, 0, 1, 1, 2]


@pytest.mark.parametrize("scale", [2.0**-20, 0.3, 1.0, 7.3, 2.0**39.5, 2.0**42])
def test_a_table_has_exactly_the_scale_asked_for(scale: float) -> None:
    gaussian, laplace = RoundedGaussian(stddev=scale), RoundedLaplace(scale=scale)
    laws: list[tuple[Any, float]] = [
        (gaussian._table.law, ldexp(scale, gaussian._fine_bits)),
        (DiscreteGaussian(stddev=scale)._table.law, scale),
    ]
    assert all(law.stddev == wanted for law, wanted in laws)
    laws = [
        (laplace._table.law, ldexp(scale, laplace._fine_bits)),
        (DiscreteLaplace(scale=scale)._table.law, scale),
    ]
    assert all(law.scale == wanted for law, wanted in laws)
    assert cast("Any", Skellam(variance=scale**2)._table.law).variance == scale**2


@pytest.mark.parametrize("variance", [0.01, 1.0, 12.0, 150.0, 417.0, 999.0, 1001.0, 5e3])
def test_skellam_ratios_are_accurate_on_both_sides_of_the_change_of_formula(
    variance: float,
) -> None:
    mp = exactly()
    law = Skellam(variance=variance)._table.law
    peak = mp.besseli(0, mp.mpf(variance), maxterms=10**6)
    for part in (0.1, 0.5, 1.0):
        k = int(law.reach * part)
        exact = mp.besseli(k, mp.mpf(variance), maxterms=10**6) / peak
        ratio = mp.mpf(float(law.ratio(np.array([float(k)]))[0]))
        assert abs(ratio - exact) <= max(exact * mp.ldexp(1, -42), mp.ldexp(1, -64))


# --- Normals of many scales -----------------------------------------------------------------------


@pytest.mark.parametrize("word", [0, 2**64 - 1])
def test_every_normal_whose_cell_holds_a_border_is_decided_exactly(
    word: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """4000 cells with a border inside, at scales up to 2^36: the bits to come decide them all."""
    random = np.random.default_rng(0)
    stddevs = 2.0 ** random.uniform(-2, 36, 4000)
    borders = random.integers(0, 8 * np.maximum(1, stddevs).astype(np.int64)) + 0.5
    borders = np.minimum(borders, 8 * stddevs)
    cells = np.array(
        [
            floor(Fraction(border) / Fraction(stddev) * 2**42)
            for border, stddev in zip(borders.tolist(), stddevs.tolist(), strict=True)
        ]
    )
    built: list[tuple[float, float]] = []

    def build(law: Any, *, offset: float) -> Any:
        built.append((law.stddev, offset))
        return SimpleNamespace(draw=lambda count, stream: cells.copy())

    monkeypatch.setattr(gaussian_module, "RejectionTable", SimpleNamespace(build=build))
    stream = SimpleNamespace(words=lambda count: np.full(count, word, dtype=np.uint64))
    drawn = rounded_normals(stddevs, cast("RandomStream", stream))
    place = Fraction(word, 2**64)
    assert drawn.tolist() == [
        floor(Fraction(stddev) * (cell + place) / 2**42 + Fraction(1, 2))
        for stddev, cell in zip(stddevs.tolist(), cells.tolist(), strict=True)
    ]
    assert built == [(2.0**42, 0.5)]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0, 2.0**49])
def test_normals_of_a_scale_without_exact_integers_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="stddevs must lie between"):
        rounded_normals(np.array([1.0, bad]), RandomStream.seeded(0))
