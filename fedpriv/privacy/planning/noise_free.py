"""Noise-free runs (ε = ∞), for study: a placeholder for a plan, without any guarantee.

The twin of a private run: the same queries, clipping, sampling and steps, and no noise. The loss of
the private run relative to its twin is the price of noise; that of the twin relative to the exact
model is the price of clipping and of too little training. Settings that follow from a budget are
those of the private run whose twin it is; a run without noise that is nobody's twin takes the
settings that suit no noise.

Guarantee: none, and nothing here can be mistaken for one. A `NoiseFree` is no `Plan`: it has
neither mechanism nor event nor ε, so that a ledger has nothing to reserve, a statement nothing to
state and a deployed party nothing to accept; a strategy refuses it in a release.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedpriv._validate import require_positive, require_rate


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseFree:
    """Rounds, grid and sampling of a run without noise.

    >>> twin = NoiseFree(step=2.0**-50, rates=(0.1,) * 20, clip_norm=1.0)
    >>> twin.rounds, twin.mechanisms[0]
    (20, None)

    Attributes:
        step: width of the fixed-point grid of a sum: as fine as fits, no sensitivity rests on it.
        rates: Poisson rate of the records of each round; 1 is full batch.
        clip_norm: bound on the norm of one record's gradient, if gradients are asked for.
    """

    step: float
    rates: tuple[float, ...] = (1.0,)
    clip_norm: float | None = None

    def __post_init__(self) -> None:
        require_positive(step=self.step)
        if self.clip_norm is not None:
            require_positive(clip_norm=self.clip_norm)
        if not self.rates:
            raise ValueError("rates must hold at least one round, got none.")
        for rate in set(self.rates):
            require_rate(rates=rate)

    @property
    def rounds(self) -> int:
        """The number of sums asked for."""
        return len(self.rates)

    @property
    def mechanisms(self) -> tuple[None, ...]:
        """The noise of every round: none."""
        return (None,) * self.rounds

    def rate(self, index: int) -> float:
        """The sampling rate of round ``index``."""
        return self.rates[index]
