"""Trials of a paid tuning: from its budget to the cost, and the noise, of one trial."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

from fedpriv._validate import require_choice, require_count, require_open_unit
from fedpriv.privacy.accountants import BasicAccountant, GdpAccountant, account
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.events import TuningEvent
from fedpriv.privacy.gaussian import gdp_epsilon, gdp_mu
from fedpriv.privacy.mechanisms import GaussianMechanism
from fedpriv.privacy.planning.calibration import Calibration, noise_within
from fedpriv.privacy.planning.releases import gaussian_releases
from fedpriv.privacy.planning.tuning.tuning import ACCOUNTANTS
from fedpriv.privacy.unit import DEFAULT_UNIT, Unit

if TYPE_CHECKING:
    from fedpriv.privacy.adjacency import Adjacency
    from fedpriv.privacy.planning.releases import Releases
    from fedpriv.privacy.trial_count import TrialCount

SCORE_SHARE = 0.1
"""The default share of a trial's μ² that pays for its score."""
_MARGIN = 1e-9  # by which a trial stays below its μ: more than the rounding of any calibration
_ROUNDING = 1e-12


def base_mu(
    *,
    budget: Budget,
    law: TrialCount,
    adjacency: Adjacency,
    unit: Unit = DEFAULT_UNIT,
    accountant: str = "auto",
) -> float:
    """μ of one trial: the largest that the accountant proves to be within the budget.

    Args:
        budget: (ε, δ) of the whole, with δ > 0.
        law: Of the number of trials.
        adjacency: Which data sets are compared.
        unit: Whose presence is hidden.
        accountant: "auto" is "basic", by the profile rule; "rdp" is for ledgers that add up so.
    """
    require_choice(ACCOUNTANTS, accountant=accountant)
    whole = gdp_mu(epsilon=budget.epsilon, delta=budget.delta)  # refuses δ = 0, with a remedy

    def releases(noise: float) -> Releases:
        event = TuningEvent(
            base_mu=1 / noise, eta=law.eta, gamma=law.gamma, adjacency=adjacency, unit=unit
        )
        return [(event, 1)]

    name = BasicAccountant.name if accountant == "auto" else accountant
    return 1 / noise_within(releases, budget=budget, accountant=name, start=1 / whole)


def calibrate_trials(
    *,
    budget: Budget,
    law: TrialCount,
    rounds: int,
    adjacency: Adjacency,
    unit: Unit = DEFAULT_UNIT,
    accountant: str = "auto",
) -> Calibration:
    """The noise of trials of ``rounds`` equal releases, the score among them, within a budget.

    >>> from fedpriv.privacy.adjacency import Adjacency
    >>> from fedpriv.privacy.trial_count import TrialCount
    >>> found = calibrate_trials(
    ...     budget=Budget(epsilon=1.0, delta=1e-6),
    ...     law=TrialCount.with_mean(10.0),
    ...     rounds=100,
    ...     adjacency=Adjacency.REPLACE_ONE,
    ... )
    >>> round(found.noise_multiplier, 2), found.epsilon <= 1.0
    (119.74, True)
    """
    require_count(rounds=rounds)
    mu = base_mu(budget=budget, law=law, adjacency=adjacency, unit=unit, accountant=accountant)
    multiplier = adjacency.sum_sensitivity * sqrt(rounds) / mu * (1 + _ROUNDING)
    trial = gaussian_releases(multiplier, rounds=rounds, adjacency=adjacency, unit=unit)
    report = account(tuning_releases(trial, law), delta=budget.delta, accountant=accountant)
    if report.epsilon is None or report.epsilon > budget.epsilon:
        raise AssertionError("a calibrated tuning must be proved by accounting again.")
    return Calibration(
        mechanism="gaussian",
        noise_multiplier=multiplier,
        noise_multipliers=(multiplier,) * rounds,
        epsilon=report.epsilon,
        delta=budget.delta,
        rounds=rounds,
        sampling_rate=1.0,
        adjacency=adjacency,
        accountant=report.accountant,
        unit=unit,
    )


def trial_budget(mu: float, *, score_share: float, delta: float) -> Budget:
    """What a trial of μ-GDP may spend on training, as an (ε, δ) for planners.

    For Gaussian noise on full batches the pair stands for a μ, whichever δ is named.
    """
    require_open_unit(score_share=score_share)
    learning = mu * sqrt(1 - score_share) * (1 - _MARGIN)
    epsilon = gdp_epsilon(mu=learning, delta=delta)
    if epsilon == 0:
        raise ValueError(
            f"delta = {delta:g} is too large for a trial of mu = {mu:.3g}: it would pay for one "
            "without any epsilon. Name a smaller delta."
        )
    return Budget(epsilon=epsilon, delta=delta)


def score_noise(
    mu: float, *, score_share: float, sensitivity: float, adjacency: Adjacency, unit: Unit
) -> GaussianMechanism:
    """The noise on a trial's score, which one unit moves by ``sensitivity``."""
    require_open_unit(score_share=score_share)
    return GaussianMechanism(
        sensitivity=sensitivity,
        stddev=sensitivity / (mu * sqrt(score_share) * (1 - _MARGIN)),
        adjacency=adjacency,
        unit=unit,
    )


def tuning_releases(trial: Releases, law: TrialCount) -> Releases:
    """The one release of a tuning whose trials make these releases, the score among them.

    Raises:
        UnsupportedEvent: They are not all Gaussian, on full batches.
    """
    (first, _), *_ = trial
    composed = GdpAccountant(adjacency=first.adjacency, unit=first.unit).compose_all(trial)
    event = TuningEvent(
        base_mu=composed.mu,
        eta=law.eta,
        gamma=law.gamma,
        adjacency=first.adjacency,
        unit=first.unit,
    )
    return [(event, 1)]
