"""Refusals of the ERM solver: bad problems and settings, and what it cannot certify."""

from __future__ import annotations

import pytest
import torch

from fedpriv.learning.erm.certificate import ToleranceNotReachedError
from fedpriv.learning.erm.problem import ErmProblem
from fedpriv.learning.erm.solver import solve
from fedpriv.learning.losses import Logistic, Softmax, Squared
from tests.learning.erm.erm_problems import make_problem


@pytest.mark.parametrize("tolerance", [1e-17, 1e-300])
def test_a_tolerance_below_rounding_errors_is_refused_and_nothing_is_returned(
    tolerance: float,
) -> None:
    problem = make_problem(Logistic(), [5, 6], 3)
    with pytest.raises(ToleranceNotReachedError, match="nothing is returned") as caught:
        solve(problem, tolerance=tolerance)
    assert caught.value.parties == (0, 1)


def test_too_few_iterations_are_refused_and_name_the_parties_that_failed() -> None:
    easy = torch.zeros((4, 3), dtype=torch.float64)
    hard = make_problem(Logistic(), [40], 3).features
    problem = ErmProblem(
        features=torch.cat([easy, hard]),
        labels=torch.ones(44),
        offsets=torch.tensor([0, 4, 44]),
        loss=Logistic(),
        regulariser=1e-4,
    )
    with pytest.raises(ToleranceNotReachedError) as caught:
        solve(problem, max_iterations=1)
    assert caught.value.parties == (1,)


def _valid() -> dict[str, object]:
    return {
        "features": torch.tensor([[0.6, 0.8], [1.0, 0.0]], dtype=torch.float64),
        "labels": torch.tensor([1.0, -1.0]),
        "offsets": torch.tensor([0, 2]),
        "loss": Logistic(),
        "regulariser": 0.1,
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"regulariser": 0.0}, "regulariser"),
        ({"regulariser": float("nan")}, "regulariser"),
        ({"feature_bound": -1.0}, "feature_bound"),
        ({"feature_bound": 0.999}, "row norms of at most feature_bound"),
        ({"features": torch.ones(2)}, "features must be a float32 or float64 matrix"),
        ({"features": torch.ones((2, 2), dtype=torch.int64)}, "features must be a float"),
        ({"features": torch.full((2, 2), float("nan"))}, "features must be finite"),
        ({"features": torch.full((2, 2), float("inf"))}, "features must be finite"),
        ({"labels": torch.ones(3)}, "labels must have one entry per record"),
        ({"labels": torch.tensor([0.0, 1.0])}, r"-1 or \+1"),
        ({"offsets": torch.tensor([0, 1])}, "offsets must run from 0"),
        ({"offsets": torch.tensor([1, 2])}, "offsets must run from 0"),
        ({"offsets": torch.tensor([0, 0, 2])}, "party without records"),
        ({"offsets": torch.tensor([0, 2, 1, 2])}, "offsets must not decrease"),
        ({"counts": torch.tensor([0])}, "counts must be integers of at least 1"),
        ({"counts": torch.tensor([2.0])}, "counts must be integers of at least 1"),
        ({"counts": torch.tensor([2, 2])}, r"counts must be integers of at least 1, shape \(1,\)"),
        (
            {"loss": Squared(radius=3.5, label_bound=1.0), "counts": torch.tensor([1])},
            r"radius must be at least √headroom·label_bound/√regulariser = 4\.47",
        ),
        ({"offsets": torch.tensor([0.0, 2.0])}, "integers"),
        ({"offsets": torch.tensor([0])}, "at least two"),
        ({"linear": torch.ones(2)}, r"linear must be finite, of shape \(1, 2\)"),
        ({"linear": torch.full((1, 2), float("nan"))}, "linear must be finite"),
        ({"extra_regulariser": torch.ones(2)}, "extra_regulariser must be finite"),
        ({"extra_regulariser": -torch.ones(1)}, "extra_regulariser must be at least 0"),
        ({"loss": Squared(radius=3.0, label_bound=1.0)}, "radius must be at least"),
        (
            {"loss": Squared(radius=9.0, label_bound=1.0), "linear": torch.ones((1, 2))},
            "linear must be None for Squared",
        ),
        ({"loss": Softmax(classes=2)}, "labels must be integers"),
    ],
)
def test_bad_problems_are_refused_with_the_rule(change: dict[str, object], message: str) -> None:
    ErmProblem(**_valid())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=message):
        ErmProblem(**(_valid() | change))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [{"tolerance": 0.0}, {"tolerance": float("nan")}, {"max_iterations": 0}, {"memory_limit": 0}],
)
def test_bad_settings_are_refused_by_name(change: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(change))):
        solve(ErmProblem(**_valid()), **change)  # type: ignore[arg-type]
