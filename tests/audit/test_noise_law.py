"""The noise check: how often it is wrong, and which faults it names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from fedpriv.audit.noise_law import NoiseCheck

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Fault = Callable[[NDArray[np.float64], NDArray[np.float64]], None]

RUNS, ROUNDS, DIMENSION = 60, 5, 8


def _fault(
    rng: np.random.Generator,
    change: Fault = lambda _noise, _sums: None,
    *,
    runs: int = RUNS,
    failure: float = 1e-6,
    grid: float = 0.0,
) -> str:
    check = NoiseCheck(ROUNDS, DIMENSION)
    common = rng.normal(size=DIMENSION)
    for _ in range(runs):
        noise = rng.normal(size=(ROUNDS, DIMENSION))
        sums = (
            common + 0.1 * np.cumsum(noise, axis=0) - 0.1 * noise
        )  # of earlier noise, as in a run
        change(noise, sums)
        check.add(noise, sums, grid=grid)
    assert check.numbers == runs * ROUNDS * DIMENSION
    return check.fault(failure=failure)


def test_noise_as_planned_is_rarely_doubted() -> None:
    """2,000 checks with 5 % each: at most Bin(2000, 0.05), beyond 145 with a probability of 2e-5.

    The bounds of two kinds of tests are far from reached; the other seven have 3.9 % together.
    """
    rng = np.random.default_rng(0)
    alarms = sum(bool(_fault(rng, runs=20, failure=0.05)) for _ in range(2000))
    assert 40 < alarms <= 145


def _too_little(noise: NDArray[np.float64], _sums: NDArray[np.float64]) -> None:
    noise *= 0.9


def _no_coordinate(noise: NDArray[np.float64], _sums: NDArray[np.float64]) -> None:
    noise[:, 3] = 0


def _no_round(noise: NDArray[np.float64], _sums: NDArray[np.float64]) -> None:
    noise[2] = 0


def _drawn_once(noise: NDArray[np.float64], _sums: NDArray[np.float64]) -> None:
    noise[:] = noise[0]


def _used_twice(noise: NDArray[np.float64], _sums: NDArray[np.float64]) -> None:
    noise[3] = noise[1]


def _one_number(noise: NDArray[np.float64], _sums: NDArray[np.float64]) -> None:
    noise[:] = noise[:, :1]


def _bounded(noise: NDArray[np.float64], _sums: NDArray[np.float64]) -> None:
    noise[:] = np.random.default_rng(abs(int(noise[0, 0] * 1e9))).uniform(
        -(3**0.5), 3**0.5, noise.shape
    )


def _moved(noise: NDArray[np.float64], _sums: NDArray[np.float64]) -> None:
    noise += 0.5


def _by_the_sum(noise: NDArray[np.float64], sums: NDArray[np.float64]) -> None:
    noise += 0.5 * sums / np.linalg.norm(sums, axis=1, keepdims=True)


def _not_along_the_sum(noise: NDArray[np.float64], sums: NDArray[np.float64]) -> None:
    along = sums / np.linalg.norm(sums, axis=1, keepdims=True)
    noise -= (noise * along).sum(axis=1, keepdims=True) * along


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_too_little, "its standard deviation is"),
        (_no_coordinate, "in coordinate 3 it is 0 of"),
        (_no_round, "in round 2 it is 0 of"),
        (_drawn_once, "a combination of rounds has 0 of"),
        (_used_twice, "a combination of rounds has 0 of"),
        (_one_number, "a combination of coordinates has 0 of"),
        (_bounded, "its distribution is"),
        (_moved, "its mean is not zero"),
        (_by_the_sum, "it goes with the sum"),
        (_not_along_the_sum, "too little of it along the sum"),
    ],
)
def test_a_fault_is_named(change: Fault, said: str) -> None:
    assert said in _fault(np.random.default_rng(1), change, runs=200)


def test_noise_that_is_larger_is_of_another_law_and_not_too_little() -> None:
    def larger(noise: NDArray[np.float64], _sums: NDArray[np.float64]) -> None:
        noise *= 1.3

    said = _fault(np.random.default_rng(2), larger, runs=200)
    assert "its distribution is" in said
    assert "standard deviation" not in said


def test_a_coarse_grid_is_allowed_for_and_one_that_is_too_coarse_says_nothing() -> None:
    def rounded(noise: NDArray[np.float64], _sums: NDArray[np.float64]) -> None:
        noise[:] = np.rint(noise / 0.1) * 0.1

    assert _fault(np.random.default_rng(3), rounded, runs=2000, grid=0.1) == ""
    assert _fault(np.random.default_rng(3), _too_little, grid=0.2) == ""


def test_of_wide_noise_some_coordinates_are_combined() -> None:
    rng = np.random.default_rng(6)
    check = NoiseCheck(1, 3000)
    for _ in range(2000):
        noise = rng.normal(size=(1, 3000))
        noise[:, 1500:] = rng.normal(size=(1, 1))  # one number for a half of them
        check.add(noise, np.zeros_like(noise))
    assert "a combination of coordinates has 0" in check.fault()


def test_wide_noise_of_few_runs_is_checked_by_its_rounds() -> None:
    rng = np.random.default_rng(4)
    check = NoiseCheck(20, 1500)
    noise = rng.normal(size=(20, 1500))
    noise[1:] = noise[0]
    check.add(noise, np.ones_like(noise))
    assert "a combination of rounds has 0 of" in check.fault()
    with pytest.raises(ValueError, match="must have shape"):
        check.add(noise[:1], noise)
    assert NoiseCheck(1, 1).fault() == ""
