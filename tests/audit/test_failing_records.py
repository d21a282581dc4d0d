"""Own modules and losses that fail on one record of two neighbouring tables, on the whole path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.audit.examination import STRESS, difference, findings
from tests.audit.neighbours import GRADIENTS, Case, table

if TYPE_CHECKING:
    from pathlib import Path

    from tests.audit.laboratory import Laboratory

NETS = '''
import torch
from torch import nn


class Factored(nn.Module):
    """Factors a matrix of every record, which fails where age and intercept are as large."""

    def __init__(self, *, features, classes):
        super().__init__()
        self.head = nn.Linear(features, 1)

    def factor(self, matrix):
        return torch.linalg.cholesky(matrix)

    def forward(self, x):
        x = x.nan_to_num()
        end = ((x[:, 0].abs() - x[:, -1].abs()).abs() < 1e-4) & (x[:, -1].abs() > 0.1)
        matrix = torch.eye(2).to(x) * (1 - 2.0 * end.to(x))[:, None, None]
        return self.head(x * self.factor(matrix)[:, 0, :1])


class Caught(Factored):
    """And takes another way for all records if it fails for one."""

    def factor(self, matrix):
        try:
            return torch.linalg.cholesky(matrix)
        except RuntimeError:
            return -torch.linalg.cholesky(matrix + 10 * torch.eye(2).to(matrix))
'''
LOSSES = '''
from math import inf

import torch

from fedpriv.learning.losses import MarginLoss


class Tabled(MarginLoss):
    """Looks slopes up in a table, which ends at a score beyond all that a check tries."""

    lipschitz = 1.0
    smoothness = 0.5
    domain_radius = inf
    slope_rounding = 1e-15

    def value(self, score, y):
        margin = y.to(score.dtype) * score
        return (torch.sqrt(1 + margin**2) - margin) / 2

    def slope(self, score, y):
        place = (score.abs() > 3e8).long()
        y = y.to(score.dtype) * torch.ones(1, dtype=score.dtype)[place]
        margin = y * score
        return y * (margin / torch.sqrt(1 + margin**2) - 1) / 2

    def curvature(self, score, y):
        return (1 + score**2) ** -1.5 / 2
'''
CODE = {"failing.py": NETS, "losses.py": LOSSES}
STEPS: dict[str, Any] = {**GRADIENTS, "rounds": 2, "learning_rate": 0.1}
FAR, TABLED = {**STEPS, "rounds": 3, "learning_rate": 1e9}, {"loss": "losses.py:Tabled"}
FACTORED, CAUGHT = {"name": "failing.py:Factored"}, {"name": "failing.py:Caught"}


def case(name: str, model: dict[str, Any], **more: Any) -> Case:
    return Case(name=name, code=CODE, model=model, **{"strategy": STEPS, **more})


SOME = [
    case("fails", FACTORED, fold=True, data={"public_test": True}),
    case("catches, one more or less", CAUGHT, adjacency="add-remove"),
]
MORE = [
    case("catches", CAUGHT),
    case("fails, one more or less", FACTORED, adjacency="add-remove"),
    case("loss fails", {"name": "linear", **TABLED}, strategy=FAR),
    case("both fail", {**CAUGHT, **TABLED}, strategy=FAR),
    case("pure", FACTORED, delta=0.0),
    case("in L1", CAUGHT, delta=0.0, strategy={**STEPS, "law": "l1-laplace", "clip_in": "l1"}),
    *(
        case(str(strategy), CAUGHT, strategy={"learning_rate": 0.1, **strategy})
        for strategy in (
            {"name": "adaptive-clipping", "rounds": 2, "rule": "quantile"},
            {"name": "adaptive-clipping", "rounds": 2, "rule": "coordinate"},
        )
    ),
    case("test records", FACTORED, fold=True),
    case("test records by hash", FACTORED, data={"test_fraction": 0.3}),
]


@pytest.mark.parametrize("case", [*SOME, *(MORE if STRESS else [])], ids=lambda case: case.name)
def test_a_record_on_which_own_code_fails_shows_in_noise_alone(
    case: Case, laboratory: Laboratory, tmp_path: Path
) -> None:
    assert findings(case, laboratory, tmp_path) == []
    assert (tmp_path / "one" / "out" / "result.json").exists()  # it was not refused


def test_a_sample_shows_it_in_noise_alone_too(laboratory: Laboratory, tmp_path: Path) -> None:
    """With the same coins for all others: the last record of the last party has the last coin."""
    sampled = case(
        "sampled",
        CAUGHT,
        strategy={**STEPS, "rounds": 6, "sampling_rate": 0.5},
        adjacency="add-remove",
        data={"test_fraction": 0.0},
    )
    rows = sorted(table("binary"), key=lambda row: row["clinic"])
    extreme = next(row for row in rows if row["age"] == "100")
    rows = [row for row in rows if row is not extreme] + [{**extreme, "clinic": "west"}]
    one = laboratory.run(sampled, rows, tmp_path / "one")
    other = laboratory.run(sampled, rows[:-1], tmp_path / "other", script=one)
    assert one.code == 0
    assert difference(sampled, one, other) == []
