"""Claims of pure ε: Laplace noise on vectors, and releases whose ε are added up."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, sqrt
from typing import ClassVar

from fedpriv._validate import require_choice, require_count, require_positive
from fedpriv.audit.claims.verdict import REPLACE_ONE, Claim, Verdict
from fedpriv.privacy.accountants import account
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import LaplaceEvent, PureEvent

_GRID = 1.005  # a loss distribution on a grid may exceed the truth by this factor


@dataclass(frozen=True, slots=True, kw_only=True)
class LaplaceClaim(Claim):
    """Laplace noise of one scale on every coordinate of a vector.

    Attributes:
        scale: Of the noise on a coordinate.
        sensitivity: The most that one unit moves the vector by, under the stated adjacency.
        norm: In which norm that is: "l1" or "l2".
        dimension: Number of coordinates.
        rounds: How many such releases.
    """

    kind: ClassVar[str] = "laplace"
    about: ClassVar[str] = "Laplace noise on each coordinate, and the norm of the sensitivity"
    scale: float
    sensitivity: float
    norm: str
    dimension: int
    rounds: int = 1

    def __post_init__(self) -> None:
        Claim.__post_init__(self)
        require_positive(scale=self.scale, sensitivity=self.sensitivity)
        require_count(dimension=self.dimension, rounds=self.rounds)
        require_choice(("l1", "l2"), norm=self.norm)

    def judged(self) -> Verdict:
        """By the L1 norm, which is what Laplace noise hides."""
        widened = sqrt(self.dimension) if self.norm == "l2" else 1.0
        once = self.sensitivity * widened / self.scale
        epsilon, method = pure_epsilon(once, rounds=self.rounds, delta=self.delta)
        reason = (
            f"Laplace noise hides an L1 distance: a vector of {self.dimension} coordinates that "
            f"moves by {self.sensitivity:g} in L2 may move by √{self.dimension} times that in L1, "
            f"and one release costs ε = {once:.4g}. Noise whose length has a Gamma law would cost "
            f"{self.sensitivity / self.scale:.4g}."
            if self.norm == "l2"
            else f"One release costs ε = {once:.4g}: sensitivity in L1 / scale."
        )
        return self.verdict(
            epsilon,
            unit="one record",
            method=method,
            reason=reason,
            at_least=epsilon if self.delta == 0 else self._shown(),
        )

    def _shown(self) -> float:
        """ε of the worst pair at δ > 0: all coordinates move alike, or, in L1, only one does."""
        coordinates = self.dimension if self.norm == "l2" else 1
        relative = self.scale / self.sensitivity * sqrt(coordinates)
        event = LaplaceEvent(adjacency=Adjacency(REPLACE_ONE), relative_noise=relative)
        report = account([(event, coordinates * self.rounds)], delta=self.delta)
        return 0.0 if report.epsilon is None else report.epsilon / _GRID


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundsClaim(Claim):
    """Releases of which each is ε-DP by itself.

    Attributes:
        epsilon_per_round: Of one release.
        rounds: How many.
    """

    kind: ClassVar[str] = "rounds"
    about: ClassVar[str] = "ε of one release, how many there are, and what is claimed for all"
    epsilon_per_round: float
    rounds: int

    def __post_init__(self) -> None:
        Claim.__post_init__(self)
        require_positive(epsilon_per_round=self.epsilon_per_round)
        require_count(rounds=self.rounds)

    def judged(self) -> Verdict:
        """By the composition that is best for any ε-DP releases."""
        epsilon, method = pure_epsilon(self.epsilon_per_round, rounds=self.rounds, delta=self.delta)
        return self.verdict(
            epsilon,
            unit="one record",
            method=method,
            reason=(
                f"{self.rounds} releases of the same records add up, whatever each of them is: ε "
                f"of one is {self.epsilon_per_round:g}, and all of them are seen."
            ),
            at_least=0.0,
        )


def pure_epsilon(once: float, *, rounds: int, delta: float) -> tuple[float, str]:
    """ε of releases that are each ``once``-DP, and the method."""
    event = PureEvent(adjacency=Adjacency(REPLACE_ONE), epsilon=once)
    report = account([(event, rounds)], delta=delta)
    return inf if report.epsilon is None else report.epsilon, report.method
