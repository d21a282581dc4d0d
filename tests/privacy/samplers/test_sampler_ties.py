"""Ties of a sampler: what float64 cannot decide is decided by further bits."""

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

from fedpriv.privacy.samplers import (
    DiscreteGaussian,
    RoundedGaussian,
    bernoulli_exp,
    rounded_normals,
)
from fedpriv.privacy.samplers.comparison import TIE, uniform_below
from fedpriv.privacy.samplers.rejection import RejectionTable
from tests.privacy.samplers.laws import LAWS, every_law, exactly
from tests.privacy.samplers.script import Script

if TYPE_CHECKING:
    from fedpriv.privacy.randomness import RandomStream


def _propose(table: RejectionTable, script: Script) -> list[int]:
    return [int(x) for x in table._propose(1, cast("RandomStream", script))]


@every_law
@pytest.mark.parametrize("scale", [200.0, 1e6])
def test_a_tie_is_decided_by_bits_that_float64_does_not_have(law: str, scale: float) -> None:
    """The first 64 + b bits of u are those of the threshold itself; the next word decides."""
    mp = exactly(400)
    table = LAWS[law][0](scale)._table
    index, place = table.lower.size // 2 + 30, 1
    x = 30 * (1 << table.width_bits) + place
    accept = table.law.exact_ratio(mp.mpf(x) + table.offset, mp) * mp.mpf(table.scale)
    accept /= int(table.counts[index])
    bits = int(mp.floor(mp.ldexp(accept, table.uniform_bits + 128)))
    leading, trailing, deciding = bits >> 128, (bits >> 64) % 2**64, bits % 2**64
    slot = int(np.flatnonzero(table.bin_of_slot == index)[0])
    word = slot | place << 16 | leading << (16 + table.width_bits)
    assert table.lower[index] <= leading < table.upper[index]
    nudge = 2**24  # of 2^64: far below what float64 could see
    below, above = (
        Script(word, trailing, deciding - nudge),
        Script(word, trailing, deciding + nudge),
    )
    assert _propose(table, below) == [x]
    assert _propose(table, above) == []
    assert not below.left
    assert not above.left


def test_float64_decides_everything_outside_the_tie_band() -> None:
    asked: list[int] = []

    def decide(index: int, context: Any) -> bool:
        asked.append(index)
        return True

    threshold = np.full(5, 0.5)
    uniform = threshold + np.array([-2, -1, 0, 1, 2]) * TIE
    below = uniform_below(uniform, threshold, decide)
    assert asked == [1, 2, 3]
    assert below.tolist() == [True, True, True, True, False]


def test_a_normal_at_the_border_of_two_integers_is_rounded_exactly() -> None:
    """The cell of 2^-42 holds a half-integer multiple of the scale; its next bits decide."""
    stddev = 1.5 / 1.1
    target = 2.5 / stddev * 2.0**42  # the cell in which stddev · normal crosses 2.5
    table = RoundedGaussian(stddev=2.0**41)._table  # one bit finer: the same cells
    cell, inside = int(target), target - int(target)
    width = 1 << table.width_bits
    index = table.lower.size // 2 + cell // width
    slot = int(np.flatnonzero(table.bin_of_slot == index)[0])
    word = slot | (cell % width) << 16  # u = 0: accepted
    filler = [word] * 16  # a draw of one proposes 17
    for rest, expected in ((0, 2), (2**64 - 1, 3)):
        script = Script(word, *filler, rest)
        drawn = rounded_normals(np.array([stddev]), cast("RandomStream", script))
        assert drawn.tolist() == [expected]
        assert not script.left
    assert 0 < inside < 1


def test_a_coin_flip_resolves_probabilities_below_float64() -> None:
    exponents = np.array([60.0])  # 2^-86.6: no 64-bit uniform is that small, save zero
    heads = Script(0, 1)
    tails = Script(0, 2**64 - 1)
    assert bernoulli_exp(exponents, cast("RandomStream", heads)).tolist() == [True]
    assert bernoulli_exp(exponents, cast("RandomStream", tails)).tolist() == [False]


def test_slots_that_no_bin_owns_reject() -> None:
    table = DiscreteGaussian(stddev=200.0)._table
    slot = int(np.flatnonzero(table.bin_of_slot == table.lower.size - 1)[0])
    assert _propose(table, Script(slot)) == []
