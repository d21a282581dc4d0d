"""From noise to events: what a run of so many rounds releases, as (event, count) pairs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedpriv._validate import require_count, require_positive, require_rate
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import (
    Event,
    GaussianEvent,
    LaplaceEvent,
    PoissonGaussianEvent,
    PoissonPartsEvent,
    PoissonPureEvent,
)
from fedpriv.privacy.planning.plan import sampled
from fedpriv.privacy.unit import DEFAULT_UNIT, Unit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

Releases = list[tuple[Event, int]]

_LARGEST = 700.0  # larger exponents overflow
_MARGIN = 1e-9
_SAMPLED = (PoissonGaussianEvent, PoissonPartsEvent)


def gaussian_releases(
    noise_multipliers: float | Sequence[float],
    *,
    rounds: int | None = None,
    sampling_rate: float = 1.0,
    parts: int = 1,
    adjacency: Adjacency | str,
    unit: Unit | str = DEFAULT_UNIT,
) -> Releases:
    """Rounds of Gaussian noise on a clipped sum, full batch or Poisson-sampled.

    Args:
        noise_multipliers: standard deviation of the noise on the *sum*, divided by the clip norm,
            whatever the adjacency: one number for ``rounds`` rounds, or one per round. With several
            parts, divided by what all of them can add.
        rounds: how many, if there is one number; else the sequence's own length.
        sampling_rate: probability with which each record joins a round; 1 is full batch.
        parts: in how many samples one unit may be, by separate coins.
        adjacency: decides the sensitivity of the sum, C or 2C.
        unit: whose contribution is clipped: a record's, a person's or a party's.
    """
    require_rate(sampling_rate=sampling_rate)
    relation, whose = Adjacency(adjacency), Unit(unit)

    def event(multiplier: float) -> Event:
        noise = multiplier / relation.sum_sensitivity
        whole = GaussianEvent(relative_noise=noise, adjacency=relation, unit=whose)
        return sampled(whole, sampling_rate, parts=parts)

    return [(event(z), n) for z, n in _rounds(noise_multipliers, rounds)]


def laplace_releases(
    noise_multipliers: float | Sequence[float],
    *,
    rounds: int | None = None,
    sampling_rate: float = 1.0,
    adjacency: Adjacency | str,
    unit: Unit | str = DEFAULT_UNIT,
) -> Releases:
    """Rounds of Laplace noise on one number; a multiplier is scale / sensitivity.

    On a Poisson sample only ε = 1/multiplier of a release is used.
    """
    require_rate(sampling_rate=sampling_rate)
    relation, whose = Adjacency(adjacency), Unit(unit)

    def event(multiplier: float) -> Event:
        if sampling_rate < 1:
            return PoissonPureEvent(
                epsilon=1 / multiplier, sampling_rate=sampling_rate, adjacency=relation, unit=whose
            )
        return LaplaceEvent(relative_noise=multiplier, adjacency=relation, unit=whose)

    return [(event(b), n) for b, n in _rounds(noise_multipliers, rounds)]


def on_levels(releases: Iterable[tuple[Event, int]], *, most: int) -> Releases:
    """Round the noise of sampled Gaussians *down* to ``most`` levels, if more of it is distinct.

    The guarantee for the smaller noise holds for the larger: the rounded run is never cheaper. The
    cost of rounding is about the sum, over the levels, of rounds × the rise of their cost / 2, and
    is least where the levels have equal parts of ∫√(rounds · d cost). It falls as 1/``most``.
    """
    require_count(most=most)
    listed = list(releases)
    chosen = [(e, n) for e, n in listed if isinstance(e, _SAMPLED)]
    rounds: Counter[float] = Counter()
    for event, count in chosen:
        rounds[event.relative_noise] += count
    if len(rounds) <= most:
        return listed
    noises = np.array(sorted(rounds))
    mean_square = sum(n * e.sampling_rate**2 for e, n in chosen) / sum(rounds.values())
    level = dict(zip(noises.tolist(), _levels(noises, rounds, mean_square, most), strict=True))
    counts: Counter[Event] = Counter()
    for other, count in listed:
        if not isinstance(other, _SAMPLED):
            counts[other] += count
    for event, count in chosen:
        counts[replace(event, relative_noise=level[event.relative_noise])] += count
    return list(counts.items())


def _levels(
    noises: NDArray[np.float64], rounds: Mapping[float, int], mean_square: float, most: int
) -> list[float]:
    """The least noise of each one's level; ``noises`` are ascending."""
    with np.errstate(over="ignore"):
        exponent = noises**-2.0
    # The cost: Rényi divergence of order 2, ln(1 + q²·(e^(1/σ²) − 1)).
    cost = np.log1p(mean_square * np.expm1(np.minimum(exponent, _LARGEST)))
    cost += np.maximum(np.minimum(exponent, 1e300) - _LARGEST, 0.0)
    counts = np.array([rounds[noise] for noise in noises.tolist()], dtype=np.float64)
    parts = np.sqrt(np.maximum(-np.diff(cost), 0.0) * (counts[1:] + counts[:-1]) / 2)
    place = np.concatenate([[0.0], np.cumsum(parts)])
    # A schedule may sit on the borders, where rounding errors must not decide between two levels.
    cells = np.floor(place / (place[-1] or 1.0) * most + _MARGIN)
    first = np.searchsorted(cells, np.minimum(cells, most - 1))
    return [float(noise) for noise in noises[first]]


def _rounds(
    noise_multipliers: float | Sequence[float], rounds: int | None
) -> list[tuple[float, int]]:
    """(multiplier, count) pairs, equal multipliers together."""
    if isinstance(noise_multipliers, (int, float)):
        if rounds is None:
            raise ValueError("rounds must be given with a single noise multiplier, got None.")
        require_count(rounds=rounds)
        require_positive(noise_multiplier=noise_multipliers)
        return [(float(noise_multipliers), rounds)]
    if not len(noise_multipliers):
        raise ValueError("noise_multipliers must hold at least one round, got none.")
    if rounds not in (None, len(noise_multipliers)):
        raise ValueError(
            f"rounds must equal the length of the schedule, {len(noise_multipliers)}, "
            f"got {rounds!r}. Leave it out."
        )
    for index, multiplier in enumerate(noise_multipliers):
        require_positive(**{f"noise_multipliers[{index}]": multiplier})
    return list(Counter(map(float, noise_multipliers)).items())
