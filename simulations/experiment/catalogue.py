"""The strategies that an experiment may name, and the checks that need to know them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, ValidationError

from fedpriv._validate import require_choice
from fedpriv.simulations.experiment.complaints import complaint
from fedpriv.simulations.experiment.named_files import guests
from fedpriv.simulations.experiment.named_files.guest_code import require_complete

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fedpriv.federation.strategy.base import SumStrategy
    from fedpriv.simulations.experiment.file import Experiment
    from fedpriv.simulations.experiment.model_section import ModelSection
    from fedpriv.simulations.experiment.sections import StrategySection
    from fedpriv.strategies import Setup, StrategyInfo

PARTY_ALONE = "party-alone"
FRAME = ("non-private", PARTY_ALONE)
"""The baselines of every comparison: no noise, and no federation."""
DESCRIBE = "describe"
"""What `fedpriv describe` runs: no learning, and so in no list of strategies."""
EXACT = "pooled"
"""The exact joint model of a convex problem."""
INFERENCE = "inference"
"""Whose release is a table of coefficients."""


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


def strategy_info(
    name: str, pins: Mapping[str, str], *, key: str = "strategy.name"
) -> StrategyInfo:
    """The INFO of a strategy: one of fedpriv's, or the user's own.

    ``pins`` are the hashes that the experiment states for code of the user's own.
    """
    known = catalogue()
    if name in known:
        return known[name]
    if name == DESCRIBE:
        from fedpriv.strategies.description import INFO

        return INFO
    if not guests.is_guest("strategy", name):
        require_choice([*known, *guests.installed("strategy")], **{key: name})
    return guest_info(guests.load("strategy", name, pins))


def guest_info(guest: guests.Guest) -> StrategyInfo:
    """The INFO and the `build` of a user's own strategy: of the class that is named, or its file.

    It signs with its own name and hash, never with that of a strategy of fedpriv.
    """
    from fedpriv.strategies import StrategyInfo

    holder = guest.value if hasattr(guest.value, "INFO") else guest.module
    info, build = getattr(holder, "INFO", None), getattr(holder, "build", None)
    if not isinstance(info, StrategyInfo):
        given = "has none" if info is None else f"has {info!r}"
        raise ValueError(
            f"{guest.title!r} is no strategy: the class, or its file, must have INFO, a "
            f"StrategyInfo, and {given}. docs/own-strategy.md has an example."
        )
    if holder is guest.module and not callable(build):  # INFO of the file, build of the class
        build = getattr(guest.value, "build", None)
    if not callable(build):
        raise ValueError(
            f"{guest.title!r} is no strategy: a class that does not derive from NoisyGradients, "
            "which has one, needs build(setup, options)."
        )
    require_complete(guest.value, guest.title)
    if info.noise_by not in ("server", "nobody") or info.shares:
        raise ValueError(
            f"{guest.title!r}: INFO must have noise_by = 'server' or 'nobody', and no shares: only "
            "noise that fedpriv adds to a sum can be vouched for."
        )

    def blamed(setup: Setup, options: Any) -> SumStrategy:
        with guest.blamed():
            strategy: SumStrategy = build(setup, options)
        return strategy

    return replace(info, name=guest.signature, guest=blamed)


def known_options(name: object, pins: Mapping[str, str]) -> set[str]:
    """The keys that a strategy reads beside its name; none for an unknown strategy."""
    if name not in catalogue() and not guests.is_guest("strategy", name):
        return set()
    return set(strategy_info(str(name), pins).options.model_fields)


def checked(experiment: Experiment) -> Experiment:
    """The experiment with every option of its strategy filled in, or the reason to refuse it."""
    section = experiment.strategy
    info = strategy_info(section.name, experiment.guests)
    if info.convex_only and not experiment.model.convex:
        raise ValueError(
            f"strategy.name = {section.name!r} needs a convex problem, and model.name = "
            f"{experiment.model.title!r} is none. Use gradient-perturbation, or a linear model."
        )
    if experiment.model.start is not None and (info.minimises or section.name == PARTY_ALONE):
        raise ValueError(
            f"model.start is for strategies that descend, got strategy.name = {section.name!r}: a "
            "minimiser is the same wherever the search for it begins."
        )
    if experiment.model.radius is not None:
        _require_projecting(section.name, info)
    if section.name == PARTY_ALONE and experiment.model.l2 == 0:
        raise ValueError("model.l2 must be positive for party-alone: it makes the minimum unique.")
    options = validated(section, info)
    if _ruled(experiment, info):
        options = options.model_copy(update={"regulariser": "auto"})
    return experiment.replaced(
        strategy=_filled(section, options), model={"l2": _l2(experiment.model, info, options)}
    )


def _ruled(experiment: Experiment, info: StrategyInfo) -> bool:
    """Whether the strategy's rule sets λ, because the file does not state it."""
    known, stated = "regulariser" in info.options.model_fields, experiment.strategy.options
    open_ = experiment.model.l2 == "auto" and experiment.model.classifies_linearly
    return known and open_ and "regulariser" not in stated and info.name != INFERENCE


def _l2(model: ModelSection, info: StrategyInfo, options: BaseModel) -> float:
    """λ, as stated or as suits the strategy."""
    from fedpriv.strategies.common.settling import ClippedOptions, left_open

    if model.l2 != "auto":
        return model.l2
    ruled = model.name == "mlp" and isinstance(options, ClippedOptions) and left_open(options)
    return info.l2_for(options, light=model.classifies_linearly or ruled)


def _require_projecting(name: str, info: StrategyInfo) -> None:
    """Refuse a ball for strategies that do not project, or whose proof does not cover it."""
    from fedpriv.strategies.common.optimiser import OptimiserOptions

    if name == INFERENCE:
        raise ValueError(
            "model.radius must not be given for inference, whose intervals are for coefficients "
            "without a constraint: an estimate that a ball cuts off has another law."
        )
    if not (info.minimises or issubclass(info.options, OptimiserOptions)):
        raise ValueError(
            f"model.radius is for minimisers, whose release is projected, and for strategies that "
            f"step by a server optimiser, got strategy.name = {name!r}, which projects nothing. "
            "Use gradient-perturbation or adaptive-clipping."
        )


def inheriting(experiment: Experiment, entry: StrategySection) -> Experiment:
    """The experiment with another strategy, which keeps the file's options that it knows."""
    info = strategy_info(entry.name, experiment.guests, key="compare.strategies")
    shared = {
        key: value
        for key, value in experiment.strategy.options.items()
        if key in info.options.model_fields
    }
    values = {"name": entry.name, "label": entry.label, **shared, **entry.options}
    return checked(experiment.with_strategy({key: v for key, v in values.items() if v is not None}))


def validated(section: StrategySection, info: StrategyInfo) -> BaseModel:
    """The options of a strategy, or the reason to refuse them."""
    try:
        return info.options.model_validate(section.options)
    except ValidationError as error:
        table = "describe." if section.name == DESCRIBE else "strategy."
        raise ValueError(complaint(error, info.options, prefix=table)) from None


def _filled(section: StrategySection, options: BaseModel) -> dict[str, Any]:
    values = options.model_dump(mode="json", exclude_none=True)
    # A seed that the file does not set is that of the run, whichever run it becomes.
    return {key: v for key, v in values.items() if key != "seed" or key in section.options}
