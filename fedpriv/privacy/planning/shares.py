"""From a budget to shares of noise: sized for drop-outs and colluders, and proved by accounting."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Literal

from fedpriv._collusion import DEFAULT_COLLUDING, count_of, known_shares
from fedpriv._validate import require_choice, require_count, require_delta, require_positive
from fedpriv.privacy.events import SMALLEST_SHARE_STDDEV
from fedpriv.privacy.mechanisms.shares import (
    SHARE_LAWS,
    NoiseShare,
    SharedNoise,
    ShareLaw,
)
from fedpriv.privacy.planning.calibration import noise_within
from fedpriv.privacy.planning.plan import sampled
from fedpriv.privacy.unit import DEFAULT_UNIT, Unit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedpriv.privacy.adjacency import Adjacency
    from fedpriv.privacy.budget import Budget
    from fedpriv.privacy.planning.releases import Releases


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """Who is sure to add a share, and its distribution.

    Attributes:
        parties: m, how many are asked.
        dropout: The largest fraction of them that may be missing from a sum.
        colluding: The largest fraction of them that may tell the server their shares.
        law: "auto" is Skellam if δ > 0, because its sums are exactly Skellam, for any number of
            parties and on any grid, with about the noise of a Gaussian; else Pólya.
    """

    parties: int
    dropout: float = 0.0
    colluding: float = DEFAULT_COLLUDING
    law: ShareLaw | Literal["auto"] = "auto"

    def __post_init__(self) -> None:
        require_count(parties=self.parties)
        require_delta(dropout=self.dropout, colluding=self.colluding)
        require_choice(("auto", *SHARE_LAWS), law=self.law)
        if self.honest < 1:
            raise ValueError(
                f"dropout = {self.dropout:g} and colluding = {self.colluding:g} must leave at "
                f"least one honest party of {self.parties} in every sum; they leave none."
            )

    @property
    def minimum(self) -> int:
        """The least number of parties in a sum: m - ⌊dropout·m⌋."""
        return self.parties - count_of(self.dropout, self.parties)

    @property
    def colluders(self) -> int:
        """How many shares the worst observer knows: at least one, since a party knows its own."""
        return known_shares(self.colluding, self.parties)

    @property
    def honest(self) -> int:
        """n_min: how many shares the worst observer does not know."""
        return self.minimum - self.colluders

    def law_for(self, delta: float) -> ShareLaw:
        """The law, checked against what the budget allows."""
        if self.law == "auto":
            return "skellam" if delta > 0 else "polya"
        if self.law != "polya" and delta == 0:
            raise ValueError(
                f"delta must be positive for {self.law} shares, got 0: only Pólya shares are pure."
            )
        return self.law


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedSum:
    """A sum that gets its noise in shares, as integers on a grid.

    Attributes:
        l1_sensitivity: In steps.
        l2_sensitivity: In steps, rounding included.
        dimension: How many numbers it has.
        step: The width of the grid.
    """

    l1_sensitivity: float
    l2_sensitivity: float
    dimension: int
    step: float


def shared_noise(
    *,
    budget: Budget,
    sharing: Sharing,
    l1_sensitivity: float,
    l2_sensitivity: float,
    dimension: int,
    step: float,
    adjacency: Adjacency,
    unit: Unit = DEFAULT_UNIT,
    shape: Sequence[float] = (1.0,),
    sampling_rate: float = 1.0,
) -> tuple[SharedNoise, ...]:
    """The least noise in shares, one mechanism per release of the same sum, within a budget.

    Guarantee. All releases together are (ε, δ)-DP by the accountant that prices their events, for
    every allowed set of drop-outs and colluders: the event states n_min shares, and more are
    post-processing (see `fedpriv.privacy.mechanisms.shares`).

    Args:
        budget: (ε, δ) of all releases.
        sharing: Who adds shares.
        l1_sensitivity: Of the integer sum, in steps.
        l2_sensitivity: Of the integer sum, in steps, rounding included.
        dimension: d.
        step: The grid step.
        adjacency: The adjacency of the sensitivities.
        unit: The unit of the sensitivities.
        shape: The noise of each release relative to the others.
        sampling_rate: Poisson rate of the units of every release, by secret coins of the parties
            that have them; 1 is all of them. Skellam shares only.

    Raises:
        ValueError: The budget cannot be met, or the shares would be too narrow or too wide to draw.
    """
    whole = SharedSum(
        l1_sensitivity=l1_sensitivity,
        l2_sensitivity=l2_sensitivity,
        dimension=dimension,
        step=step,
    )
    return shared_noises(
        budget=budget,
        sharing=sharing,
        sums=(whole,) * len(shape),
        adjacency=adjacency,
        unit=unit,
        shape=shape,
        sampling_rate=sampling_rate,
    )


def shared_noises(
    *,
    budget: Budget,
    sharing: Sharing,
    sums: Sequence[SharedSum],
    adjacency: Adjacency,
    unit: Unit = DEFAULT_UNIT,
    shape: Sequence[float],
    sampling_rate: float = 1.0,
) -> tuple[SharedNoise, ...]:
    """`shared_noise` for releases of different sums, each with its noise relative to its own Δ₂.

    Args:
        budget: (ε, δ) of all releases.
        sharing: Who adds shares.
        sums: What each release is made of.
        adjacency: The adjacency of their sensitivities.
        unit: The unit of their sensitivities.
        shape: The noise of each release, in units of its Δ₂, relative to the others.
        sampling_rate: As in `shared_noise`.
    """
    law = sharing.law_for(budget.delta)
    honest = sharing.minimum - sharing.colluders
    for index, part in enumerate(shape):
        require_positive(**{f"shape[{index}]": part})

    planned = tuple(zip(shape, sums, strict=True))

    def parameter(noise: float, whole: SharedSum) -> float:
        """Parameter of one share, if n_min have this standard deviation, or scale, over Δ₂."""
        steps = noise * whole.l2_sensitivity
        match law:
            case "skellam":
                return steps**2 / honest
            case "discrete-gaussian":
                return max(steps / sqrt(honest), SMALLEST_SHARE_STDDEV)
            case "polya":
                return steps

    def mechanism(noise: float, whole: SharedSum) -> SharedNoise:
        return SharedNoise(
            adjacency=adjacency,
            unit=unit,
            share=NoiseShare(
                law=law,
                parameter=parameter(noise, whole),
                minimum=sharing.minimum,
                colluders=sharing.colluders,
            ),
            l1_sensitivity=whole.l1_sensitivity,
            l2_sensitivity=whole.l2_sensitivity,
            dimension=whole.dimension,
            step=whole.step,
        )

    def releases(noise: float) -> Releases:
        parts = Counter((part * noise, whole) for part, whole in planned)
        return [
            (sampled(mechanism(*part).event(), sampling_rate), count)
            for part, count in parts.items()
        ]

    least = noise_within(
        releases,
        budget=budget,
        accountant="basic" if law == "polya" else "rdp",
        start=1.0,
    )
    narrowest = min(part * whole.l2_sensitivity for part, whole in planned) * least / sqrt(honest)
    if law == "discrete-gaussian" and narrowest < SMALLEST_SHARE_STDDEV:
        raise ValueError(
            f"shares of {narrowest:.3g} steps are too narrow for discrete Gaussians, which need "
            f"{SMALLEST_SHARE_STDDEV:g}: their sum would be too far from Gaussian. Choose Skellam "
            "shares, or a finer grid."
        )
    made = {(part, whole): mechanism(part * least, whole) for part, whole in set(planned)}
    by_width = sorted(made.values(), key=lambda each: each.share.parameter)
    for end in (by_width[0], by_width[-1]):  # what cannot be drawn is refused now, not mid-run
        end.share.sampler(sharing.parties)
    return tuple(made[each] for each in planned)
