"""How far one record, or one person, moves federated statistics: against every pair of neighbours.

What a party computes is called as it is (`party_statistics`), on tables of one record or two: no
formula of the planner is used to compute what a record adds.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations_with_replacement, product
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np
import pytest

from fedpriv.federation.party.statistics import party_statistics, shares_of_records
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.planning.statistics.statistics_blocks import (
    MEAN_RATIO,
    Block,
    covariance_square,
    mean_ratio,
    moments_square,
)
from fedpriv.privacy.planning.statistics.statistics_design import Design, weigh
from fedpriv.privacy.unit import Unit

if TYPE_CHECKING:
    from numpy.typing import NDArray

REPLACE, JOIN = Adjacency.REPLACE_ONE, Adjacency.ADD_REMOVE
MISSING = 2.0
# Columns: two numbers, two categories of 2 and 3 values.
CATEGORIES = (0, 0, 2, 3)
NUMBERS = (-1.0, -0.62, -0.3, 0.0, 0.26, 0.6, 1.0, MISSING)

MOMENTS = Block(kind="moments", columns=(0,))
TREE = Block(kind="tree", columns=(0,), cells=(8,))
BINNED = Block(kind="histogram", columns=(0,), cells=(3,), edges=(-0.5, 0.5))
VALUES = Block(kind="histogram", columns=(2,), cells=(4,))
ABSENT = Block(kind="missing", columns=(0,))
COVARIANCE = Block(kind="covariance", columns=(0, 1))
TABLE = Block(kind="table", columns=(2, 3), cells=(2, 3))
SURVIVAL = Block(kind="survival", columns=(1, 2, 3), cells=(3, 3), edges=(-0.5, 0.5), event=1)
TOTAL = Block(kind="total")
ALL = (MOMENTS, TREE, BINNED, VALUES, ABSENT, COVARIANCE, TABLE, SURVIVAL)


def every_record() -> NDArray[np.float32]:
    first = list(product(NUMBERS, (-1.0, 0.3, 1.0, MISSING), (0, 1, 3), (0, 2, 4)))
    return np.array(first, np.float32)


def added(design: Design, records: NDArray[np.float32]) -> NDArray[np.float64]:
    """What each record adds, by itself."""
    bounds = list(range(len(records) + 1))
    return party_statistics(design, records, bounds, categories=CATEGORIES)


def widest(vectors: NDArray[np.float64]) -> float:
    """The largest distance of two vectors."""
    squares = (vectors**2).sum(axis=1)
    distances = squares[:, None] + squares[None, :] - 2 * vectors @ vectors.T
    return sqrt(float(distances.max()))


def longest(vectors: NDArray[np.float64]) -> float:
    return float(np.linalg.norm(vectors, axis=1).max())


@pytest.mark.parametrize(
    ("blocks", "joining", "exchanging"),
    [
        ((TOTAL,), 1.0, 0.0),
        ((ABSENT,), 1.0, 1.0),
        ((VALUES,), 1.0, sqrt(2)),
        ((BINNED,), 1.0, sqrt(2)),
        ((TABLE,), 1.0, sqrt(2)),
        ((SURVIVAL,), 1.0, sqrt(2)),
        ((TREE,), sqrt(3), sqrt(6)),
        ((VALUES, BINNED, TABLE), sqrt(3), sqrt(6)),  # J histograms: √J, √(2J)
        ((MOMENTS,), sqrt(MEAN_RATIO**2 + 1), 2 * MEAN_RATIO),
    ],
)
def test_one_record_moves_a_block_as_far_as_the_planner_says_and_no_further(
    blocks: tuple[Block, ...], joining: float, exchanging: float
) -> None:
    design, vectors = Design(blocks=blocks), added(Design(blocks=blocks), every_record())
    assert longest(vectors) == pytest.approx(joining, rel=1e-9)
    assert widest(vectors) == pytest.approx(exchanging, rel=1e-9, abs=1e-7)
    assert design.sensitivity(JOIN) == pytest.approx(joining, rel=1e-9)
    assert design.sensitivity(REPLACE) == pytest.approx(exchanging, rel=1e-9, abs=1e-7)


@pytest.mark.parametrize("adjacency", [JOIN, REPLACE])
@pytest.mark.parametrize("count", range(1, len(ALL) + 1))
def test_one_record_moves_all_blocks_together_no_further_than_the_planner_says(
    adjacency: Adjacency, count: int
) -> None:
    items = [[block] for block in (VALUES, COVARIANCE, TABLE, SURVIVAL)[: count // 2]]
    own = [block for block in ALL[:5] if block is not VALUES][: 1 + count // 2]
    design = weigh([*items, own], {0: 2.0}, adjacency=adjacency)
    vectors = added(design, every_record())
    moved = longest(vectors) if adjacency is JOIN else widest(vectors)
    stated = design.sensitivity(adjacency)
    assert moved <= stated * (1 + 1e-9)
    assert moved >= 0.93 * stated  # nothing is paid that nobody can see, or little
    assert longest(vectors) <= 1.0


def test_no_choice_of_weights_moves_further_than_stated() -> None:
    """Weights of any server: the bound is the design's, not that of the weights we would choose."""
    rng, records = np.random.default_rng(0), every_record()
    for _ in range(40):
        chosen = rng.permutation(len(ALL))[: rng.integers(1, len(ALL) + 1)]
        weights = np.exp(rng.normal(0, 2, len(chosen)))
        blocks = [
            replace(ALL[index], weight=float(weight))
            for index, weight in zip(chosen, weights, strict=True)
        ]
        design = Design(blocks=tuple(blocks))
        vectors = added(design, records)
        assert longest(vectors) <= design.sensitivity(JOIN) * (1 + 1e-9)
        assert widest(vectors) <= design.sensitivity(REPLACE) * (1 + 1e-9)


def test_counting_what_is_missing_costs_nothing_beside_a_tree() -> None:
    for adjacency in (JOIN, REPLACE):
        alone = weigh([[TREE]], {}, adjacency=adjacency)
        counted = weigh([[TREE, ABSENT]], {}, adjacency=adjacency)
        assert counted.sensitivity(adjacency) == pytest.approx(alone.sensitivity(adjacency))
        assert counted.blocks[0].weight == pytest.approx(alone.blocks[0].weight)
        assert counted.blocks[1].weight >= counted.blocks[0].weight


def test_a_grid_of_numbers_finds_the_worst_pair_of_moments() -> None:
    # The values of the specification, by brute force over pairs.
    x = np.linspace(-1, 1, 801)
    for ratio, known in ((0.2, 1.020204), (0.5, 1.134086), (1.0, 2.0), (2.0, 4.0)):
        worst = widest(np.stack([ratio * x, x**2], axis=1))
        assert sqrt(moments_square(ratio)) == pytest.approx(known, abs=1e-6)
        assert worst <= sqrt(moments_square(ratio)) + 1e-12
        assert worst == pytest.approx(known, abs=2e-5)


def test_a_circle_of_vectors_finds_the_worst_pair_of_products() -> None:
    angle = np.linspace(0, 2 * np.pi, 721)
    x = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    products = np.stack([x[:, 0] ** 2, x[:, 1] ** 2, sqrt(2) * x[:, 0] * x[:, 1]], axis=1)
    for ratio, known in ((0.5, 1.590990), (1.0, 2.121320), (1.4, 2.800143), (2.0, 4.0)):
        worst = widest(np.concatenate([ratio * x, products], axis=1))
        assert sqrt(covariance_square(1, ratio)) == pytest.approx(known, abs=1e-6)
        assert worst == pytest.approx(known, abs=1e-4)


def test_no_pair_of_corners_moves_a_covariance_further() -> None:
    for d in (2, 3, 4):
        design = Design(blocks=(Block(kind="covariance", columns=tuple(range(d))),))
        corners = np.array(list(product((-1.0, 0.0, 1.0, MISSING), repeat=d)), np.float32)
        vectors = party_statistics(
            design, corners, list(range(len(corners) + 1)), categories=[0] * d
        )
        assert longest(vectors) == pytest.approx(design.sensitivity(JOIN), rel=1e-9)
        assert widest(vectors) <= design.sensitivity(REPLACE) * (1 + 1e-9)
    # Counting complete records is free where one is exchanged.
    assert design.exchanging == pytest.approx(covariance_square(4, mean_ratio(4)))


@pytest.mark.parametrize("adjacency", [JOIN, REPLACE])
@pytest.mark.parametrize("per_person", ["mean", "records"])
def test_all_records_of_a_person_move_no_more_than_the_planner_says(
    adjacency: Adjacency, per_person: str
) -> None:
    # Persons with 0 to 3 records, of all that matter: every pair of persons.
    k = 3
    design = weigh([[TOTAL], [MOMENTS, TREE, ABSENT]], {}, adjacency=adjacency, unit=Unit.PERSON)
    values = np.array([[x, 0, 0, 0] for x in (-1.0, -0.4, 0.6, 1.0, MISSING)], np.float32)
    persons = [
        values[list(chosen)]
        for count in range(1, k + 1)
        for chosen in combinations_with_replacement(range(len(values)), count)
    ]
    vectors = [np.zeros(design.width)]
    for person in persons:
        shares = shares_of_records(np.array([len(person)])) if per_person == "mean" else None
        (vector,) = party_statistics(
            design, person, [0, len(person)], categories=CATEGORIES, shares=shares
        )
        vectors.append(vector)
    answers = np.array(vectors)
    moved = longest(answers) if adjacency is JOIN else widest(answers)
    records = k if per_person == "records" else 1
    stated = design.sensitivity(adjacency, unit=Unit.PERSON, records=records)
    assert 0.9 * stated <= moved <= stated * (1 + 1e-9)
    assert design.sensitivity(adjacency, unit=Unit.PERSON, parties=2) == pytest.approx(
        2 * design.sensitivity(adjacency, unit=Unit.PERSON)
    )


def test_a_person_with_more_records_than_another_is_no_exchange_of_one_for_one() -> None:
    # The trap: under replace-one a total does not move by a record, and does by a person.
    design = Design(blocks=(TOTAL,))
    assert design.sensitivity(REPLACE) < 1e-300
    assert design.sensitivity(REPLACE, unit=Unit.PERSON, records=3) == pytest.approx(3)


def test_shares_of_the_budget_are_what_items_cost() -> None:
    items = [[VALUES], [TREE], [COVARIANCE], [TABLE]]
    design = weigh(items, {1: 3.0}, adjacency=REPLACE)
    costs = [Design(blocks=(block,)).sensitivity(REPLACE) ** 2 for block in design.blocks]
    assert costs == pytest.approx([costs[0], 3 * costs[0], costs[0], costs[0]])
    assert sum(costs) == pytest.approx(design.sensitivity(REPLACE) ** 2)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"kind": "median"}, "kind"),
        ({"kind": "tree", "columns": (0,), "cells": (6,)}, "power of two"),
        ({"kind": "tree", "columns": (0, 1), "cells": (8,)}, "columns"),
        ({"kind": "histogram", "columns": (0,), "cells": (2,), "edges": (0.5, 0.2)}, "ascend"),
        ({"kind": "histogram", "columns": (0,), "cells": (2,), "edges": (1.5,)}, "ascend"),
        ({"kind": "histogram", "columns": (0,), "cells": (3,), "edges": (0.5,)}, "one fewer"),
        ({"kind": "moments", "columns": (-1,)}, "count from 0"),
        ({"kind": "moments", "columns": (0,), "weight": 0.0}, "weight"),
        ({"kind": "covariance", "columns": (0, 0)}, "differ"),
        ({"kind": "histogram", "columns": (0,), "cells": (1 << 23,)}, "at most"),
    ],
)
def test_a_block_that_makes_no_sense_is_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Design.read({"blocks": [values]})


def test_missing_values_are_not_counted_twice() -> None:
    with pytest.raises(ValueError, match="cell for it"):
        Design(blocks=(VALUES, Block(kind="missing", columns=(2,))))
