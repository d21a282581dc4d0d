"""From a budget to noise: root-finding, then proof by accounting, rounding towards privacy."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from math import exp, inf, log, sqrt
from typing import TYPE_CHECKING

from scipy.optimize import brentq

from fedpriv._validate import (
    require_choice,
    require_count,
    require_delta,
    require_positive,
    require_rate,
)
from fedpriv.privacy.accountants import ACCOUNTANTS, UnsupportedEvent, account, best_accountant
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.gaussian import gdp_mu
from fedpriv.privacy.planning.releases import gaussian_releases, laplace_releases, on_levels
from fedpriv.privacy.unit import DEFAULT_UNIT, Unit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fedpriv.privacy.planning.releases import Releases

MECHANISMS = ("gaussian", "laplace")
# Numerical accounting takes about a second per call; noise is computed to this precision only.
_COARSE, _FINE = 1e-5, 1e-13
_FEW_LEVELS, _SOME_LEVELS = 5, 50  # of distinct noise, for a first guess and for a second one
_MOST_NOISE = 1e12


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Noise that keeps a run within a budget, with the accounting that proves it.

    ``noise_multiplier`` is standard deviation on the sum / clip norm (Gaussian), or scale /
    sensitivity (Laplace); ``noise_multipliers`` has one per round. ``epsilon`` is what the
    accountant finds for them, at most the ε that was asked for.
    """

    mechanism: str
    noise_multiplier: float
    noise_multipliers: tuple[float, ...]
    epsilon: float
    delta: float
    rounds: int
    sampling_rate: float
    adjacency: Adjacency
    accountant: str
    unit: Unit = DEFAULT_UNIT
    parts: int = 1

    @property
    def releases(self) -> Releases:
        """The events of the run."""
        return _events(
            self.mechanism,
            self.noise_multipliers,
            self.sampling_rate,
            self.parts,
            adjacency=self.adjacency,
            unit=self.unit,
        )


def calibrate(
    *,
    epsilon: float,
    delta: float,
    rounds: int,
    sampling_rate: float = 1.0,
    adjacency: Adjacency | str,
    mechanism: str = "gaussian",
    shape: Sequence[float] | None = None,
    accountant: str = "auto",
    unit: Unit | str = DEFAULT_UNIT,
    parts: int = 1,
) -> Calibration:
    """The least noise for ``rounds`` releases within (ε, δ).

    >>> plan = calibrate(epsilon=1.0, delta=1e-6, rounds=100, adjacency="replace-one")
    >>> round(plan.noise_multiplier, 2), plan.epsilon <= 1.0
    (84.49, True)

    Args:
        epsilon: the budget's ε.
        delta: the budget's δ; 0 for pure differential privacy, with Laplace noise.
        rounds: number of releases.
        sampling_rate: Poisson rate q of the records of a round; 1 is full batch.
        adjacency: which data sets are compared.
        mechanism: "gaussian" or "laplace".
        shape: relative noise of each round, any unit; the schedule is this times the multiplier.
        accountant: name of one, or "auto" for the tightest sound one.
        unit: whose contribution is clipped; the releases carry it, and it changes no noise.
        parts: in how many parties' samples a unit may be: see `gaussian_releases`.
    """
    budget = Budget(epsilon=epsilon, delta=delta)
    require_count(rounds=rounds, parts=parts)
    require_rate(sampling_rate=sampling_rate)
    require_choice(MECHANISMS, mechanism=mechanism)
    relation, whose = Adjacency(adjacency), Unit(unit)
    relative = _relative_shape(shape, rounds)
    if mechanism == "gaussian" and delta == 0:
        gdp_mu(epsilon=epsilon, delta=delta)  # raises, with the remedy

    def releases(multiplier: float) -> Releases:
        noise = tuple(multiplier * part for part in relative)
        return _events(mechanism, noise, sampling_rate, parts, adjacency=relation, unit=whose)

    spend_by = partial(_spending, releases, delta)
    name = accountant
    if accountant == "auto":
        name = best_accountant(releases(1.0), delta=delta).name
    require_choice(ACCOUNTANTS, accountant=name)
    # Raises, with the reason, if no amount of noise suffices.
    ACCOUNTANTS[name](adjacency=relation, unit=whose).compose_all(releases(_MOST_NOISE))
    spent = spend_by(name)
    if name == "gdp":
        scale = relation.sum_sensitivity * sqrt(sum(part**-2 for part in relative))
        root = scale / gdp_mu(epsilon=epsilon, delta=delta)
    elif name == "pld":  # slow: start from the next accountant's answer, on few levels
        by_rdp = spend_by("rdp", most_levels=_FEW_LEVELS)
        if by_rdp(_MOST_NOISE) <= epsilon:
            near = _least_noise(by_rdp, budget, start=1.0, tolerance=1e-3)
        else:  # its orders are finite, and so is the least ε they show; the CLT gives a guess
            spread = sampling_rate * sqrt(sum(part**-2 for part in relative))
            near = spread / gdp_mu(epsilon=epsilon, delta=delta)
        factor = 1.15
        if len(set(relative)) > _SOME_LEVELS:
            rough = spend_by("pld", most_levels=_SOME_LEVELS)
            near = _least_noise(rough, budget, start=near, tolerance=1e-3, factor=factor)
            factor = 1.03
        root = _least_noise(spent, budget, start=near, tolerance=_COARSE, factor=factor)
    else:
        slow = name == "rdp" and sampling_rate < 1
        root = _least_noise(spent, budget, start=1.0, tolerance=_COARSE if slow else _FINE)
    multiplier, achieved = _proved(spent, root, epsilon)
    return Calibration(
        mechanism=mechanism,
        noise_multiplier=multiplier,
        noise_multipliers=tuple(multiplier * part for part in relative),
        epsilon=achieved,
        delta=delta,
        rounds=rounds,
        sampling_rate=sampling_rate,
        adjacency=relation,
        accountant=name,
        unit=whose,
        parts=parts,
    )


def noise_within(
    releases: Callable[[float], Releases], *, budget: Budget, accountant: str, start: float
) -> float:
    """The least noise for which the named accountant finds ``releases(noise)`` within a budget.

    Works for any events whose ε falls as the noise grows. Rounds towards privacy, as `calibrate`.
    """
    require_choice(ACCOUNTANTS, accountant=accountant)
    require_positive(start=start)
    spent = _spending(releases, budget.delta, accountant)
    root = _least_noise(spent, budget, start=start, tolerance=_FINE)
    return _proved(spent, root, budget.epsilon)[0]


def optimal_regulariser(
    *,
    lipschitz: float,
    dimension: int,
    epsilon: float,
    delta: float,
    records: int,
    radius: float,
) -> float:
    """λ* = √(2a)/D, which balances bias and noise of output perturbation.

    Minimises λD²/2 + a/λ, where D bounds the norm of a good model and a/λ ≥ G·E‖b‖ is what noise b
    for 2G/(Nλ) costs a G-Lipschitz risk: a = 3G²√(d·ln(1.25/δ))/(εN), and at δ = 0, where ‖b‖ is a
    Gamma(d, 2G/(Nλε)) (l2-laplace), a = 2dG²/(εN). All inputs are public: the choice costs nothing.
    """
    require_positive(lipschitz=lipschitz, epsilon=epsilon, radius=radius)
    require_delta(delta=delta)
    require_count(dimension=dimension, records=records)
    length = 3 * sqrt(dimension * log(1.25 / delta)) if delta else 2 * dimension
    return sqrt(2 * length * lipschitz**2 / (epsilon * records)) / radius


def _spending(
    releases: Callable[[float], Releases],
    delta: float,
    accountant: str,
    most_levels: int | None = None,
) -> Callable[[float], float]:
    """ε of ``releases(noise)`` as a function of the noise; infinite where there is none."""

    @cache
    def spent(noise: float) -> float:
        listed = releases(noise)
        if most_levels is not None:
            listed = on_levels(listed, most=most_levels)
        try:
            report = account(listed, delta=delta, accountant=accountant)
        except UnsupportedEvent:  # some theorems need a minimum of noise
            return inf
        return inf if report.epsilon is None else report.epsilon

    return spent


def _events(
    mechanism: str,
    multipliers: tuple[float, ...],
    sampling_rate: float,
    parts: int,
    *,
    adjacency: Adjacency,
    unit: Unit,
) -> Releases:
    make = laplace_releases
    if mechanism == "gaussian":
        make = partial(gaussian_releases, parts=parts)
    return make(multipliers, sampling_rate=sampling_rate, adjacency=adjacency, unit=unit)


def _relative_shape(shape: Sequence[float] | None, rounds: int) -> tuple[float, ...]:
    if shape is None:
        return (1.0,) * rounds
    if len(shape) != rounds:
        raise ValueError(f"shape must have one entry per round, {rounds}; got {len(shape)}.")
    for index, part in enumerate(shape):
        require_positive(**{f"shape[{index}]": part})
    return tuple(map(float, shape))


def _least_noise(
    spent: Callable[[float], float],
    budget: Budget,
    *,
    start: float,
    tolerance: float,
    factor: float = 2.0,
) -> float:
    """The root of spent(noise) = ε, from a bracket grown by ``factor``; ``spent`` must fall."""
    low = high = start
    while spent(high) > budget.epsilon:
        low, high = high, high * factor
        if high > _MOST_NOISE:
            raise ValueError(
                f"epsilon = {budget.epsilon:g} at delta = {budget.delta:g} cannot be met: even a "
                f"noise multiplier of {high:.0e} spends {spent(high):.3g}. Allow a larger epsilon "
                "or delta, or fewer rounds."
            )
    while low == high or spent(low) <= budget.epsilon:
        low, high = low / factor, low
        if low < 1 / _MOST_NOISE:
            return low  # δ alone pays for the releases, whatever the noise
    # The bracket may end on the root, up to rounding: at either end.
    if spent(exp(log(high))) > budget.epsilon:
        return high
    if spent(exp(log(low))) <= budget.epsilon:
        return exp(log(low))
    # ε is nearly a power of the noise, so the root is found on logarithmic scales.
    root = brentq(
        lambda log_noise: log(max(spent(exp(log_noise)), 1e-300) / budget.epsilon),
        log(low),
        log(high),
        xtol=tolerance,
        rtol=max(tolerance, 1e-15),
    )
    return exp(root)


def _proved(spent: Callable[[float], float], root: float, epsilon: float) -> tuple[float, float]:
    """Raise the noise until the accountant itself confirms the budget.

    In growing steps, starting with the ratio by which ε is too large: it falls about as 1/noise.
    """
    multiplier, step = root, _FINE
    while not (achieved := spent(multiplier)) <= epsilon:
        excess = min(achieved / epsilon - 1, _COARSE)
        multiplier *= 1 + max(step, excess)
        step *= 4
    return multiplier, achieved
