"""Privacy events: inert descriptions of one release, and the only road to accounting.

An event says what an accountant needs to know about one use of a mechanism, and nothing else: no
data, no clip norm, no behaviour. Rules of evolution: the meaning of an event never changes; a new
meaning gets a new class; an accountant that does not know an event refuses it.

All noise is stated relative to sensitivity, so that an event cannot be misread under another unit.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from fedpriv._validate import (
    require_choice,
    require_count,
    require_open_unit,
    require_positive,
)
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.conversions import subsampled_pure_epsilon
from fedpriv.privacy.trial_count import TrialCount, require_law
from fedpriv.privacy.unit import DEFAULT_UNIT, Unit

SMALLEST_SHARE_STDDEV = 2.0
MOST_PARTS = 1000
"""At most so many parties per person with sampling: pricing takes memory for each of them."""
TRIALS_RULE = "truncated-negative-binomial"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One release, under a stated adjacency and for a stated unit of privacy. Use a subclass."""

    kind: ClassVar[str]
    adjacency: Adjacency
    unit: Unit = DEFAULT_UNIT

    def __post_init__(self) -> None:
        # A string such as "replace-one" is accepted and becomes the enum, or is refused by name.
        object.__setattr__(self, "adjacency", Adjacency(self.adjacency))
        object.__setattr__(self, "unit", Unit(self.unit))

    def to_dict(self) -> dict[str, Any]:
        """The event as JSON-ready values; `fedpriv.privacy.written_events` reads them."""
        return {"kind": self.kind, **asdict(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianEvent(Event):
    """Gaussian noise on a vector: ``relative_noise`` = standard deviation / L2 sensitivity.

    Exactly μ-GDP with μ = 1 / relative_noise (Dong, Roth and Su 2022, Thm. 1).
    """

    kind: ClassVar[str] = "gaussian"
    relative_noise: float

    def __post_init__(self) -> None:
        Event.__post_init__(self)
        require_positive(relative_noise=self.relative_noise)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoissonGaussianEvent(Event):
    """A Gaussian release on a Poisson sample: every record joins with ``sampling_rate``.

    ``relative_noise`` is that of the release on the sample: standard deviation / clip norm.
    Analysed under add-remove adjacency only.
    """

    kind: ClassVar[str] = "poisson-gaussian"
    relative_noise: float
    sampling_rate: float

    def __post_init__(self) -> None:
        Event.__post_init__(self)
        require_positive(relative_noise=self.relative_noise)
        require_open_unit(sampling_rate=self.sampling_rate)
        _require_add_remove(self.adjacency)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoissonPartsEvent(Event):
    """A Gaussian release on Poisson samples, several of which may hold a unit, by separate coins.

    A person has records at ``parts`` parties, each of which samples persons with ``sampling_rate``
    by itself. ``relative_noise`` is that of the release with all parts in it: standard deviation /
    L2 sensitivity, of which every part has at most an equal share. Analysed under add-remove
    adjacency only.
    """

    kind: ClassVar[str] = "poisson-parts-gaussian"
    relative_noise: float
    sampling_rate: float
    parts: int

    def __post_init__(self) -> None:
        Event.__post_init__(self)
        require_positive(relative_noise=self.relative_noise)
        require_open_unit(sampling_rate=self.sampling_rate)
        require_count(parts=self.parts)
        if self.parts > MOST_PARTS:
            raise ValueError(f"parts must be at most {MOST_PARTS}, got {self.parts!r}.")
        _require_add_remove(self.adjacency)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaplaceEvent(Event):
    """Laplace noise on one number: ``relative_noise`` = scale / sensitivity; ε = 1 / it.

    For one coordinate the whole privacy-loss distribution is known, which composes better than
    ε alone. Vectors use `PureEvent`.
    """

    kind: ClassVar[str] = "laplace"
    relative_noise: float

    def __post_init__(self) -> None:
        Event.__post_init__(self)
        require_positive(relative_noise=self.relative_noise)

    @property
    def pure_epsilon(self) -> float:
        """The ε of the release: sensitivity / scale."""
        return 1 / self.relative_noise


@dataclass(frozen=True, slots=True, kw_only=True)
class PureEvent(Event):
    """Any ε-DP release: only ε is assumed, so the worst such mechanism is charged."""

    kind: ClassVar[str] = "pure"
    epsilon: float

    def __post_init__(self) -> None:
        Event.__post_init__(self)
        require_positive(epsilon=self.epsilon)

    @property
    def pure_epsilon(self) -> float:
        """The ε of the release."""
        return self.epsilon


@dataclass(frozen=True, slots=True, kw_only=True)
class PoissonPureEvent(Event):
    """An ε-DP release on a Poisson sample. Add-remove adjacency only."""

    kind: ClassVar[str] = "poisson-pure"
    epsilon: float
    sampling_rate: float

    def __post_init__(self) -> None:
        Event.__post_init__(self)
        require_positive(epsilon=self.epsilon)
        require_open_unit(sampling_rate=self.sampling_rate)
        _require_add_remove(self.adjacency)

    @property
    def pure_epsilon(self) -> float:
        """The ε after amplification by sampling: ln(1 − q + q·e^ε)."""
        return subsampled_pure_epsilon(epsilon=self.epsilon, sampling_rate=self.sampling_rate)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundedRangeEvent(Event):
    """An exponential-mechanism selection: ε-DP, with a privacy loss whose *range* is ε.

    The range gives ε²/8-zCDP, four times better than an arbitrary ε-DP release (Cesar and Rogers
    2021; Durfee and Rogers 2019).
    """

    kind: ClassVar[str] = "bounded-range"
    epsilon: float

    def __post_init__(self) -> None:
        Event.__post_init__(self)
        require_positive(epsilon=self.epsilon)

    @property
    def pure_epsilon(self) -> float:
        """The ε of the release."""
        return self.epsilon


@dataclass(frozen=True, slots=True, kw_only=True)
class ZcdpEvent(Event):
    """A release known to be ρ-zCDP, such as discrete Gaussian noise: ρ = Δ²/(2σ²).

    Canonne, Kamath and Steinke 2020, Thm. 4: the discrete Gaussian has the zCDP of the continuous
    one, coordinate by coordinate, hence for vectors with Δ in L2. It is *not* exactly GDP.
    """

    kind: ClassVar[str] = "zcdp"
    rho: float

    def __post_init__(self) -> None:
        Event.__post_init__(self)
        require_positive(rho=self.rho)


@dataclass(frozen=True, slots=True, kw_only=True)
class SkellamEvent(Event):
    """Symmetric Skellam noise of ``variance`` on integers, with both integer sensitivities.

    RDP by Agarwal, Kairouz and Liu 2021, Thm. 3.5, for integer orders.
    """

    kind: ClassVar[str] = "skellam"
    variance: float
    l1_sensitivity: float
    l2_sensitivity: float

    def __post_init__(self) -> None:
        Event.__post_init__(self)
        require_positive(
            variance=self.variance,
            l1_sensitivity=self.l1_sensitivity,
            l2_sensitivity=self.l2_sensitivity,
        )
        _require_norms(self.l1_sensitivity, self.l2_sensitivity)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoissonSkellamEvent(SkellamEvent):
    """Skellam noise on a Poisson sample: see `fedpriv.privacy.accountants.sampled_shares`."""

    kind: ClassVar[str] = "poisson-skellam"
    sampling_rate: float

    def __post_init__(self) -> None:
        SkellamEvent.__post_init__(self)
        require_open_unit(sampling_rate=self.sampling_rate)
        _require_add_remove(self.adjacency)


@dataclass(frozen=True, slots=True, kw_only=True)
class DistributedGaussianEvent(Event):
    """A sum of ``shares`` discrete Gaussians N_ℤ(0, share_stddev²) on every coordinate of integers.

    Such a sum is close to a discrete Gaussian but not one: RDP by Kairouz, Liu and Steinke 2021,
    Prop. 12, in both integer sensitivities and the ``dimension``. The theorem holds from ½ on; a
    share below 2 is refused, because the distance that it pays for is then no longer negligible.
    """

    kind: ClassVar[str] = "distributed-gaussian"
    shares: int
    share_stddev: float
    l1_sensitivity: float
    l2_sensitivity: float
    dimension: int

    def __post_init__(self) -> None:
        Event.__post_init__(self)
        require_count(shares=self.shares, dimension=self.dimension)
        require_positive(
            share_stddev=self.share_stddev,
            l1_sensitivity=self.l1_sensitivity,
            l2_sensitivity=self.l2_sensitivity,
        )
        _require_norms(self.l1_sensitivity, self.l2_sensitivity)
        if self.share_stddev < SMALLEST_SHARE_STDDEV:
            raise ValueError(
                f"share_stddev must be at least {SMALLEST_SHARE_STDDEV:g}, got "
                f"{self.share_stddev!r}: sums of narrower discrete Gaussians are too far from one. "
                "Choose a finer grid, or Skellam shares."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ApproximateEvent(Event):
    """Any (ε, δ)-DP release: only the pair is assumed.

    It composes by adding up ε and δ, and no better. It has no Rényi divergence and no Gaussian
    equivalent, because with probability δ anything may happen.
    """

    kind: ClassVar[str] = "approximate"
    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        Event.__post_init__(self)
        require_positive(epsilon=self.epsilon)
        require_open_unit(delta=self.delta)


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningEvent(Event):
    """The best of a random number of trials, each μ-GDP; nothing of the others is released.

    A trial draws one of the stated settings at random, with replacement, trains with it and scores
    the result, all within ``base_mu``. The number of trials has the distribution of ``rule``, with
    ``eta`` and ``gamma``, and is not released: `fedpriv.privacy.tuning_profile` has the price.
    """

    kind: ClassVar[str] = "tuning"
    base_mu: float
    eta: float
    gamma: float
    rule: str = TRIALS_RULE

    def __post_init__(self) -> None:
        Event.__post_init__(self)
        require_positive(base_mu=self.base_mu)
        require_law(eta=self.eta, gamma=self.gamma)
        require_choice((TRIALS_RULE,), rule=self.rule)

    @property
    def law(self) -> TrialCount:
        """The distribution of the number of trials."""
        return TrialCount(eta=self.eta, gamma=self.gamma)


def require_same_terms(event: Event, *, adjacency: Adjacency, unit: Unit, adds: str) -> None:
    """Refuse an event whose adjacency or unit differs from what ``adds`` up."""
    if event.adjacency is not adjacency:
        raise ValueError(
            f"adjacency of the event is {event.adjacency.value!r}, but {adds} "
            f"{adjacency.value!r}: guarantees under different adjacencies do not add up."
        )
    if event.unit is not unit:
        raise ValueError(
            f"unit of the event is {event.unit.value!r}, but {adds} {unit.value!r}: a guarantee "
            f"for {event.unit.words} and one for {unit.words} do not add up."
        )


def _require_norms(l1: float, l2: float) -> None:
    if l1 < l2:
        raise ValueError(f"l1_sensitivity must be at least l2_sensitivity = {l2!r}, got {l1!r}.")


def _require_add_remove(adjacency: Adjacency) -> None:
    if adjacency is not Adjacency.ADD_REMOVE:
        raise ValueError(
            f"adjacency must be 'add-remove' with Poisson sampling, got {adjacency.value!r}: "
            "replacing a record is two steps of add-remove. Use add-remove adjacency and, for a "
            "replace-one guarantee, group privacy with 2 records."
        )
