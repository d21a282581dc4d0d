"""Claims about Flower's differential privacy: fixed and adaptive clipping, and the local modifier.

As flwr 1.41.0 has it, in `flwr.serverapp.strategy`, `flwr.clientapp.mod` and
`flwr.supercore.differential_privacy`. A client's update is clipped to C, replies are averaged with
weights in proportion to a number that each client reports, and noise of standard deviation
z·C / (planned clients) is added to the average. The unit is one client, with all its records.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log, sqrt
from typing import ClassVar

from scipy.special import ndtri

from fedpriv._validate import (
    require_count,
    require_non_negative,
    require_open_unit,
    require_positive,
    require_rate,
)
from fedpriv.audit.claims.gaussian import gaussian_epsilon
from fedpriv.audit.claims.participation import METHOD, participation_epsilon
from fedpriv.audit.claims.verdict import ZERO_OUT, Claim, Verdict

READ = "flwr 1.41.0"
UNIT = "one client with all its records"
_NOTES = (
    (
        "an update with a NaN in it passes Flower's clipping, and one that is zero divides by "
        "zero: what is proved holds for updates that are finite and not zero"
    ),
    (
        "the noise is double precision from NumPy's global generator, which is no cryptographic "
        "one: who learns its state, or reads the last digits, can remove it"
    ),
    "metrics and numbers of examples that clients send are outside the guarantee",
    (
        "clipping at the server, or at the client, is the same to who sees the model; the server "
        "itself sees every update in both cases unless answers are masked"
    ),
)
_ALL_REPLY = (
    "all sampled clients are assumed to reply: with fewer, Flower continues with the noise that "
    "it planned, on an average and a fraction that vary more"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowerClaim(Claim):
    """What is common to Flower's central strategies.

    Attributes:
        noise_multiplier: As the strategy is given it.
        sampled_clients: `num_sampled_clients`, by which the noise is divided.
        rounds: How many.
        clients: From how many the sampled ones are drawn; all take part if it is not given.
        largest_weight: The largest share that one reply may have in an average: 1 / sampled_clients
            if all clients report the same number of examples.
    """

    source: ClassVar[str] = READ
    noise_multiplier: float
    sampled_clients: int
    rounds: int
    clients: int | None = None
    largest_weight: float | None = None

    def __post_init__(self) -> None:
        Claim.__post_init__(self)
        require_positive(noise_multiplier=self.noise_multiplier)
        require_count(sampled_clients=self.sampled_clients, rounds=self.rounds)
        require_open_unit(delta=self.delta)
        require_rate(largest_weight=self.weight)
        if self.clients is not None and self.clients < self.sampled_clients:
            raise ValueError(
                f"clients must be at least sampled_clients = {self.sampled_clients}, got "
                f"{self.clients!r}."
            )
        if self.weight * self.sampled_clients < 1 - 1e-9:
            raise ValueError(
                f"largest_weight must be at least 1 / sampled_clients = "
                f"{1 / self.sampled_clients:.6g}, got {self.weight!r}: shares add up to 1."
            )

    @property
    def weight(self) -> float:
        """The largest share of a reply."""
        return 1 / self.sampled_clients if self.largest_weight is None else self.largest_weight

    @property
    def moved(self) -> float:
        """By how many C / sampled_clients one client moves an average."""
        return self.weight * self.sampled_clients * (1 if self.adjacency == ZERO_OUT else 2)

    @property
    def why(self) -> str:
        """What one client can do to an average, and so what the noise multiplier really is."""
        told = [
            (
                f"The noise is {self.noise_multiplier:g}·C/{self.sampled_clients} on the average, "
                f"and one client can move the average by {self.moved:.4g}·C/{self.sampled_clients}."
            )
        ]
        if self.adjacency != ZERO_OUT:
            told.append(
                "The average is over those who reply, and a cohort has a fixed size: if one "
                "client is another, or is gone, the place and weight are filled by others, and it "
                "moves by up to twice the clipped share."
            )
        if self.weight * self.sampled_clients > 1 + 1e-9:
            told.append(
                f"Replies are weighted by examples, and one may weigh {self.weight:.4g} where the "
                f"noise is made for {1 / self.sampled_clients:.4g}."
            )
        return " ".join(told)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowerFixed(FlowerClaim):
    """`DifferentialPrivacyServerSideFixedClipping` and `…ClientSide…` with `fixedclipping_mod`."""

    kind: ClassVar[str] = "flower-fixed-clipping"
    about: ClassVar[str] = "Flower's central DP with fixed clipping, at server or client side"

    def judged(self) -> Verdict:
        """Cohorts of a fixed size are not Poisson samples: the bound counts the draws."""
        relative = self.noise_multiplier / self.moved
        if self.clients in (None, self.sampled_clients):
            epsilon, method = gaussian_epsilon(
                relative_noise=relative, rounds=self.rounds, delta=self.delta
            )
            return self.verdict(epsilon, unit=UNIT, method=method, reason=self.why, notes=_NOTES)
        drawn = participation_epsilon(
            relative_noise=relative,
            rounds=self.rounds,
            draws=1,
            chance=self.sampled_clients / (self.clients or self.sampled_clients),
            delta=self.delta,
        )
        reason = f"{self.why} Cohorts of a fixed size are not Poisson samples: no amplification."
        return self.verdict(
            drawn, unit=UNIT, method=METHOD, reason=reason, notes=_NOTES, at_least=0.0
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowerAdaptive(FlowerClaim):
    """`DifferentialPrivacyServerSideAdaptiveClipping`, `…ClientSide…` with `adaptiveclipping_mod`.

    Of a round with a noisy fraction f of clipped updates, the update had norm C and gets noise for
    C·exp(−rate·(f − quantile)), the norm of the next round: it is drawn after the norm has moved.
    The count of clipped updates, from which f follows, gets noise of ``count_stddev``, and one
    client moves it by 1; the split of the noise counts it as ½. ``clients`` is not used: nothing is
    amplified.

    Proof of the bound. f is published with the round, before the noise of its update is drawn,
    hence a round is at most μ-GDP with μ² = moved²·exp(2·rate·(f − quantile)) / z_Δ² + 1 /
    count_stddev², as long as f is no more than a. f − (at most 1) is Gaussian: with a = 1 +
    count_stddev · Φ⁻¹(1 − δ/(10·rounds)) / clients no f is above, but for a probability of δ/10 in
    all, which is taken from δ. ∎
    """

    kind: ClassVar[str] = "flower-adaptive-clipping"
    about: ClassVar[str] = "Flower's central DP with adaptive clipping, at server or client side"
    target_quantile: float = 0.5
    clip_norm_lr: float = 0.2
    count_stddev: float | None = None

    def __post_init__(self) -> None:
        FlowerClaim.__post_init__(self)
        require_positive(clip_norm_lr=self.clip_norm_lr, count_stddev=self.counted)
        require_non_negative(target_quantile=self.target_quantile)
        if self.noise_multiplier >= 2 * self.counted:
            raise ValueError(
                f"count_stddev must be above noise_multiplier / 2, got {self.counted!r}: Flower "
                "refuses it. State it, or more sampled_clients, of which it is a twentieth."
            )

    @property
    def counted(self) -> float:
        """Standard deviation of the noise on the count of clipped updates."""
        return self.sampled_clients / 20 if self.count_stddev is None else self.count_stddev

    @property
    def update_noise(self) -> float:
        """z_Δ: what Flower makes of the noise multiplier, for the update alone."""
        return float((self.noise_multiplier**-2 - (2 * self.counted) ** -2) ** -0.5)

    @property
    def highest_fraction(self) -> float:
        """a: no noisy fraction is above it, but with probability δ/10 in all rounds together."""
        tail = -float(ndtri(self.delta / (10 * self.rounds)))
        return 1 + self.counted * tail / self.sampled_clients

    def judged(self) -> Verdict:
        """By the noise as it is drawn, in the worst course of the clip norm."""
        shrunk = exp(-self.clip_norm_lr * max(self.highest_fraction - self.target_quantile, 0.0))
        mu = sqrt((self.moved / (self.update_noise * shrunk)) ** 2 + self.counted**-2)
        epsilon, method = gaussian_epsilon(
            relative_noise=1 / mu, rounds=self.rounds, delta=0.9 * self.delta
        )
        reason = (
            f"{self.why} The noise on the update is made for the clip norm of the next round, "
            f"which may be {shrunk:.3g} of the one it was clipped to; and one client moves the "
            "count of clipped updates by 1, where the noise is split as if it were ½."
        )
        return self.verdict(
            epsilon,
            unit=UNIT,
            method=f"{method}, in the worst course",
            reason=reason,
            notes=(*_NOTES, _ALL_REPLY),
            at_least=0.0,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowerLocal(Claim):
    """`LocalDpMod`: a client clips its update, and adds noise before it sends it.

    Attributes:
        clipping_norm: As the modifier is given it.
        sensitivity: As the modifier is given it; noise is made for it, whatever the clip norm is.
        mod_epsilon: `epsilon` of the modifier, of which the noise of a round follows.
        mod_delta: `delta` of the modifier.
        rounds: In how many rounds one client answers.
    """

    kind: ClassVar[str] = "flower-local-dp"
    about: ClassVar[str] = "Flower's LocalDpMod"
    source: ClassVar[str] = READ
    clipping_norm: float
    sensitivity: float
    mod_epsilon: float
    mod_delta: float
    rounds: int = 1

    def __post_init__(self) -> None:
        Claim.__post_init__(self)
        require_positive(
            clipping_norm=self.clipping_norm,
            sensitivity=self.sensitivity,
            mod_epsilon=self.mod_epsilon,
        )
        require_open_unit(mod_delta=self.mod_delta, delta=self.delta)
        require_count(rounds=self.rounds)

    def judged(self) -> Verdict:
        """By the noise that the modifier draws, against what an update can be."""
        stddev = self.sensitivity * sqrt(2 * log(1.25 / self.mod_delta)) / self.mod_epsilon
        moved = self.clipping_norm * (1 if self.adjacency == ZERO_OUT else 2)
        epsilon, method = gaussian_epsilon(
            relative_noise=stddev / moved, rounds=self.rounds, delta=self.delta
        )
        told = [
            (
                f"Noise of √(2·ln(1.25/δ))·sensitivity/ε = {stddev:.4g} is on an update of norm up "
                f"to {self.clipping_norm:g}, and two such updates may be {moved:g} apart."
            )
        ]
        if moved > self.sensitivity * (1 + 1e-9):
            told.append(f"The stated sensitivity is {self.sensitivity:g}.")
        if self.mod_epsilon > 1:
            told.append("The formula is proved for ε ≤ 1 alone.")
        if self.rounds > 1:
            told.append(f"It is the noise of one round, and there are {self.rounds}.")
        return self.verdict(
            epsilon, unit=UNIT, method=method, reason=" ".join(told), notes=_NOTES[:3]
        )
