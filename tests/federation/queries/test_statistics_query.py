"""A query for statistics: its bytes, its bounds, and what a party of one process answers to it."""

from __future__ import annotations

import json
from dataclasses import replace
from math import sqrt
from typing import Any

import numpy as np
import pytest

from fedpriv.data import Persons, Records
from fedpriv.data.tables.columns import MISSING, ColumnFacts
from fedpriv.federation.party.guard import Policy, QueryRefused, check_query
from fedpriv.federation.party.party import Party
from fedpriv.federation.party.statistics import party_statistics, shares_of_records
from fedpriv.federation.queries.encoding import from_bytes, to_bytes
from fedpriv.federation.queries.kinds import StatisticsQuery
from fedpriv.federation.queries.statistics import columns_digest
from fedpriv.federation.table_task import TableTask, table_task
from fedpriv.federation.task import PersonBounds
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.planning.statistics.statistics_blocks import Block
from fedpriv.privacy.planning.statistics.statistics_design import Design, weigh
from fedpriv.privacy.randomness import RandomStream
from fedpriv.privacy.unit import Unit
from fedpriv.secagg import FixedPoint

COLUMNS = (ColumnFacts(name="age", low=0, high=100), ColumnFacts(name="sex", values=("f", "m")))
AGE = [Block(kind="moments", columns=(0,)), Block(kind="tree", columns=(0,), cells=(4,))]
ITEMS = [
    [Block(kind="total")],
    [*AGE, Block(kind="missing", columns=(0,))],
    [Block(kind="histogram", columns=(1,), cells=(4,))],
]
DESIGN = weigh(ITEMS, {}, adjacency=Adjacency.REPLACE_ONE)
GRID = FixedPoint(step=2.0**-20, bits=64)


def asked(**changes: Any) -> StatisticsQuery:
    values: dict[str, Any] = {"run": "study", "round": 0, "grid": GRID, "event": None}
    return StatisticsQuery(**{**values, "design": DESIGN, **changes})


def tampered(**block: Any) -> bytes:
    """The bytes of a query whose first block is another one."""
    data = to_bytes(asked())
    length = int.from_bytes(data[10:14], "big")
    values = json.loads(data[14 : 14 + length])
    values["design"]["blocks"][0] |= block
    header = json.dumps(values, sort_keys=True, separators=(",", ":")).encode()
    return data[:10] + len(header).to_bytes(4, "big") + header


def test_its_bytes_are_read_back_to_the_bit() -> None:
    query = asked(per_person="records")
    assert to_bytes(from_bytes(to_bytes(query))) == to_bytes(query)
    read = from_bytes(to_bytes(query))
    assert isinstance(read, StatisticsQuery)
    assert read.design == DESIGN


@pytest.mark.parametrize(
    "block",
    [
        {"weight": -1.0},
        {"weight": 1e400},
        {"weight": 1e200},  # whose square is infinite
        {"weight": 1e-200},  # whose square is zero
        {"weight": True},
        {"columns": [0]},
        {"columns": [0.0]},
        {"kind": "records"},
        {"cells": [1 << 40]},
        {"edges": [0.5]},
        {"event": "yes"},
        {"more": 1},
    ],
)
def test_other_bytes_are_refused(block: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"malformed|canonical"):
        from_bytes(tampered(**block))


def records(codes: list[list[float]], people: list[int] | None = None) -> Records:
    X = np.array(codes, np.float32)
    person = None if people is None else Persons.of(people)
    return Records(X=X, y=np.zeros(len(X), np.float32), person=person)


def answer(task: TableTask, held: Records, query: StatisticsQuery) -> list[Any]:
    """What a party answers, by block and without weights."""
    party = Party(
        held,
        task=task,
        size=task.sizes[0],
        sampling=lambda _: RandomStream.seeded(0),
        policy=Policy(unpaid=True),
    )
    values = GRID.decode(party.answer(query)) * GRID.step
    blocks, places = query.design.blocks, query.design.places()
    return [values[at] / block.weight for block, at in zip(blocks, places, strict=True)]


CODES = [[0.5, 0.0], [-1.0, 1.0], [1.0, 1.0], [MISSING, 3.0], [-0.25, 2.0]]


def test_a_party_counts_its_records() -> None:
    task = table_task(COLUMNS, sizes=(5, 9))
    total, moments, tree, missing, sexes = answer(task, records(CODES), asked())
    assert total == pytest.approx([5], abs=1e-4)
    x = np.array([0.5, -1, 1, -0.25])
    assert moments == pytest.approx([0.61 * x.sum(), (x**2).sum()], abs=1e-3)
    assert tree == pytest.approx([2, 2, 1, 1, 0, 2], abs=1e-4)
    assert missing == pytest.approx([1], abs=1e-4)
    assert sexes == pytest.approx([1, 2, 1, 1], abs=1e-4)


def test_a_person_is_the_average_of_that_persons_records() -> None:
    people = PersonBounds(records=3)
    task = table_task(COLUMNS, sizes=(2, 2), in_place=False, persons=people)
    held = records(CODES, [1, 1, 1, 1, 2])  # of whom the first keeps three
    total, _, tree, missing, _ = answer(task, held, asked())
    assert total == pytest.approx([2], abs=2e-3)
    assert tree[:2].sum() + missing[0] == pytest.approx(2, abs=2e-3)
    total, *_ = answer(task, held, asked(per_person="records"))
    assert total == pytest.approx([4], abs=1e-4)


def test_squares_of_a_whole_country_do_not_wrap_around() -> None:
    """2²⁵ persons at the end of the range, each averaged: the sum of their squares is 2⁶³ units."""
    many = 1 << 25
    codes = np.broadcast_to(np.ones((1, 1), np.float32), (many, 1))
    shares = np.broadcast_to(shares_of_records(np.ones(1, np.int64)), many)
    design = Design(blocks=(Block(kind="moments", columns=(0,)),))
    ((mean, square),) = party_statistics(design, codes, [0, many], categories=[0], shares=shares)
    assert mean == pytest.approx(0.61 * many, rel=1e-15)
    assert square == many


def test_an_answer_stays_within_twice_what_is_declared() -> None:
    """So that a sum cannot wrap around; fewer declared than there are is cut, and not refused."""
    task = table_task(COLUMNS, sizes=(1,), headroom=2.0, in_place=False)
    total, *_ = answer(task, records(CODES), asked())
    most = max(block.weight for block in DESIGN.blocks)
    assert total == pytest.approx([min(5.0, 2 * most / DESIGN.blocks[0].weight)], abs=1e-3)


def moved_to_another_party(sizes: tuple[int, ...], *, many: int) -> tuple[float, float]:
    """How far the sum moves, and how far it may, if one of ``many`` at a party is exchanged.

    One with +1 leaves them, and one with −1 joins another party: both count in the total.
    """
    task = table_task(COLUMNS[:1], sizes=sizes, in_place=False, persons=PersonBounds())
    items = [[Block(kind="total")], [Block(kind="moments", columns=(0,))]]
    design = weigh(items, {0: 20.0}, adjacency=Adjacency.REPLACE_ONE, unit=Unit.PERSON)
    query = asked(design=design)

    def summed(first: list[float], second: list[float]) -> Any:
        sums: Any = 0.0
        for codes in (first, second):
            held = records([[code] for code in codes], list(range(len(codes))))
            sums = sums + np.concatenate(
                [
                    part * block.weight
                    for part, block in zip(answer(task, held, query), design.blocks, strict=True)
                ]
            )
        return sums

    before = summed([1.0] * many, [0.0])
    moved = float(np.linalg.norm(before - summed([1.0] * (many - 1), [0.0, -1.0])))
    stated = query.sensitivity(task, sizes=task.sizes, adjacency=Adjacency.REPLACE_ONE)
    assert stated is not None
    return moved, stated


@pytest.mark.parametrize(("times", "bounded"), [(64, True), (2, False)])
def test_a_person_who_changes_parties_is_bounded_where_too_few_are_declared(
    times: int, bounded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cancels in a sum of two answers does not if one is clamped: it shows."""
    monkeypatch.setattr("fedpriv.federation.queries.room._ROOM_FOR_PERSONS", times)
    moved, stated = moved_to_another_party((1, 1), many=8)
    assert (moved <= stated) is bounded


def test_a_person_who_changes_parties_is_bounded_where_one_party_has_nearly_all() -> None:
    """As many as declared, in all: by one number for all parties, or by a hash, that says no more.

    Of 100 parties with 2 persons each, by the declaration, one has 190.
    """
    moved, stated = moved_to_another_party((2,) * 100, many=190)
    assert moved <= stated


def test_a_record_that_a_hash_moves_to_another_party_is_counted_as_two_answers() -> None:
    """Each of them is rounded to the grid, and neither is clamped."""
    sizes, relation = (50, 50, 50), Adjacency.REPLACE_ONE
    hashed = table_task(COLUMNS, sizes=sizes, headroom=3.0, in_place=False)
    in_place = table_task(COLUMNS, sizes=sizes)
    two, one = (
        asked().sensitivity(task, sizes=sizes, adjacency=relation) for task in (hashed, in_place)
    )
    assert one is not None
    assert two == pytest.approx(one + sqrt(DESIGN.width) * GRID.step, rel=1e-9)
    assert asked().reach(hashed, 50) >= 150 * DESIGN.largest


def test_bounds_follow_from_public_facts() -> None:
    task = table_task(COLUMNS, sizes=(50, 90))
    assert asked().record_bound(task) <= 1.0
    for adjacency in Adjacency:
        moved = asked().sensitivity(task, sizes=task.sizes, adjacency=adjacency)
        assert moved is not None
        exact = DESIGN.sensitivity(adjacency)
        assert exact < moved < exact * (1 + 1e-8)
    many = table_task(
        COLUMNS, sizes=(50, 90), in_place=False, persons=PersonBounds(records=3, parties=2)
    )
    stated = asked().sensitivity(many, sizes=many.sizes, adjacency=Adjacency.REPLACE_ONE)
    # Four answers change, and each is rounded to the grid; one of them is counted elsewhere.
    whole = 2 * sqrt(max(DESIGN.exchanging, DESIGN.joining))
    assert stated == pytest.approx(whole + 3 * sqrt(DESIGN.width) * GRID.step, rel=1e-9)


@pytest.mark.parametrize(
    "changed",
    [
        {"columns": (replace(COLUMNS[0], high=120), COLUMNS[1])},
        {"columns": (replace(COLUMNS[0], name="dose"), COLUMNS[1])},
        {"columns": (COLUMNS[0], replace(COLUMNS[1], values=("m", "f")))},
    ],
)
def test_a_party_that_takes_a_column_for_something_else_refuses(changed: dict[str, Any]) -> None:
    """Its counts would be added to those of others, and mean something else."""
    task, policy = table_task(COLUMNS, sizes=(50, 90)), Policy(unpaid=True)
    query = asked(columns=columns_digest(DESIGN, COLUMNS))
    assert to_bytes(from_bytes(to_bytes(query))) == to_bytes(query)
    check_query(query, task, policy)
    with pytest.raises(QueryRefused, match="agree on one schema"):
        check_query(query, replace(task, **changed), policy)
    more = replace(task, columns=(*COLUMNS, ColumnFacts(name="dose")))
    check_query(query, more, policy)  # what is not asked for may differ


def test_what_a_party_does_not_have_is_refused() -> None:
    task, policy = table_task(COLUMNS, sizes=(50, 90)), Policy(unpaid=True)
    check_query(asked(), task, policy)
    for block in (
        Block(kind="moments", columns=(1,)),
        Block(kind="missing", columns=(1,)),
        Block(kind="tree", columns=(2,), cells=(4,)),
        Block(kind="histogram", columns=(1,), cells=(3,)),
        Block(kind="histogram", columns=(1,), cells=(2,), edges=(0.0,)),
        Block(kind="table", columns=(0, 1), cells=(2, 2)),
        Block(kind="survival", columns=(0, 1), cells=(2, 1), edges=(0.0,), event=2),
    ):
        with pytest.raises(QueryRefused, match="columns"):
            check_query(asked(design=Design(blocks=(block,))), task, policy)
