"""Paid tuning of an experiment: settings of its grid, tried on the private records for a price.

Every setting is built and planned before anything is asked, so that what one of them refuses is
known from public facts, and all of them cost the same: `fedpriv.strategies.tuned` says how trials
are run, `fedpriv.privacy.planning.tuning.tuning` what they cost.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fedpriv.federation.strategy.base import Run
from fedpriv.privacy.accountants import GdpAccountant, UnsupportedEvent
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.planning.fixed_plan import FixedPlan
from fedpriv.privacy.planning.tuning.trials import SCORE_SHARE, base_mu, score_noise, trial_budget
from fedpriv.privacy.planning.tuning.tuning import BestOfTrials, TuningPlan
from fedpriv.privacy.trial_count import TrialCount
from fedpriv.privacy.unit import Unit
from fedpriv.simulations.experiment.catalogue import checked
from fedpriv.simulations.public.tuning import grid_settings, with_setting
from fedpriv.simulations.run import prepare
from fedpriv.simulations.run.streams import streams
from fedpriv.strategies.common.trial_score import TrialScore
from fedpriv.strategies.tuned import Setting, Tuned

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fedpriv.federation.strategy.base import SumStrategy
    from fedpriv.privacy.budget import Budget
    from fedpriv.privacy.ledger import Ledger
    from fedpriv.simulations.experiment.tuning_section import TuningSection
    from fedpriv.simulations.run.prepare import Prepared

BASES = ("gradient-perturbation", "second-order")
"""Strategies with a fixed plan of Gaussian noise, whose trials are μ-GDP."""

_ONE_TABLE = "strategy."
_NOT_TRIED = ("name", "label", "accountant")


def build_tuned(
    prepared: Prepared, *, run: str, release: bool = False, ledger: Ledger | None = None
) -> Tuned:
    """The tuning of an experiment, planned within its budget.

    Raises:
        ValueError: The base is not μ-GDP, or a setting cannot be tried at the cost of the others.
    """
    section = _require_priced(prepared)
    task, privacy = prepared.task, prepared.experiment.privacy
    adjacency, unit, delta = Adjacency(privacy.adjacency), Unit(privacy.unit), privacy.delta
    score = TrialScore(
        task=task,
        kind=section.score or TrialScore.usual(task),
        clip=1.0 if section.clip is None else section.clip,
    )
    law = TrialCount.with_mean(section.mean_trials, eta=section.eta or 0.0)
    accountant = str(prepared.experiment.strategy.options.get("accountant", "auto"))
    mu = base_mu(
        budget=privacy.budget, law=law, adjacency=adjacency, unit=unit, accountant=accountant
    )
    share = section.score_share or SCORE_SHARE
    budget = trial_budget(mu, score_share=share, delta=delta)
    settings = [_setting(prepared, values, budget, run=run) for values in grid_settings(section)]
    trials = [_planned(prepared, setting, budget) for setting in settings]
    noise = score_noise(
        mu,
        score_share=share,
        sensitivity=score.sensitivity(adjacency),
        adjacency=adjacency,
        unit=unit,
    )
    name = prepared.info.name
    plan = TuningPlan(
        strategy=f"{name}, tuned on the private records",
        query=f"{trials[0].query}, in every trial, and {score.in_words} at the end of it",
        released="the setting and the last model of the trial with the best noisy score",
        budget=privacy.budget,
        mechanisms=(
            BestOfTrials(base_mu=mu, law=law, score=noise, adjacency=adjacency, unit=unit),
        ),
        trials=tuple(trials),
        parties=task.parties,
        records=task.records,
        smallest_party=task.smallest,
        dimension=task.dimension,
        step=score.step,
        accountant=accountant,
    )
    return Tuned(
        task=task,
        plan=plan,
        settings=settings,
        score=score,
        run=Run(
            name=run,
            noise=streams(prepared, "noise", run=run, release=release),
            ledger=ledger,
            release=release,
        ),
    )


def _require_priced(prepared: Prepared) -> TuningSection:
    """Refuse what the price of a tuning is not known for, each with its reason."""
    experiment, name = prepared.experiment, prepared.info.name
    section = experiment.tuning
    if section is None or not section.paid:
        raise ValueError("tuning.on must be 'private' for a tuning that is paid for.")
    if name not in BASES:
        raise ValueError(
            f"tuning.on = 'private' needs strategy.name = {' or '.join(map(repr, BASES))}, got "
            f"{name!r}: the price of keeping the best of several trials is known here for trials "
            "with Gaussian noise that is fixed beforehand, and nothing else in them. Tune it on "
            "public data."
        )
    if prepared.noise_free:
        raise ValueError(
            "tuning.on = 'private' needs a finite privacy.epsilon, got 'inf': without noise there "
            "is nothing to pay with. Try settings with `fedpriv compare`."
        )
    if experiment.privacy.noise_at != "server":
        raise ValueError(
            "tuning.on = 'private' needs privacy.noise_at = 'server', got 'parties': trials must "
            "be Gaussian, and sums of shares are not exactly."
        )
    return section


def _setting(prepared: Prepared, values: Mapping[str, Any], budget: Budget, *, run: str) -> Setting:
    """One combination of the grid; its trials share the cost of all others."""
    for key in values:
        if not key.startswith(_ONE_TABLE) or key.removeprefix(_ONE_TABLE) in _NOT_TRIED:
            raise ValueError(
                f"tuning.grid: {key!r} must be an option of the strategy with on = 'private', and "
                f"not one of {', '.join(_NOT_TRIED)}: all trials are of one problem, by one "
                "strategy and for one unit, adjacency and price."
            )
    plain = prepared.experiment.model_copy(update={"tuning": None})
    exact = {f"{_ONE_TABLE}accountant": GdpAccountant.name}  # which knows nothing but μ-GDP
    tried = with_setting(plain, {**values, **exact})
    settled = checked(tried.replaced(privacy={"epsilon": budget.epsilon}))
    if (law := settled.strategy.options.get("law", "auto")) not in ("auto", "gaussian"):
        raise ValueError(
            f"strategy.law must be 'gaussian' with tuning.on = 'private', got {law!r}."
        )
    trial = replace(prepared, experiment=settled)

    def build(run_of_trial: Run) -> SumStrategy:
        with warnings.catch_warnings():  # how many there are would tell how many trials
            warnings.simplefilter("ignore")
            strategy = prepare.build_strategy(trial, run=run)
        strategy.attach(run_of_trial)
        return strategy

    return Setting(values=dict(values), build=build)


def _planned(prepared: Prepared, setting: Setting, budget: Budget) -> FixedPlan:
    """The plan of a setting; refused if it is not that of μ-GDP within the budget of a trial."""
    where = ", ".join(f"{key} = {value!r}" for key, value in setting.values.items())
    try:
        strategy = setting.build(Run(name="plan", noise=streams(prepared, "plan", run="plan")))
    except UnsupportedEvent as error:
        raise ValueError(f"tuning.grid: {where} changes the privacy plan: {error}") from None
    except ValueError as error:
        raise ValueError(f"tuning.grid: {where}: {error}") from None
    plan = strategy.plan
    if not isinstance(plan, FixedPlan) or plan.budget != budget:
        raise ValueError(
            f"tuning.grid: {where} changes the privacy plan: every setting must be planned with "
            "fixed noise, within the same budget of a trial."
        )
    prepare.require_drawable(strategy)
    return plan
