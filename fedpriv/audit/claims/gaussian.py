"""Plain claims about Gaussian noise: noise, clip, rounds, sampling, adjacency.

The sensitivity of a sum depends on the adjacency and on how batches are drawn. It is C, the clip
norm, if a contribution is added or removed and nothing else changes (zero-out; add-remove, if the
divisor is public and every unit is drawn independently). It is 2C if a contribution is replaced
(replace-one), and if a cohort has a fixed size: another unit then fills the place of one that
leaves.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, exp, inf
from typing import ClassVar

from fedpriv._validate import (
    require_choice,
    require_count,
    require_open_unit,
    require_positive,
    require_rate,
)
from fedpriv.audit.claims.participation import METHOD, participation_epsilon
from fedpriv.audit.claims.verdict import ADD_REMOVE, REPLACE_ONE, Claim, Verdict
from fedpriv.privacy.accountants import account
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.conversions import group_privacy
from fedpriv.privacy.events import GaussianEvent, PoissonGaussianEvent

FULL, POISSON, SHUFFLED, FIXED = "full batch", "poisson", "shuffled", "fixed size"
SAMPLINGS = (FULL, POISSON, SHUFFLED, FIXED)
_ATTEMPTS = 8
_GRID = 1.005  # a loss distribution on a grid may exceed the truth by this factor
_LARGEST = 500.0  # of ε, as an exponent


@dataclass(frozen=True, slots=True, kw_only=True)
class Proved:
    """ε that is proved of Gaussian rounds, with how and why; ``at_least`` is None if exact."""

    epsilon: float
    method: str
    reason: str
    at_least: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianClaim(Claim):
    """Gaussian noise on sums of clipped contributions.

    Attributes:
        noise_multiplier: Standard deviation of the noise on the sum / clip norm.
        noise_stddev: That deviation, and ``clip`` the norm, in place of ``noise_multiplier``.
        clip: The clip norm.
        rounds: How many releases.
        sampling: How a round's batch is drawn.
        sampling_rate: Share of the units in a batch.
        unit: Whose contribution is clipped.
    """

    kind: ClassVar[str] = "gaussian"
    about: ClassVar[str] = "noise, clip, rounds, sampling and adjacency, as a paper states them"
    noise_multiplier: float | None = None
    noise_stddev: float | None = None
    clip: float | None = None
    rounds: int
    sampling: str = FULL
    sampling_rate: float = 1.0
    unit: str = "record"

    def __post_init__(self) -> None:
        Claim.__post_init__(self)
        require_choice(SAMPLINGS, sampling=self.sampling)
        require_rate(sampling_rate=self.sampling_rate)
        require_count(rounds=self.rounds)
        require_choice(("record", "person", "party"), unit=self.unit)
        require_open_unit(delta=self.delta)
        both = (self.noise_stddev, self.clip)
        if (self.noise_multiplier is None) == (None in both) or both.count(None) == 1:
            raise ValueError(
                "the noise must be stated once: give noise_multiplier, or noise_stddev and clip."
            )
        if (self.sampling == FULL) != (self.sampling_rate == 1.0):
            raise ValueError(
                f"sampling = {self.sampling!r} and sampling_rate = {self.sampling_rate!r} do not "
                "go together: a full batch has rate 1, and every other one less."
            )
        require_positive(noise=self.noise)

    @property
    def noise(self) -> float:
        """The noise multiplier."""
        if self.noise_multiplier is not None:
            return self.noise_multiplier
        stddev, clip = self.noise_stddev or 0.0, self.clip or 0.0
        require_positive(noise_stddev=stddev, clip=clip)
        return stddev / clip

    def judged(self) -> Verdict:
        """By the tightest accountant that knows this sampling."""
        found = proved(
            noise=self.noise,
            rounds=self.rounds,
            sampling=self.sampling,
            rate=self.sampling_rate,
            adjacency=self.adjacency,
            delta=self.delta,
        )
        return self.verdict(
            found.epsilon,
            unit=f"one {self.unit}",
            method=found.method,
            reason=found.reason,
            at_least=found.at_least,
        )


def proved(
    *, noise: float, rounds: int, sampling: str, rate: float, adjacency: str, delta: float
) -> Proved:
    """What is proved of Gaussian rounds.

    Args:
        noise: Standard deviation on the sum / clip norm.
        rounds: How many.
        sampling: One of `SAMPLINGS`.
        rate: Share of the units in a round.
        adjacency: What neighbours differ by.
        delta: At which.
    """
    match sampling:
        case "full batch":
            return _full(noise, rounds, adjacency, delta)
        case "poisson":
            return _poisson(noise, rounds, rate, adjacency, delta)
        case "shuffled":
            return _shuffled(noise, rounds, rate, adjacency, delta)
        case _:
            return _fixed(noise, rounds, rate, adjacency, delta)


def gaussian_epsilon(*, relative_noise: float, rounds: int, delta: float) -> tuple[float, str]:
    """ε of full-batch releases, noise relative to what one unit moves; and the method."""
    event = GaussianEvent(adjacency=Adjacency.ADD_REMOVE, relative_noise=relative_noise)
    report = account([(event, rounds)], delta=delta)
    return _finite(report.epsilon), report.method


def poisson_epsilon(*, noise: float, rounds: int, rate: float, delta: float) -> tuple[float, str]:
    """ε of Poisson-sampled releases under add-remove, and the method."""
    event = PoissonGaussianEvent(
        adjacency=Adjacency.ADD_REMOVE, relative_noise=noise, sampling_rate=rate
    )
    report = account([(event, rounds)], delta=delta)
    return _finite(report.epsilon), report.method


def _finite(epsilon: float | None) -> float:
    return inf if epsilon is None else epsilon


def _moved(adjacency: str) -> int:
    """By how many clip norms one unit moves a sum over a full batch."""
    return 2 if adjacency == REPLACE_ONE else 1


def _full(noise: float, rounds: int, adjacency: str, delta: float) -> Proved:
    moved = _moved(adjacency)
    epsilon, method = gaussian_epsilon(relative_noise=noise / moved, rounds=rounds, delta=delta)
    what = "is replaced, and moves it by 2C" if moved == 2 else "joins or leaves, and moves it by C"
    reason = (
        f"{rounds} releases of a sum in which one contribution {what}; the noise is {noise:.6g} C. "
        "Rounds without sampling compose exactly, as Gaussians."
    )
    return Proved(epsilon=epsilon, method=method, reason=reason)


def _poisson(noise: float, rounds: int, rate: float, adjacency: str, delta: float) -> Proved:
    if adjacency != REPLACE_ONE:
        epsilon, method = poisson_epsilon(noise=noise, rounds=rounds, rate=rate, delta=delta)
        reason = (
            f"{rounds} releases of Poisson samples at rate {rate:g}: each unit is in a batch by a "
            "coin of its own, and the sum is divided by a public number."
        )
        return Proved(epsilon=epsilon, method=method, reason=reason)
    full, how = gaussian_epsilon(relative_noise=noise / 2, rounds=rounds, delta=delta)
    paired, method = _two_steps(noise, rounds, rate, delta)
    reason = (
        "A replacement is two steps of add-remove, for which Poisson sampling is accounted: the ε "
        "of one step, which accountants print, is not that of replace-one, and never exceeds it."
    )
    one, _ = poisson_epsilon(noise=noise, rounds=rounds, rate=rate, delta=delta)
    if full < paired:
        return Proved(epsilon=full, method=how, reason=reason, at_least=one / _GRID)
    method = f"{method}, group privacy of 2"
    return Proved(epsilon=paired, method=method, reason=reason, at_least=one / _GRID)


def _two_steps(noise: float, rounds: int, rate: float, delta: float) -> tuple[float, str]:
    """ε of two add-remove steps (group privacy), with a δ per step that keeps the group's at δ."""
    step = delta / 2
    for _ in range(_ATTEMPTS):
        one, method = poisson_epsilon(noise=noise, rounds=rounds, rate=rate, delta=step)
        pair = group_privacy(epsilon=one, delta=step, size=2)
        if pair.delta <= delta:
            return pair.epsilon, method
        step = 0.9 * delta / (1 + exp(min(one, _LARGEST)))
    return inf, "group privacy"


def _shuffled(noise: float, rounds: int, rate: float, adjacency: str, delta: float) -> Proved:
    passes = ceil(rounds * rate - 1e-9)
    moved = _moved(adjacency)
    epsilon, method = gaussian_epsilon(relative_noise=noise / moved, rounds=passes, delta=delta)
    poisson, _ = poisson_epsilon(noise=noise, rounds=rounds, rate=rate, delta=delta)
    reason = (
        "Accountants amplify Poisson samples only, and batches of a shuffled table are not: a unit "
        f"is certain to be in one batch of each of {passes} passes. Accounted for as Poisson they "
        f"would have ε = {poisson:.4g}. For one fixed order, what is proved is exact; for a new "
        "order in each pass, the truth lies between, and no accountant here computes it."
    )
    return Proved(epsilon=epsilon, method=method, reason=reason, at_least=0.0)


def _fixed(noise: float, rounds: int, rate: float, adjacency: str, delta: float) -> Proved:
    moved = 1 if adjacency not in (ADD_REMOVE, REPLACE_ONE) else 2
    epsilon = participation_epsilon(
        relative_noise=noise / moved, rounds=rounds, draws=1, chance=rate, delta=delta
    )
    poisson, _ = poisson_epsilon(noise=noise, rounds=rounds, rate=rate, delta=delta)
    filled = (
        "another unit fills the place of one that leaves, and the sum moves by 2C"
        if moved == 2
        else "one contribution moves the sum by C, as often as its unit is drawn"
    )
    reason = (
        f"Cohorts of a fixed size are not Poisson samples: {filled}. Accounted for as Poisson they "
        f"would have ε = {poisson:.4g}; what is proved here counts how often a unit is drawn."
    )
    return Proved(epsilon=_finite(epsilon), method=METHOD, reason=reason, at_least=0.0)
