"""Claims about NVIDIA FLARE's privacy filters: percentile, sparse vector, statistics cleansers.

As nvflare 2.9.0 has it, in `nvflare.app_common.filters` and `nvflare.app_common.statistics`.
Filters work on what one site sends; the unit is all records of that site.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import ClassVar

from fedpriv._validate import require_choice, require_count, require_positive, require_rate
from fedpriv.audit.claims.laplace import pure_epsilon
from fedpriv.audit.claims.verdict import Claim, Verdict

READ = "nvflare 2.9.0"
UNIT = "all records of one site"
_FLOATS = (
    "noise is double precision from NumPy's global generator, which is no cryptographic one: the "
    "last digits of Laplace noise in floating point can betray what it hides"
)
_STEPS = (
    "what is sent is multiplied by the number of local steps, which is taken to be public and the "
    "same for both of two neighbours"
)
_CLEANSERS = {
    "min-count": "It leaves out what has too few records, and sends the rest exactly.",
    "histogram-bins": "It limits how many bins a histogram has, and sends their counts exactly.",
    "min-max": (
        "It moves a minimum or maximum by a random share of itself, of bounded range: what lies "
        "outside of that range tells two tables apart for certain."
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NvflarePercentile(Claim):
    """`PercentilePrivacy`: the largest changes of a model, cut off at gamma."""

    kind: ClassVar[str] = "nvflare-percentile"
    about: ClassVar[str] = "NVFlare's PercentilePrivacy filter"
    source: ClassVar[str] = READ
    percentile: float = 10.0
    gamma: float = 0.01

    def __post_init__(self) -> None:
        Claim.__post_init__(self)
        require_positive(gamma=self.gamma)

    def judged(self) -> Verdict:
        """There is no noise in it."""
        return self.not_private(
            unit=UNIT,
            reason=(
                "The filter drops small changes and cuts off large ones, and has no random "
                "numbers: two sets of records whose filtered changes differ are told apart for "
                "certain."
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NvflareStatistics(Claim):
    """Cleansers of federated statistics.

    Attributes:
        cleanser: "min-count", "histogram-bins" or "min-max".
    """

    kind: ClassVar[str] = "nvflare-statistics"
    about: ClassVar[str] = "NVFlare's cleansers of statistics: min-count, histogram-bins, min-max"
    source: ClassVar[str] = READ
    cleanser: str

    def __post_init__(self) -> None:
        Claim.__post_init__(self)
        require_choice(tuple(_CLEANSERS), cleanser=self.cleanser)

    def judged(self) -> Verdict:
        """None of them adds noise that hides a record."""
        return self.not_private(unit=UNIT, reason=_CLEANSERS[self.cleanser])


@dataclass(frozen=True, slots=True, kw_only=True)
class NvflareSvt(Claim):
    """`SVTPrivacy`: a noisy threshold, noisy answers above it, and Laplace noise on what is sent.

    A call picks c = fraction·d of d changes, each cut off at gamma. Its parameter ``epsilon`` pays
    for picking alone, in two parts; what is sent costs ``epsilon_release``, which is c·noise_var if
    it is not given. The noise of picking is made for c answers above the threshold, but a pass does
    not stop at the c-th: all that are above are kept, up to d, and c of them drawn. The proof of
    the sparse vector technique then pays for d: ε of the threshold + ε of the queries · d / c.

    Attributes:
        parameters: d, how many numbers the model has.
        fraction, mechanism_epsilon, noise_var: `fraction`, `epsilon` and `noise_var` of the filter.
        epsilon_threshold, epsilon_query, epsilon_release: As the filter is given them.
        rounds: How many calls.
        scalars: Whether the model has parameters that are single numbers.
    """

    kind: ClassVar[str] = "nvflare-svt"
    about: ClassVar[str] = "NVFlare's SVTPrivacy filter"
    source: ClassVar[str] = READ
    parameters: int
    fraction: float = 0.1
    mechanism_epsilon: float = 0.1
    noise_var: float = 0.1
    epsilon_threshold: float | None = None
    epsilon_query: float | None = None
    epsilon_release: float | None = None
    rounds: int = 1
    scalars: bool = False

    def __post_init__(self) -> None:
        Claim.__post_init__(self)
        require_count(parameters=self.parameters, rounds=self.rounds)
        require_rate(fraction=self.fraction)
        require_positive(mechanism_epsilon=self.mechanism_epsilon, noise_var=self.noise_var)
        threshold, query = self.split
        require_positive(epsilon_threshold=threshold, epsilon_query=query, release=self.release)

    @property
    def sent(self) -> int:
        """c: how many changes are sent."""
        return min(ceil(self.parameters * self.fraction), self.parameters)

    @property
    def split(self) -> tuple[float, float]:
        """ε of the threshold and of the queries, as the filter makes them."""
        whole, threshold, query = (
            self.mechanism_epsilon,
            self.epsilon_threshold,
            self.epsilon_query,
        )
        if threshold is None and query is None:
            threshold = whole / (1 + (2 * self.sent) ** (2 / 3))
        if threshold is None:
            threshold = whole - (query or 0.0)
        return threshold, whole - threshold if query is None else query

    @property
    def release(self) -> float:
        """ε of what is sent."""
        return self.sent * self.noise_var if self.epsilon_release is None else self.epsilon_release

    def judged(self) -> Verdict:
        """By what a call really pays for, added up over the rounds."""
        notes = (_FLOATS, _STEPS)
        if self.scalars:
            reason = "Parameters that are single numbers are sent as they are, without noise."
            return self.not_private(unit=UNIT, reason=reason, notes=notes)
        threshold, query = self.split
        kept = self.parameters / self.sent
        once = threshold + query * kept + self.release
        epsilon, method = pure_epsilon(once, rounds=self.rounds, delta=self.delta)
        reason = (
            f"The parameter epsilon = {self.mechanism_epsilon:g} pays for picking {self.sent} of "
            f"{self.parameters} changes; what is sent of them costs {self.release:.6g} more in "
            f"every round. And a pass keeps all changes above the threshold, not {self.sent}: the "
            f"queries cost up to {kept:.4g} times what was set aside. One call: ε ≤ {once:.6g}."
        )
        return self.verdict(
            epsilon,
            unit=UNIT,
            method=method,
            reason=reason,
            notes=notes,
            # Changes of +gamma and of -gamma are picked alike, and told apart by all that is sent.
            at_least=self.rounds * self.release if self.delta == 0 else 0.0,
        )
