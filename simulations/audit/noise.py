"""The noise of releases, as an audit checks it: noisy sums minus the exact ones.

`fedpriv.audit.noise_law` has the tests. Here the noise of every law is brought to N(0, 1) on every
coordinate: by its distribution function, or by that of its length. Noise that parties add for
themselves, Pólya shares and sums that parties have left are not checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import gammaincc, gammainccinv, ndtri_exp

from fedpriv.audit.noise_law import NoiseCheck
from fedpriv.privacy.mechanisms import (
    GaussianMechanism,
    L1LaplaceMechanism,
    L2LaplaceMechanism,
    LaplaceMechanism,
    UnsoundLaplaceMechanism,
)
from fedpriv.privacy.mechanisms.shares import SharedNoise

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from fedpriv.privacy.mechanisms import Mechanism
    from fedpriv.simulations.audit.repetition import Seen, Side

    Vector = NDArray[np.float64]

INDEPENDENT_LAPLACE = (LaplaceMechanism, L1LaplaceMechanism, UnsoundLaplaceMechanism)
"""Mechanisms with independent Laplace noise on every coordinate."""


class NoiseSeen:
    """The noise in the runs of one side.

    Args:
        side: The side of the audit whose runs are seen.
    """

    def __init__(self, side: Side) -> None:
        self._plan, self._task = side.plan, side.prepared.task
        self._checks: dict[int, NoiseCheck] = {}  # of sums with so many coordinates
        self._run: dict[int, list[tuple[Vector, Vector]]] = {}
        self._grid, self._known = 0.0, True

    def see(self, seen: Seen, noisy: Vector, exact: Vector) -> None:
        """One release: the noisy sum, and what it would be without noise."""
        query, parties = seen.query, len(seen.sizes)
        mechanism, exact = self._plan.mechanisms[query.round], exact[: noisy.size]
        noise = standard_noise(mechanism, noisy - exact, parties=parties)
        left = parties < len(self._task.sizes) and query.sampling_rate == 1
        if noise is None or left or query.own_noise is not None:
            self._known = False
            return
        self._run.setdefault(noise.size, []).append((noise, exact))
        self._grid = max(self._grid, query.grid.step / noise_of(mechanism, parties=parties))

    def see_linear_term(self, linear: Mechanism, term: Vector) -> None:
        """The random term of a perturbed objective; what it is added to follows from it."""
        noise = standard_noise(linear, term, parties=self._task.parties)
        if noise is None:
            self._known = False
            return
        self._run.setdefault(noise.size, []).append((noise, np.zeros(noise.size)))

    def end_run(self) -> None:
        """All releases of a run were seen."""
        for dimension, releases in self._run.items():
            noise, sums = map(np.stack, zip(*releases, strict=True))
            check = self._checks.setdefault(dimension, NoiseCheck(len(noise), dimension))
            check.add(noise, sums, grid=self._grid)
        self._run = {}

    @property
    def checks(self) -> list[NoiseCheck]:
        """One for all sums with the same number of coordinates; none where a law is not known."""
        return list(self._checks.values()) if self._known else []


def noise_found(sides: Iterable[NoiseSeen]) -> tuple[int | None, str]:
    """How many numbers were checked on each side, None if none; and what is wrong with them."""
    checks = [side.checks for side in sides]
    faults = (check.fault() for side in checks for check in side)
    numbers = min(sum(check.numbers for check in side) for side in checks)
    return numbers or None, next(filter(None, faults), "")


def noise_of(mechanism: Mechanism, *, parties: int) -> float:
    """The standard deviation of the noise on a coordinate of a sum of so many parties."""
    if isinstance(mechanism, SharedNoise):
        return mechanism.stddev_of(parties)
    return mechanism.noise_stddev


def standard_noise(mechanism: Mechanism, noise: Vector, *, parties: int) -> Vector | None:
    """The noise, mapped to N(0, 1) on every coordinate if as planned; None if unknown."""
    unit = noise / noise_of(mechanism, parties=parties)
    match mechanism:
        case GaussianMechanism():
            return unit
        case SharedNoise() if mechanism.share.law != "polya":
            return unit
        case L2LaplaceMechanism():  # a Gamma(d, 1) radius becomes that of a normal vector
            length = float(np.linalg.norm(unit))
            beyond = gammaincc(noise.size, length * np.sqrt(noise.size + 1))
            return np.asarray(unit * np.sqrt(2 * gammainccinv(noise.size / 2, beyond)) / length)
        case _ if isinstance(mechanism, INDEPENDENT_LAPLACE):
            beyond = np.log(0.5) - np.sqrt(2) * np.abs(unit)
            return np.asarray(-np.sign(unit) * ndtri_exp(beyond))
    return None
