"""Noise shares: every party adds a part of the noise, so nobody ever sees a sum without it.

Every party adds an integer share of the noise to its answer before the answer is masked. The sum
then carries the noise of all parties in it. Some of them may drop out, and some may tell the server
their shares, which it subtracts; what remains is the noise of at least n_min honest parties,

    n_min = minimum - colluders,

where ``minimum`` is the smallest number of parties whose sum is opened. Shares are sized so that
n_min of them make up the noise that the accountant charges for.

More honest parties than n_min only add noise. *Proof.* Let S be the sum of the answers, Z the
shares of n_min honest parties in it and Z' those of the other honest ones: all independent of one
another and of the data. The adversary sees S + Z + Z', up to shares that it knows. That is computed
from S + Z by adding an independent Z', hence by post-processing, which preserves every guarantee
that the release of S + Z has. Which parties are in the sum must not depend on their shares. ∎

Assumptions: parties follow the protocol, except for the colluders; and the sum is secure. One share
alone hides almost nothing, so without masks there is no guarantee.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, expm1, floor, inf, nextafter, sqrt
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from fedpriv._validate import require_choice, require_count, require_positive
from fedpriv.privacy.events import (
    DistributedGaussianEvent,
    Event,
    PureEvent,
    SkellamEvent,
)
from fedpriv.privacy.mechanisms import Mechanism
from fedpriv.privacy.samplers import DiscreteGaussian, Polya, Skellam

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedpriv.privacy.randomness import RandomStream
    from fedpriv.privacy.samplers.sampler import IntegerSampler

ShareLaw = Literal["skellam", "discrete-gaussian", "polya"]
SHARE_LAWS: tuple[ShareLaw, ...] = ("skellam", "discrete-gaussian", "polya")

_DEVIATIONS = {"skellam": 6.5, "discrete-gaussian": 6.5, "polya": 17.0}
_DRAWS = 1 << 20  # draws at a time: bounds the memory


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseShare:
    """The noise share that one party adds to every coordinate of its answer, in steps of the grid.

    Three laws, each stated by one number:

    - "skellam": Skellam noise, ``parameter`` its variance v. A sum of n shares is exactly Skellam
      of variance nv (Agarwal, Kairouz and Liu 2021).
    - "discrete-gaussian": N_ℤ(0, s²), ``parameter`` = s ≥ 2. A sum of n shares is nearly a discrete
      Gaussian of variance ns², and has a theorem of its own (Kairouz, Liu and Steinke 2021).
    - "polya": the difference of two NB(1/n_min, e^(-1/t)), ``parameter`` = t. A sum of n_min shares
      is exactly discrete Laplace of scale t (Goryczka and Xiong 2017), for pure privacy.

    Attributes:
        law: The name of the law.
        parameter: Its number, as above.
        minimum: The smallest number of parties whose sum is opened.
        colluders: How many of them may tell the server their shares.
    """

    law: ShareLaw
    parameter: float
    minimum: int
    colluders: int = 0

    def __post_init__(self) -> None:
        require_choice(SHARE_LAWS, law=self.law)
        require_positive(parameter=self.parameter)
        object.__setattr__(self, "parameter", float(self.parameter))
        require_count(minimum=self.minimum)
        if type(self.colluders) is not int or not 0 <= self.colluders < self.minimum:
            raise ValueError(
                f"colluders must be an integer from 0 to minimum - 1 = {self.minimum - 1}, got "
                f"{self.colluders!r}: somebody must add noise that the server does not know."
            )

    @property
    def honest(self) -> int:
        """n_min: how many shares every sum carries that the server does not know."""
        return self.minimum - self.colluders

    @property
    def variance(self) -> float:
        """Variance of one share on one coordinate; s² for the discrete Gaussian.

        The true variance of N_ℤ(0, s²) is below s² by a factor of 1 - O(s²e^(-2π²s²)): at s = 2,
        1e-31 of it.
        """
        match self.law:
            case "skellam":
                return self.parameter
            case "discrete-gaussian":
                return self.parameter**2
            case "polya":
                return 2 * exp(-1 / self.parameter) / expm1(-1 / self.parameter) ** 2 / self.honest

    def reach(self, parties: int) -> float:
        """How far the noise of ``parties`` reaches, except with probability 1e-10 per coordinate.

        6.5 standard deviations for nearly Gaussian noise; 17, that is 24 scales, for noise with the
        tails of a Laplace distribution; plus 8 steps, because a small variance has Poisson tails.
        """
        return _DEVIATIONS[self.law] * sqrt(parties * self.variance) + 8

    def draw_sum(self, parties: int, *, dimension: int, stream: RandomStream) -> NDArray[np.int64]:
        """Draw the sum of the shares of ``parties`` parties, on every coordinate.

        Skellam and Pólya sums are exactly of the same family, and are drawn at once; discrete
        Gaussians are drawn party by party.
        """
        require_count(parties=parties, dimension=dimension)
        sampler = self.sampler(parties)
        if self.law != "discrete-gaussian":
            return sampler.draw(dimension, stream)
        total = np.zeros(dimension, np.int64)
        at_once = max(1, _DRAWS // dimension)
        for first in range(0, parties, at_once):
            rows = min(at_once, parties - first)
            total += sampler.draw(rows * dimension, stream).reshape(rows, -1).sum(axis=0)
        return total

    def sampler(self, parties: int) -> IntegerSampler | Polya:
        """The sampler of the sum of ``parties`` shares; of one share, for discrete Gaussians.

        Raises:
            ValueError: The law is too wide or too narrow to be drawn exactly.
        """
        match self.law:
            case "skellam":
                return Skellam(variance=parties * self.parameter)
            case "discrete-gaussian":
                return DiscreteGaussian(stddev=self.parameter)
            case "polya":
                # Rounded up: shapes that add up to a little more than 1 are a little more noise.
                shape = nextafter(parties / self.honest, inf)
                return Polya(shape=shape, scale=self.parameter)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedNoise(Mechanism):
    """The noise that a sum of shares is sure to carry: that of n_min honest parties.

    Guarantee. That of its `event`, for every sum of at least ``share.minimum`` parties, at most
    ``share.colluders`` of which tell the server what they added.

    Attributes:
        share: What one party adds.
        l1_sensitivity: Of the integer sum, in steps.
        l2_sensitivity: Of the integer sum, in steps: Δ/step + √d.
        dimension: d.
        step: The grid step.
    """

    name: ClassVar[str] = "noise-shares"
    share: NoiseShare
    l1_sensitivity: float
    l2_sensitivity: float
    dimension: int
    step: float

    def __post_init__(self) -> None:
        Mechanism.__post_init__(self)
        require_positive(
            l1_sensitivity=self.l1_sensitivity,
            l2_sensitivity=self.l2_sensitivity,
            step=self.step,
        )
        require_count(dimension=self.dimension)
        self.event()  # the event's own checks are the mechanism's

    @property
    def title(self) -> str:
        """The law, for a statement."""
        return f"{self.share.law} shares"

    def event(self) -> Event:
        """The privacy event of one release.

        Pure for Pólya shares: the L1 norm of an integer vector is an integer, so its bound may be
        rounded down.
        """
        share = self.share
        match share.law:
            case "skellam":
                return SkellamEvent(
                    adjacency=self.adjacency,
                    unit=self.unit,
                    variance=share.honest * share.parameter,
                    l1_sensitivity=self.l1_sensitivity,
                    l2_sensitivity=self.l2_sensitivity,
                )
            case "discrete-gaussian":
                return DistributedGaussianEvent(
                    adjacency=self.adjacency,
                    unit=self.unit,
                    shares=share.honest,
                    share_stddev=share.parameter,
                    l1_sensitivity=self.l1_sensitivity,
                    l2_sensitivity=self.l2_sensitivity,
                    dimension=self.dimension,
                )
            case "polya":
                return PureEvent(
                    adjacency=self.adjacency,
                    unit=self.unit,
                    epsilon=max(1, floor(self.l1_sensitivity)) / share.parameter,
                )

    @property
    def noise_stddev(self) -> float:
        """Standard deviation that the sum is sure to have on one coordinate, in real units."""
        return self.stddev_of(self.share.honest)

    def stddev_of(self, parties: int) -> float:
        """Standard deviation, in real units, of ``parties`` parties' noise on one coordinate."""
        return self.step * sqrt(parties * self.share.variance)

    @property
    def _coordinates(self) -> int:
        return self.dimension

    def _draw(self, shape: tuple[int, ...], step: float, stream: RandomStream) -> NDArray[np.int64]:
        """What n_min parties add. The releases of a run are drawn by the parties, not here."""
        if step != self.step:
            raise ValueError(f"step must be {self.step!r}, which the shares count, got {step!r}.")
        *many, d = shape
        rows = int(np.prod(many))
        drawn = self.share.draw_sum(self.share.honest, dimension=rows * d, stream=stream)
        return drawn.reshape(shape)
