"""Post-processing of released sums: trees against exact linear algebra, odds ratios, curves."""

from __future__ import annotations

from math import log, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv.data.tables.columns import ColumnFacts
from fedpriv.privacy.planning.statistics.statistics_blocks import Block
from fedpriv.privacy.planning.statistics.statistics_design import Design
from fedpriv.simulations.describe.crossed import two_way
from fedpriv.simulations.describe.numbers import mean_and_variance, to_simplex
from fedpriv.simulations.describe.released import Noisy, Released
from fedpriv.simulations.describe.survival import (
    at_risk,
    product_limit,
    risk_stddev,
    survival,
)
from fedpriv.simulations.describe.trees import Ranks, consistent_leaves, rank_stddev
from fedpriv.strategies.common.describing import SurvivalOptions

if TYPE_CHECKING:
    from numpy.typing import NDArray

YES_NO = ("no", "yes")


def measured(levels: int) -> NDArray[np.float64]:
    """Which leaves every node of a tree has, level by level, without the root."""
    leaves = 1 << levels
    return np.concatenate(
        [np.kron(np.eye(1 << level), np.ones(leaves >> level)) for level in range(1, levels + 1)]
    )


@pytest.mark.parametrize("root_variance", [0.0, 3.0])
@pytest.mark.parametrize("levels", [1, 2, 5])
def test_two_passes_are_least_squares_and_their_errors_exact(
    levels: int, root_variance: float
) -> None:
    nodes, leaves, variance = measured(levels), 1 << levels, 4.0
    rng = np.random.default_rng(levels)
    tree = nodes @ rng.integers(0, 9, leaves) + rng.normal(size=len(nodes)) * 2
    ones, root = np.ones((1, leaves)), 7.0 * leaves
    if root_variance:
        information = nodes.T @ nodes / variance + ones.T @ ones / root_variance
        solution = np.linalg.solve(
            information, nodes.T @ tree / variance + ones[0] * root / root_variance
        )
        covariance = np.linalg.inv(information)
    else:
        system = np.block([[nodes.T @ nodes / variance, ones.T], [ones, np.zeros((1, 1))]])
        solution = np.linalg.solve(system, np.append(nodes.T @ tree / variance, root))[:leaves]
        covariance = np.linalg.inv(system)[:leaves, :leaves]
    found = consistent_leaves(tree, variance=variance, root=root, root_variance=root_variance)
    assert found == pytest.approx(solution, abs=1e-9)
    prefixes = np.tril(np.ones((leaves, leaves)))
    exact = np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", prefixes, covariance, prefixes), 0))
    stated = rank_stddev(levels, variance=variance, root_variance=root_variance)
    assert stated[0] == 0
    assert stated[1:] == pytest.approx(exact, abs=1e-6)


@pytest.mark.parametrize(
    ("levels", "worst", "rms"),
    [(6, 2.545072, 2.114706), (8, 3.229842, 2.690549), (10, 3.907366, 3.270020)],
)
def test_ranks_of_a_tree_err_as_published(levels: int, worst: float, rms: float) -> None:
    # In units of 1/μ, add-remove: σ = √h/μ on every node, the root public.
    stated = rank_stddev(levels, variance=float(levels))
    assert stated.max() == pytest.approx(worst, abs=1e-6)
    assert sqrt((stated[1:-1] ** 2).mean()) == pytest.approx(rms, abs=1e-6)


def test_quantiles_rise_and_lie_in_their_range() -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        leaves = rng.normal(2, 10, 32)
        ranks = Ranks(
            leaves, total=float(leaves.sum()), stddev=np.full(33, 5.0), low=-3.0, high=5.0
        )
        values = [ranks.quantile(chance) for chance in np.linspace(0.01, 0.99, 30)]
        assert all(np.diff([value for value, _, _ in values]) >= 0)
        assert all(-3 <= low <= value <= high <= 5 for value, low, high in values)
        edges, counts = ranks.histogram(8)
        assert (counts >= 0).all()
        assert counts.sum() == pytest.approx(max(leaves.sum(), 0.0))
        assert len(edges) == 9


def test_counts_are_moved_to_the_nearest_that_add_up() -> None:
    from scipy.optimize import minimize

    rng = np.random.default_rng(2)
    for total in (10.0, 0.0, -4.0):
        counts = rng.normal(2, 4, 6)
        found = to_simplex(counts, total)
        assert (found >= 0).all()
        assert found.sum() == pytest.approx(max(total, 0.0), abs=1e-9)
        best = minimize(
            lambda x, counts=counts: ((x - counts) ** 2).sum(),
            np.full(6, max(total, 0.0) / 6),
            bounds=[(0, None)] * 6,
            constraints={"type": "eq", "fun": lambda x, total=total: x.sum() - max(total, 0.0)},
        )
        assert found == pytest.approx(best.x, abs=1e-4)


def table(counts: list[float], stddev: float) -> dict[str, Any]:
    columns = (ColumnFacts(name="a", values=YES_NO), ColumnFacts(name="b", values=YES_NO))
    block = Block(kind="table", columns=(0, 1), cells=(2, 2))
    numbers = np.array(counts)
    released = Released(
        design=Design(blocks=(block,)), sums=numbers, stddev=stddev, columns=columns, records=100
    )
    return two_way(released, block, numbers, stddev)


def test_an_odds_ratio_knows_its_noise() -> None:
    found = table([40.0, 60.0, 80.0, 20.0], 3.0)
    assert found["log_odds_ratio"] == pytest.approx(log(40 * 20 / (60 * 80)))
    squares = sum(1 / n + 9 / n**2 for n in (40, 60, 80, 20))
    assert found["log_odds_ratio_error"] == pytest.approx(sqrt(squares))
    hidden = table([40.0, 60.0, 80.0, 14.0], 3.0)  # below 5σ
    assert "odds_ratio" not in hidden
    assert "1.1 times the epsilon" in str(hidden["refused"])


def test_intervals_of_odds_ratios_cover() -> None:
    # ε = 1, δ = 1e-6, replace-one: σ = 5.97460. Of 2,000 tables, 95 % hold the truth: a share has a
    # deviation of 0.5 %, and five of them fail by chance with probability 6e-7. With the error of
    # sampling alone it is far from that: half of the noise would be caught.
    rng, stddev = np.random.default_rng(3), 5.97460
    chances = np.array([0.15, 0.2, 0.4, 0.25])
    truth = log(0.15 * 0.25 / (0.2 * 0.4))
    distances, errors, plain = [], [], []
    for _ in range(2000):
        counts = rng.multinomial(500, chances) + rng.normal(0, stddev, 4)
        found = table(list(counts), stddev)
        distances.append(abs(found["log_odds_ratio"] - truth))
        errors.append(found["log_odds_ratio_error"])
        plain.append(sqrt((1 / counts).sum()))
    inside, without = (
        np.mean(np.array(distances) < 1.96 * np.array(each)) for each in (errors, plain)
    )
    assert abs(inside - 0.95) < 0.025
    assert without < 0.925


def test_a_variance_below_three_deviations_is_not_told() -> None:
    facts = ColumnFacts(name="x", low=0.0, high=10.0)
    present = Noisy(value=1000.0, stddev=0.0)
    first, second = Noisy(value=100.0, stddev=10.0), Noisy(value=40.0, stddev=10.1)
    hidden = mean_and_variance(facts, first, second, present)  # 0.04 − 0.01 < 0.0303
    assert "variance" not in hidden
    assert "variance" in hidden["refused"][0]
    shown = mean_and_variance(facts, first, Noisy(value=40.0, stddev=9.9), present)
    assert shown["variance"] == pytest.approx(25 * 0.03 * 1000 / 999)


@pytest.mark.parametrize("known", [None, 1000.0])
def test_errors_of_a_curve_are_those_of_the_noise(known: float | None) -> None:
    # The deviation over 400 draws of noise, and the one that is told after one of them: each is
    # within 5/√800 of the truth, so that half of the noise would be caught.
    rng, stddev = np.random.default_rng(4), 4.0
    exits = np.array([[40.0, 80.0], [50.0, 70.0], [60.0, 90.0], [70.0, 60.0], [380.0, 100.0]])
    released = Released(
        design=Design(
            blocks=(
                Block(kind="survival", columns=(0, 1), cells=(5, 1), edges=(-0.6, -0.2, 0.2, 0.6)),
            )
        ),
        sums=np.append(exits.ravel(), 1000 - exits.sum()) + rng.normal(0, stddev, 11),
        stddev=stddev,
        columns=(ColumnFacts(name="t", low=0, high=5), ColumnFacts(name="e", values=YES_NO)),
        records=None if known is None else 1000,
    )
    options = SurvivalOptions(time="t", event="e", seen="yes", edges=(1, 2, 3, 4))
    curve = (survival(released, options) or {})["curves"]["all"]
    drawn = [
        product_limit(
            exits + rng.normal(0, stddev, exits.shape),
            None if known is None else known + rng.normal(0, stddev),
        )
        for _ in range(400)
    ]
    ratio = np.array(curve["survival_error"]) / np.std(drawn, axis=0)[: len(curve["survival"])]
    assert len(ratio) >= 4
    assert (np.abs(ratio - 1) < 0.3).all(), ratio


def test_a_curve_falls_and_ends_where_too_few_are_at_risk() -> None:
    exits = np.array([[10.0, 20.0], [-3.0, 15.0], [4.0, -2.0], [30.0, 20.0]])
    curve = product_limit(exits, 100.0)
    assert all(np.diff(curve) <= 0)
    assert curve[0] == pytest.approx(1 - 20 / (100 - 5))
    assert at_risk(exits, 100.0) == pytest.approx([100, 70, 58, 56])
    assert at_risk(exits, None) == pytest.approx([94, 64, 52, 50])
    assert risk_stddev(4, 2.0, known=True) == pytest.approx([2 * sqrt(2 * k) for k in (1, 2, 3, 4)])
