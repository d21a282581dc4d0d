"""The table `compare` of an experiment file: strategies, and the axes of their comparison."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from fedpriv.simulations.experiment.budgets import Epsilon  # noqa: TC001 - pydantic
from fedpriv.simulations.experiment.sections import Count, Section, Sequence, StrategySection


class EntrySection(StrategySection):
    """A strategy of a comparison, and what is different for it.

    Attributes:
        override: keys of data, model, privacy or run, as in ``{ "model.l2" = 0.01 }``.
        at: by budget: what is different there, options or keys of other tables, as in
            ``{ "0.1" = { rounds = 20, "model.l2" = 0.1 } }``.
    """

    override: dict[str, Any] = Field(default_factory=dict)
    at: dict[str, dict[str, Any]] = Field(default_factory=dict)

    def changes(self, epsilon: float | str) -> dict[str, dict[str, Any]]:
        """What this entry changes at a budget: by table, the keys with their values."""
        changed: dict[str, dict[str, Any]] = {"strategy": self.options}
        for key, value in {**self.override, **at_budget(self.at, epsilon)}.items():
            table, dot, name = key.rpartition(".")
            if dot and table not in _OVERRIDABLE:
                raise ValueError(
                    f"compare.strategies: {key!r} must be an option of {self.name}, or a key of "
                    f"{', '.join(_OVERRIDABLE)}. Write an option beside the name, as in "
                    f"{{ name = {self.name!r}, {name} = … }}."
                )
            changed.setdefault(table or "strategy", {})[name] = value
        return changed


_OVERRIDABLE = ("data", "model", "privacy", "run")


def at_budget(tables: dict[str, dict[str, Any]], epsilon: float | str) -> dict[str, Any]:
    """The table whose key, a number as text, is this budget; empty if there is none."""
    return next((values for key, values in tables.items() if float(key) == float(epsilon)), {})


class CompareSection(Section):
    """The axes of `fedpriv compare`; each combination is one run of the experiment.

    Attributes:
        strategies: names, or tables with a name, options and a label.
        epsilons: budgets, of which "inf" is none at all, without noise; that of ``privacy`` if not
            given.
        parties: numbers of parties; that of ``data`` if not given.
        over: by key, the values that it takes in turn, whatever an entry or a budget says: one key
            or two, as in ``{ "strategy.rounds" = [10, 30, 100] }``. `compare.axes` reads it.
        seeds: how many, counted from ``run.seed``.
        at: by budget: options, for all strategies that know them and do not set their own.
        published: by label, what a paper reports: one number, lost against the exact joint model;
            or a list, the accuracy in percent at each of ``epsilons``.
    """

    strategies: Annotated[tuple[EntrySection, ...], Sequence] = ()
    epsilons: Annotated[tuple[Epsilon, ...], Sequence] = ()
    parties: Annotated[tuple[Count, ...], Sequence] = ()
    over: dict[str, Annotated[tuple[Any, ...], Sequence]] = Field(default_factory=dict)
    seeds: Count = 5
    at: dict[str, dict[str, Any]] = Field(default_factory=dict)
    published: dict[str, float | Annotated[tuple[float, ...], Sequence]] = Field(
        default_factory=dict
    )

    @property
    def published_losses(self) -> dict[str, float]:
        """By label, accuracy lost against the exact joint model."""
        return {name: v for name, v in self.published.items() if not isinstance(v, tuple)}

    @property
    def published_accuracies(self) -> dict[str, dict[float, float]]:
        """By label and budget, accuracy as a share."""
        return {
            name: {float(e): x / 100 for e, x in zip(self.epsilons, curve, strict=True)}
            for name, curve in self.published.items()
            if isinstance(curve, tuple)
        }

    @model_validator(mode="after")
    def _by_budget(self) -> Self:
        budgets = len(self.epsilons)
        for name, curve in self.published.items():
            if isinstance(curve, tuple) and len(curve) != budgets:
                raise ValueError(
                    f"published: {name!r} must have one accuracy a budget, {budgets}; got "
                    f"{len(curve)}."
                )
        for table in (self.at, *(entry.at for entry in self.strategies)):
            for key in table:
                if key not in (known := [f"{float(epsilon):g}" for epsilon in self.epsilons]):
                    raise ValueError(f"at: {key!r} must be one of epsilons, {', '.join(known)}.")
        return self

    @model_validator(mode="before")
    @classmethod
    def _names_to_tables(cls, values: Any) -> Any:
        if isinstance(values, dict) and isinstance(values.get("strategies"), list | tuple):
            entries = [{"name": e} if isinstance(e, str) else e for e in values["strategies"]]
            return {**values, "strategies": entries}
        return values
