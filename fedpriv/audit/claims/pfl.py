"""Claims about pfl-research: central Gaussian noise, simulated or scaled to a larger cohort.

As pfl 0.6.0 has it, in `pfl.privacy` and `pfl.data.sampling`. Its accountants assume Poisson
samples of users and find the noise for that; a simulation multiplies it by ``noise_scale`` ≤ 1, as
if its cohort were as large as that of a deployment, and draws a cohort of a fixed size.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

from fedpriv._validate import (
    require_choice,
    require_count,
    require_open_unit,
    require_positive,
    require_rate,
)
from fedpriv.audit.claims.gaussian import (
    Proved,
    gaussian_epsilon,
    poisson_epsilon,
    proved,
)
from fedpriv.audit.claims.participation import METHOD, participation_epsilon
from fedpriv.audit.claims.verdict import REPLACE_ONE, ZERO_OUT, Claim, Verdict

_RANDOM, _POISSON, _CYCLE = "random", "poisson", "minimize_reuse"


@dataclass(frozen=True, slots=True, kw_only=True)
class PflClaim(Claim):
    """`GaussianMechanism.from_privacy_accountant` on cohorts of users.

    Attributes:
        noise_parameter: As the accountant has it, given or found: standard deviation / clip norm.
        noise_scale: As the accountant has it.
        population: How many users there are.
        cohort_size: How many a round has.
        rounds: `num_compositions`.
        sampler: How a cohort is drawn: "random" (pfl's: one user after another, with replacement),
            "minimize_reuse" (pfl's: in a circle), or "poisson", of a deployment that does so.
    """

    kind: ClassVar[str] = "pfl"
    about: ClassVar[str] = "pfl-research's central Gaussian mechanism, in a simulation or deployed"
    source: ClassVar[str] = "pfl 0.6.0"
    noise_parameter: float
    noise_scale: float = 1.0
    population: int
    cohort_size: int
    rounds: int
    sampler: str = _RANDOM

    def __post_init__(self) -> None:
        Claim.__post_init__(self)
        require_positive(noise_parameter=self.noise_parameter)
        require_rate(noise_scale=self.noise_scale)
        require_count(population=self.population, cohort_size=self.cohort_size, rounds=self.rounds)
        require_open_unit(delta=self.delta)
        require_choice((_RANDOM, _POISSON, _CYCLE), sampler=self.sampler)
        if not self.cohort_size < self.population:
            raise ValueError(
                f"cohort_size must be below population = {self.population}, got {self.cohort_size}."
            )

    def judged(self) -> Verdict:
        """By the noise that is drawn, and by how cohorts are."""
        found = self._proved()
        reason = found.reason
        if self.noise_scale < 1:
            reason = (
                f"The noise that is drawn is {self.noise_scale:g} of what the accountant was asked "
                "about: its ε is that of a larger cohort, which was not run. " + reason
            )
        notes = (
            "noise is drawn in floating point by the framework's own generator, with a seed",
            "weights of users are taken to be in the statistics before they are clipped",
        )
        return self.verdict(
            found.epsilon,
            unit="one user with all their records",
            method=found.method,
            reason=reason,
            notes=notes,
            at_least=found.at_least,
        )

    def _proved(self) -> Proved:
        noise, rate = self.noise_parameter * self.noise_scale, self.cohort_size / self.population
        if self.sampler == _POISSON:
            return proved(
                noise=noise,
                rounds=self.rounds,
                sampling=_POISSON,
                rate=rate,
                adjacency=self.adjacency,
                delta=self.delta,
            )
        moved = 1 if self.adjacency == ZERO_OUT else 2
        poisson, _ = poisson_epsilon(noise=noise, rounds=self.rounds, rate=rate, delta=self.delta)
        assumed = (
            f"Accounted for as Poisson samples with the noise drawn, it would be {poisson:.4g}."
        )
        if self.sampler == _CYCLE:
            return self._in_a_circle(noise, assumed)
        epsilon = participation_epsilon(
            relative_noise=noise / moved,
            rounds=self.rounds,
            draws=self.cohort_size,
            chance=1 / self.population,
            delta=self.delta,
        )
        reason = (
            f"A cohort is {self.cohort_size} draws with replacement: a user may be in it twice, "
            f"and a draw that is not theirs is another's. {assumed}"
        )
        bound = inf if epsilon is None else epsilon
        return Proved(epsilon=bound, method=METHOD, reason=reason, at_least=0.0)

    def _in_a_circle(self, noise: float, assumed: str) -> Proved:
        """Users take turns: nothing about who takes part is random."""
        turns = -(-self.rounds * self.cohort_size // self.population)
        if self.adjacency not in (ZERO_OUT, REPLACE_ONE):
            reason = (
                "Users take turns: one more or less moves all who come after to other rounds, and "
                f"no sum stays what it was. {assumed}"
            )
            return Proved(epsilon=inf, method="none", reason=reason, at_least=0.0)
        moved = 1 if self.adjacency == ZERO_OUT else 2
        epsilon, method = gaussian_epsilon(
            relative_noise=noise / moved, rounds=turns, delta=self.delta
        )
        reason = (
            f"Users take turns, {turns} each at most: nothing about who takes part is random, and "
            f"nothing is amplified. {assumed}"
        )
        return Proved(epsilon=epsilon, method=method, reason=reason)
