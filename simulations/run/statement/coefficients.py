"""The coefficient table of a run: from what it released, in the units of its schema.

Post-processing: what is said here follows from noisy numbers, the schema and the experiment.
"""

from __future__ import annotations

from itertools import combinations
from math import ceil, hypot, isinf
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.data.tables.schema import CategoryColumn
from fedpriv.inference.coding import Coding
from fedpriv.inference.coefficients import CoefficientTable
from fedpriv.inference.estimate import MOST_PULL
from fedpriv.privacy.gaussian import gdp_epsilon, gdp_mu
from fedpriv.strategies.common.inference.linear_inference import LinearInference
from fedpriv.strategies.common.inference.logistic_inference import LogisticInference

if TYPE_CHECKING:
    from fedpriv.data import Preprocessing, Schema
    from fedpriv.federation.strategy.base import SumStrategy
    from fedpriv.inference.estimate import Estimate
    from fedpriv.privacy.budget import Budget
    from fedpriv.simulations.run.prepare import Prepared

INTERCEPT = "(intercept)"
_WIDEST = 1e100  # a range: coefficients are in units of it, and their variances squares of that


def coefficient_table(prepared: Prepared, strategy: SumStrategy) -> CoefficientTable | None:
    """The table, if the strategy is one of inference that has released something."""
    if not isinstance(strategy, LinearInference | LogisticInference) or not strategy.round:
        return None
    path = prepared.data.dataset.preprocessing
    if path is None:
        raise ValueError("dataset must have bounded features before coefficients are stated.")
    linear = isinstance(strategy, LinearInference)
    try:
        coding = coding_of(path, scaled_label=linear)
    except ValueError as error:  # of a simulation; a release is refused before
        return CoefficientTable(rows=(), refusal=str(error))
    estimate = strategy.estimate(coding)
    refusal = ""
    if estimate.covariance is None:
        budget = None if strategy.plan is None else strategy.plan.budget
        refusal = refused(estimate, records=strategy.task.records, budget=budget)
    return CoefficientTable.of(
        coding.in_units(estimate),
        coding.names,
        about=_about(path.schema, linear=linear),
        refusal=refusal,
        references=coding.references,
    )


def require_units(prepared: Prepared, strategy: SumStrategy) -> None:
    """Refuse what has no coefficients in the units of its table, before anything is paid for."""
    path = prepared.data.dataset.preprocessing
    if path is not None and isinstance(strategy, LinearInference | LogisticInference):
        coding_of(path, scaled_label=isinstance(strategy, LinearInference))


def coding_of(path: Preprocessing, *, scaled_label: bool) -> Coding:
    """From scaled features, all levels of every category and an intercept, to units of the table.

    Raises:
        ValueError: Rows are clipped: each is then scaled by a factor of its own, and coefficients
            are of no unit. Or a range is so wide, or so narrow, that no number holds them.
    """
    bounds, schema = path.bounds, path.schema
    _require_ranges(schema)
    longest = hypot(path.max_norm, bounds.intercept)
    if bounds.scaling == "clip" and longest > bounds.norm:
        raise ValueError(
            "data.scaling must be 'divide' for inference, got 'clip': a row that is shortened by a "
            "factor of its own has no coefficients in the units of the table."
        )
    common = bounds.norm / longest if bounds.scaling == "divide" else 1.0
    names, width = path.feature_names, len(path.feature_names)
    d = width + (bounds.intercept != 0)
    levels = np.eye(d)
    dropped: list[int] = []
    exclusive: list[tuple[int, int]] = []
    references: dict[str, str] = {}
    whole: range | None = None
    slopes, shifts = np.full(width, common), np.zeros(width)
    place = 0
    for name, column in {} if schema is None else schema.features.items():
        if not isinstance(column, CategoryColumn):
            half = (column.max - column.min) / 2
            slopes[place] = common / half
            shifts[place] = common * (column.min + half) / half
            place += 1
            continue
        own = range(place, place + len(column.values))
        exclusive += combinations(own, 2)
        if bounds.intercept or whole is not None:
            dropped.append(place)
            references[name] = column.values[0]
            levels[place, own] = -1.0  # a record has this level if it has no other
            levels[place, place] = 0.0
            if whole is None:
                levels[place, width] = 1 / bounds.intercept
            else:
                levels[place, whole] = 1.0
        else:
            whole = own  # its levels are the intercepts
        place += len(column.values)
    kept = [i for i in range(d) if i not in dropped]
    label = schema.label_range if schema is not None and scaled_label else None
    implied = not bounds.intercept and (shifts.any() or label is not None)
    constant = bool(bounds.intercept) or bool(implied)
    matrix, offset = np.zeros((len(kept) + int(implied), len(kept))), 0.0
    for row, i in enumerate(kept):
        if i < width:
            matrix[row, row] = slopes[i]
            matrix[-1, row] -= shifts[i] * constant
        else:
            matrix[-1, row] = common * bounds.intercept
    titles = [names[i] for i in kept if i < width]
    if label is not None:
        matrix *= (label[1] - label[0]) / 2
        offset = (label[0] + label[1]) / 2
    return Coding(
        names=(*titles, INTERCEPT) if constant else tuple(titles),
        kept=tuple(kept),
        levels=levels[:, kept],
        exclusive=tuple(exclusive),
        constant=(width, common * bounds.intercept) if bounds.intercept else None,
        matrix=matrix,
        offset=np.append(np.zeros(len(matrix) - 1), offset),
        references=references,
    )


def _require_ranges(schema: Schema | None) -> None:
    for name, column in {} if schema is None else schema.columns.items():
        if isinstance(column, CategoryColumn):
            continue
        if not 1 / _WIDEST <= column.max - column.min <= _WIDEST:
            raise ValueError(
                f"column {name!r} must have a range between {1 / _WIDEST:g} and {_WIDEST:g} for "
                f"inference, got [{column.min:g}, {column.max:g}]: change its unit."
            )


def refused(estimate: Estimate, *, records: int, budget: Budget | None) -> str:
    """Why there are no intervals, and what would do, from what was released.

    λ_min grows with N and the noise falls with μ: so the factor that is missing may be had of
    either. Where the noise hides λ_min, only what is certainly too little can be told.
    """
    curvature = estimate.curvature
    if curvature.enough:
        return (
            "the regulariser pulls the estimate so far that taking it back may be wrong by "
            f"{float(estimate.pull):.2g} standard errors, and an interval is known to hold below "
            f"{MOST_PULL:g}. More records, bounds that are no wider than the values, or fewer "
            "features would do. Nothing was widened instead."
        )
    least, noise = float(curvature.least), curvature.noise
    if not noise:
        return (
            "the features determine one another: leave out those that follow from others, or that "
            "never vary."
        )
    factor = curvature.missing_factor
    hidden = isinf(factor)
    if hidden:
        factor = curvature.needed / (max(least, 0.0) + noise)
    many, word = ceil(records * factor), "more than" if hidden else "about"
    told = (
        f"the least curvature is {least:.4g} with noise of about {noise:.4g}, and an interval is "
        f"known to hold from {curvature.needed:.4g} on. {word.capitalize()} {many} records would do"
    )
    if budget is not None:
        mu = gdp_mu(epsilon=budget.epsilon, delta=budget.delta) * factor
        epsilon = gdp_epsilon(mu=mu, delta=budget.delta)
        told += f", or {word} epsilon = {epsilon:.3g} at delta = {budget.delta:g}"
    return f"{told}; or fewer features. Nothing was widened instead."


def _about(schema: Schema | None, *, linear: bool) -> str:
    """What a coefficient adds to."""
    label = "the label" if schema is None else schema.label
    if linear:
        return f"what one unit more adds to the mean of {label}"
    positive = "+1" if schema is None else schema.positive
    return f"what one unit more adds to the log-odds of {label} = {positive}"
