"""The strategies that an experiment may name, and the checks that need to know them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, ValidationError

from fedpriv._validate import require_choice
from fedpriv.simulations.experiment.complaints import complaint

if TYPE_CHECKING:
    from fedpriv.simulations.experiment.file import Experiment
    from fedpriv.simulations.experiment.sections import StrategySection
    from fedpriv.strategies import StrategyInfo

PARTY_ALONE = "party-alone"
FRAME = ("non-private", PARTY_ALONE)
"""What every comparison is seen against: no noise at all, and no federation at all."""


class NoOptions(BaseModel):
    """Training alone is the certified minimum of a party's own risk: nothing to choose."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def catalogue() -> dict[str, StrategyInfo]:
    """Every strategy by name; party-alone, which no sum can express, is computed here."""
    from fedpriv.strategies import STRATEGIES, StrategyInfo

    alone = StrategyInfo(
        name=PARTY_ALONE,
        summary="every party its own model from its own records; the mean over parties",
        noise_by="nobody",
        convex_only=True,
        options=NoOptions,
    )
    return {**STRATEGIES, alone.name: alone}


def known_options(name: object) -> set[str]:
    """The keys that a strategy reads beside its name; none for an unknown strategy."""
    info = catalogue().get(str(name))
    return set(info.options.model_fields) if info else set()


def checked(experiment: Experiment) -> Experiment:
    """The experiment with every option of its strategy filled in, or the reason to refuse it."""
    section = experiment.strategy
    require_choice(catalogue(), **{"strategy.name": section.name})
    info = catalogue()[section.name]
    if info.convex_only and not experiment.model.convex:
        raise ValueError(
            f"strategy.name = {section.name!r} needs a convex problem, and model.name = "
            f"{experiment.model.name!r} is none. Use gradient-perturbation, or a linear model."
        )
    if section.name == PARTY_ALONE and experiment.model.l2 == 0:
        raise ValueError("model.l2 must be positive for party-alone: it makes the minimum unique.")
    return experiment.replaced(strategy=_filled(section, info))


def inheriting(experiment: Experiment, entry: StrategySection) -> Experiment:
    """The experiment with another strategy; options of the file that it knows still hold."""
    require_choice(catalogue(), **{"compare.strategies": entry.name})
    shared = {
        key: value
        for key, value in experiment.strategy.options.items()
        if key in known_options(entry.name)
    }
    values = {"name": entry.name, "label": entry.label, **shared, **entry.options}
    return checked(experiment.with_strategy({key: v for key, v in values.items() if v is not None}))


def _filled(section: StrategySection, info: StrategyInfo) -> dict[str, Any]:
    try:
        options = info.options.model_validate(section.options)
    except ValidationError as error:
        raise ValueError(complaint(error, info.options, prefix="strategy.")) from None
    values = options.model_dump(mode="json", exclude_none=True)
    # A seed that the file does not set is that of the run, whichever run it becomes.
    return {key: v for key, v in values.items() if key != "seed" or key in section.options}
