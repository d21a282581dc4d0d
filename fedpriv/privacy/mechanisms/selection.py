"""Private selection: which candidate scores best, without revealing much about the scores.

For candidate i with score s_i, both rules flip a coin that shows heads with probability
exp(-rate·(max s - s_i)). They differ in how they use the coins, and in what they cost. The coins
are exact (`bernoulli_exp`), so no floating-point noise is ever compared; the scores are taken as
given, and their differences are rounded once, to a relative 2^-53.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fedpriv._validate import require_positive
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import BoundedRangeEvent, Event, PureEvent
from fedpriv.privacy.samplers import bernoulli_exp
from fedpriv.privacy.unit import DEFAULT_UNIT, Unit

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from fedpriv.privacy.randomness import RandomStream


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection(ABC):
    """A rule that selects a candidate for ``epsilon``. Use a subclass.

    ``sensitivity`` bounds how far any one score moves between neighbours. ``monotone`` asserts that
    all scores move in the same direction, as counts do when a record joins; the same ε then buys
    twice the rate. Replacing a record can move one score up and another down, so this needs
    add-remove adjacency.
    """

    name: ClassVar[str]
    adjacency: Adjacency
    epsilon: float
    sensitivity: float
    monotone: bool = False
    unit: Unit = DEFAULT_UNIT

    def __post_init__(self) -> None:
        object.__setattr__(self, "adjacency", Adjacency(self.adjacency))
        object.__setattr__(self, "unit", Unit(self.unit))
        require_positive(epsilon=self.epsilon, sensitivity=self.sensitivity)
        require_positive(rate=self.rate)
        if self.monotone and self.adjacency is not Adjacency.ADD_REMOVE:
            raise ValueError(
                f"monotone must be False under adjacency {self.adjacency.value!r}, got True: "
                "replacing a record moves scores both ways. Use add-remove adjacency."
            )

    @property
    def rate(self) -> float:
        """How fast the chance of heads falls with a lower score: ε/(2Δ), or ε/Δ if monotone."""
        return self.epsilon / self.sensitivity / (1 if self.monotone else 2)

    @abstractmethod
    def event(self) -> Event:
        """The privacy event of one selection."""

    def select(self, scores: ArrayLike, stream: RandomStream) -> int:
        """The index of the selected candidate. Every call is one `event`."""
        given = np.asarray(scores)
        values = given.astype(np.float64)
        if values.ndim != 1 or values.size == 0 or not np.isfinite(values).all():
            raise ValueError(
                "scores must be a one-dimensional array of finite numbers, one for each candidate, "
                f"got shape {values.shape}."
            )
        if given.dtype.kind in "iu":  # differences first: beyond 2^53 float64 has gaps
            exact = given.astype(object)
            return self._choose(self.rate * (exact.max() - exact).astype(np.float64), stream)
        with np.errstate(over="ignore"):  # at an infinite gap a coin never shows heads
            return self._choose(self.rate * (values.max() - values), stream)

    @abstractmethod
    def _choose(self, exponents: NDArray[np.float64], stream: RandomStream) -> int:
        """Select, given the exponents of the coins, the least of which is 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExponentialMechanism(Selection):
    """Selects i with probability proportional to exp(rate·s_i) (McSherry and Talwar 2007).

    Guarantee. ε-DP, and its privacy loss has a range of ε: it composes like ε²/8-zCDP (Cesar and
    Rogers 2021), which makes it the cheaper rule when there are many selections.

    Sampling. Candidates are proposed uniformly until the coin of one shows heads.
    """

    name: ClassVar[str] = "exponential"

    def event(self) -> BoundedRangeEvent:
        """ε-bounded range."""
        return BoundedRangeEvent(adjacency=self.adjacency, unit=self.unit, epsilon=self.epsilon)

    def _choose(self, exponents: NDArray[np.float64], stream: RandomStream) -> int:
        while True:
            proposed = stream.integers(exponents.size, exponents.size)
            heads = np.flatnonzero(bernoulli_exp(exponents[proposed], stream))
            if heads.size:
                return int(proposed[heads[0]])


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportNoisyMax(Selection):
    """Selects the largest of s_i plus exponential noise of mean 1/rate: permute-and-flip.

    Guarantee. ε-DP, with an expected error never above that of the exponential mechanism at the
    same ε, and up to two times below it (McKenna and Sheldon 2020). Only the ε of its privacy loss
    is charged for.

    Sampling. Permute-and-flip visits the candidates in random order and stops at the first heads;
    that is a uniform choice among all heads, with the distribution of report-noisy-max with
    exponential noise (Ding et al. 2021).
    """

    name: ClassVar[str] = "report-noisy-max"

    def event(self) -> PureEvent:
        """ε-DP."""
        return PureEvent(adjacency=self.adjacency, unit=self.unit, epsilon=self.epsilon)

    def _choose(self, exponents: NDArray[np.float64], stream: RandomStream) -> int:
        heads = np.flatnonzero(bernoulli_exp(exponents, stream))
        return int(heads[stream.integers(heads.size, 1)[0]])
