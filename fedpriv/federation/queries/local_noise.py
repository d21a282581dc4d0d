"""Local noise of parties, relative to a sensitivity known only at the party or after drop-outs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fedpriv._validate import require_choice, require_positive
from fedpriv.privacy.mechanisms import (
    GaussianMechanism,
    L1LaplaceMechanism,
    L2LaplaceMechanism,
    UnsoundLaplaceMechanism,
)
from fedpriv.privacy.mechanisms.laws import LAWS, Law
from fedpriv.privacy.unit import DEFAULT_UNIT, Unit

if TYPE_CHECKING:
    from fedpriv.privacy.adjacency import Adjacency
    from fedpriv.privacy.mechanisms import Mechanism

_LAPLACE = (L2LaplaceMechanism, L1LaplaceMechanism, UnsoundLaplaceMechanism)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalNoise:
    """Noise that a party adds to its own answer, for parties who trust nobody with a sum.

    The baselines of the literature. Every record belongs to one party, and what leaves that party
    is already private, so the whole has the guarantee of one party (parallel composition; McSherry
    2009). The sum then carries the noise of all parties.

    Attributes:
        law: The distribution.
        relative_noise: Standard deviation / sensitivity for the Gaussian, 1/ε for the others.
        adjacency: The adjacency of the sensitivity.
        unit: The unit of the sensitivity.
    """

    law: Law
    relative_noise: float
    adjacency: Adjacency
    unit: Unit = DEFAULT_UNIT

    def __post_init__(self) -> None:
        require_choice(LAWS, law=self.law)
        require_positive(relative_noise=self.relative_noise)

    @classmethod
    def like(cls, mechanism: Mechanism) -> LocalNoise:
        """The law of ``mechanism``, for parties to calibrate to their own answers."""
        match mechanism:
            case GaussianMechanism():
                relative = mechanism.stddev / mechanism.sensitivity
            case L2LaplaceMechanism() | L1LaplaceMechanism() | UnsoundLaplaceMechanism():
                relative = 1 / mechanism.epsilon
            case _:
                raise ValueError(f"law must be one of {', '.join(LAWS)}; got {mechanism.name!r}.")
        law = next(law for law in LAWS if law == mechanism.name)
        return cls(
            law=law, relative_noise=relative, adjacency=mechanism.adjacency, unit=mechanism.unit
        )

    def mechanism(self, *, sensitivity: float, dimension: int) -> Mechanism:
        """The mechanism for an answer of ``sensitivity`` in L2."""
        if self.law == "gaussian":
            return GaussianMechanism(
                sensitivity=sensitivity,
                stddev=self.relative_noise * sensitivity,
                adjacency=self.adjacency,
                unit=self.unit,
            )
        kind = {laplace.name: laplace for laplace in _LAPLACE}[self.law]
        return kind(
            sensitivity=sensitivity,
            epsilon=1 / self.relative_noise,
            dimension=dimension,
            adjacency=self.adjacency,
            unit=self.unit,
        )


def sensitivity_of(mechanism: Mechanism) -> float:
    """The L2 sensitivity that a mechanism is calibrated to."""
    if isinstance(mechanism, (GaussianMechanism, *_LAPLACE)):
        return mechanism.sensitivity
    raise ValueError(f"the {mechanism.name} mechanism states no single L2 sensitivity.")


def rescaled(mechanism: Mechanism, *, sensitivity: float) -> Mechanism:
    """The same law at the same cost, for a sum of another L2 ``sensitivity``."""
    planned = sensitivity_of(mechanism)
    if isinstance(mechanism, GaussianMechanism):
        relative = mechanism.stddev / planned
        return replace(mechanism, sensitivity=sensitivity, stddev=relative * sensitivity)
    return replace(mechanism, sensitivity=sensitivity)  # type: ignore[call-arg]
