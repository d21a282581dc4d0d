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
    PoissonPureEvent,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Releases = list[tuple[Event, int]]

# Sampled accounting costs tens of milliseconds for each distinct noise; 50 levels move ε by a few
# tenths of a percent.
_LEVELS = 50


def gaussian_releases(
    noise_multipliers: float | Sequence[float],
    *,
    rounds: int | None = None,
    sampling_rate: float = 1.0,
    adjacency: Adjacency | str,
) -> Releases:
    """Rounds of Gaussian noise on a clipped sum, full batch or Poisson-sampled.

    Args:
        noise_multipliers: standard deviation of the noise on the *sum*, divided by the clip norm,
            whatever the adjacency: one number for ``rounds`` rounds, or one a round.
        rounds: how many, if there is one number; else the sequence's own length.
        sampling_rate: probability with which each record joins a round; 1 is full batch.
        adjacency: decides the sensitivity of the sum, C or 2C.
    """
    require_rate(sampling_rate=sampling_rate)
    relation = Adjacency(adjacency)

    def event(multiplier: float) -> Event:
        noise = multiplier / relation.sum_sensitivity
        if sampling_rate < 1:
            return PoissonGaussianEvent(
                relative_noise=noise, sampling_rate=sampling_rate, adjacency=relation
            )
        return GaussianEvent(relative_noise=noise, adjacency=relation)

    return [(event(z), n) for z, n in _rounds(noise_multipliers, rounds)]


def laplace_releases(
    noise_multipliers: float | Sequence[float],
    *,
    rounds: int | None = None,
    sampling_rate: float = 1.0,
    adjacency: Adjacency | str,
) -> Releases:
    """Rounds of Laplace noise on one number; a multiplier is scale / sensitivity.

    On a Poisson sample only ε = 1/multiplier of a release is used.
    """
    require_rate(sampling_rate=sampling_rate)
    relation = Adjacency(adjacency)

    def event(multiplier: float) -> Event:
        if sampling_rate < 1:
            return PoissonPureEvent(
                epsilon=1 / multiplier, sampling_rate=sampling_rate, adjacency=relation
            )
        return LaplaceEvent(relative_noise=multiplier, adjacency=relation)

    return [(event(b), n) for b, n in _rounds(noise_multipliers, rounds)]


def on_levels(releases: Iterable[tuple[Event, int]]) -> Releases:
    """Round the noise of sampled Gaussians *down* to 50 levels, if there are more distinct ones.

    The guarantee for the smaller noise holds for the larger: the rounded run is never cheaper.
    """
    listed = list(releases)
    noises = {e.relative_noise for e, _ in listed if isinstance(e, PoissonGaussianEvent)}
    if len(noises) <= _LEVELS:
        return listed
    grid = np.geomspace(min(noises), max(noises), _LEVELS)
    # Geometric schedules would sit on the levels, where a rounding error decides between two.
    grid *= 1 - 1e-9
    grid[0] = min(noises)

    def level(event: Event) -> Event:
        if not isinstance(event, PoissonGaussianEvent):
            return event
        below = np.searchsorted(grid, event.relative_noise, side="right") - 1
        return replace(event, relative_noise=float(grid[below]))

    counts: Counter[Event] = Counter()
    for event, count in listed:
        counts[level(event)] += count
    return list(counts.items())


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
