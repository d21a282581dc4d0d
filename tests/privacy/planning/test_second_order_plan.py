"""Plans of one matrix and T gradients: published values, and the joint accounting by an oracle."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import Any

import mpmath
import pytest

from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget, BudgetExceeded
from fedpriv.privacy.mechanisms import GaussianMechanism
from fedpriv.privacy.planning.second_order import (
    SecondOrderPlan,
    least_records,
    noise_shape,
    second_order_plan,
)
from fedpriv.privacy.unit import Unit

A, R = Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE
STEP = 2.0**-40  # so fine that it is not seen


def plan(adjacency: Adjacency = R, **more: Any) -> SecondOrderPlan:
    facts: dict[str, Any] = {
        "budget": Budget(epsilon=1.0, delta=1e-6),
        "rounds": 12,
        "matrix_sensitivity": sqrt(2) if adjacency is R else 1.0,
        "gradient_sensitivity": adjacency.sum_sensitivity,
        "clip_norm": 1.0,
        "sizes": (100, 200),
        "dimension": 5,
        "matrix_width": 15,
        "step": STEP,
        "adjacency": adjacency,
    }
    return second_order_plan(**{**facts, **more})


def stddevs(made: SecondOrderPlan) -> list[float]:
    return [each.stddev for each in made.mechanisms if isinstance(each, GaussianMechanism)]


def test_the_noise_is_that_of_the_reference() -> None:
    """ε = 1, δ = 1e-6 is μ = .2367043807; replace-one, B = C = 1."""
    made = plan()
    assert stddevs(made)[0] == pytest.approx(15.426346, rel=1e-7)
    assert stddevs(made)[1:] == [pytest.approx(31.747159, rel=1e-7)] * 12
    assert made.gdp_mu == pytest.approx(0.2367043807, rel=1e-9)
    fewer = plan(A)
    assert stddevs(fewer)[0] == pytest.approx(15.426346 / sqrt(2), rel=1e-7)
    assert stddevs(fewer)[1] == pytest.approx(31.747159 / 2, rel=1e-7)
    assert fewer.gdp_mu == pytest.approx(0.2367043807, rel=1e-9)


@pytest.mark.parametrize("adjacency", [A, R])
@pytest.mark.parametrize(("rounds", "share"), [(1, 0.5), (12, 0.15), (40, 0.9)])
def test_all_releases_together_are_one_gaussian_of_the_budget(
    adjacency: Adjacency, rounds: int, share: float
) -> None:
    """By mpmath: the exact profile of μ² = (Δ_M/σ_M)² + T(Δ_g/σ_g)² at ε is δ, and no less."""
    made = plan(adjacency, rounds=rounds, matrix_share=share, matrix_sensitivity=0.7)
    first, *others = stddevs(made)
    with mpmath.workdps(40):
        square = mpmath.mpf(0.7) ** 2 / mpmath.mpf(first) ** 2
        gradients = sum(
            mpmath.mpf(adjacency.sum_sensitivity) ** 2 / mpmath.mpf(z) ** 2 for z in others
        )
        assert float(square / (square + gradients)) == pytest.approx(share, rel=1e-9)
        mu = mpmath.sqrt(square + gradients)
        delta = mpmath.ncdf(-1 / mu + mu / 2) - mpmath.e * mpmath.ncdf(-1 / mu - mu / 2)
        assert float(delta) <= 1e-6 * (1 + 1e-9)
        assert float(delta) == pytest.approx(1e-6, rel=1e-6)


def test_the_grid_is_part_of_both_sensitivities() -> None:
    fine, coarse = plan(), plan(step=2.0**-4)
    assert stddevs(coarse)[0] / stddevs(fine)[0] == pytest.approx(1 + sqrt(15 / 2) / 16, rel=1e-9)
    assert stddevs(coarse)[1] / stddevs(fine)[1] == pytest.approx(1 + sqrt(5) / 32, rel=1e-9)


def test_half_the_noise_on_either_is_refused() -> None:
    """Teeth: a plan proves its ε again when it is made."""
    made = plan()
    for place in (0, 5):
        weak = list(made.mechanisms)
        weak[place] = replace(weak[place], stddev=stddevs(made)[place] / 2)  # type: ignore[call-arg]
        with pytest.raises(BudgetExceeded):
            replace(made, mechanisms=tuple(weak))


def test_the_model_moves_along_gradients_alone_and_the_statement_tells_the_sizes() -> None:
    made = plan(unit=Unit.PERSON)
    assert made.main == made.mechanisms[1:]
    assert (made.rounds, made.unit) == (13, Unit.PERSON)
    assert made.size_in_words == "15 coordinates (the first) and 5 (all others)"
    assert made.to_dict()["matrix_width"] == 15


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"matrix_share": 1.0}, "matrix_share must lie strictly between"),
        ({"rounds": 0}, "rounds must be"),
        ({"gradient_sensitivity": 1.0}, "gradient_sensitivity must be at least 2 times"),
        ({"matrix_sensitivity": 0.0}, "matrix_sensitivity must be positive"),
        ({"matrix_width": 0}, "matrix_width must be|dimension must be"),
        ({"budget": Budget(epsilon=1.0, delta=0.0)}, "delta"),
    ],
)
def test_what_is_no_plan_is_refused(more: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plan(**more)


@pytest.mark.parametrize(
    ("size", "epsilon", "records"), [(105, 1.0, 23_500), (105, 0.1, 202_000), (784, 1.0, 479_000)]
)
def test_the_rule_of_thumb_has_the_numbers_of_the_reference(
    size: int, epsilon: float, records: int
) -> None:
    """2·d^1.5/(μ√.15) under replace-one, to the digits that are stated."""
    made = plan(budget=Budget(epsilon=epsilon, delta=1e-6))
    found = least_records(size=size, matrix_stddev=stddevs(made)[0], feature_bound=1.0)
    assert found == pytest.approx(records, rel=4e-3)
    assert made.gdp_mu is not None
    assert found == pytest.approx(2 * size**1.5 / (made.gdp_mu * sqrt(0.15)), rel=1e-9)


def test_the_shape_divides_the_square_of_mu() -> None:
    shape = noise_shape(7, 0.3)
    assert shape[0] ** -2 == pytest.approx(0.3)
    assert sum(z**-2 for z in shape[1:]) == pytest.approx(0.7)
