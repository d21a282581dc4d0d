"""A description is private from the file on: neighbouring tables, every output, every sum.

As in `test_neighbouring_files` and `test_neighbouring_persons`, for `fedpriv describe`. A second
run is given the release of the first: whatever it writes must then be the same to the byte,
statistics included, which follow from released numbers alone. Neighbours that lose a value, or gain
one, are among those that are tried: what is missing is counted, and not refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fedpriv.federation.queries.kinds import StatisticsQuery
from fedpriv.federation.queries.local_noise import LocalNoise
from fedpriv.federation.table_task import TableTask
from fedpriv.privacy.events import GaussianEvent
from fedpriv.privacy.planning.statistics.statistics_design import Design, weigh
from fedpriv.strategies.common.describing import DescribeOptions, items_of
from tests.audit.deployed_cases import BASE, GRID, NEIGHBOURS, A, R
from tests.audit.deployed_cases import SCHEMA as CLAMPED
from tests.audit.deployed_scene import Scene
from tests.audit.examination import difference, findings
from tests.audit.laboratory import moved
from tests.audit.neighbours import EXTREME, Case, table
from tests.audit.test_deployed_neighbours import compare, draw_again
from tests.audit.test_neighbouring_persons import PersonCase
from tests.audit.test_neighbouring_persons import findings as person_findings
from tests.federation.deployed.test_deployed_description import WILLING, Describing

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fedpriv.privacy.adjacency import Adjacency
    from tests.audit.laboratory import Laboratory
    from tests.audit.neighbours import Row

DESCRIBE: dict[str, Any] = {
    "name": "describe",
    "bins": 8,
    "edges": {"dose": [-0.5, 0.5]},
    "correlation": ["age", "dose"],
    "tables": [["ward", "outcome"]],
    "survival": {
        "time": "age",
        "event": "outcome",
        "seen": "yes",
        "edges": [25, 50, 75],
        "by": "ward",
    },
}
MOMENTS: dict[str, Any] = {"name": "describe", "bins": 4}
HASHED = {"partition": "hashed", "parties": 4, "records": 50}

CASES = [
    Case(name="all statistics", strategy=DESCRIBE),
    Case(name="all, one more or less", strategy=DESCRIBE, adjacency="add-remove", file="parquet"),
    Case(name="moments and quantiles", strategy=MOMENTS, file="parquet"),
    Case(name="bounds", strategy={"name": "describe", "magnitudes": ["age", "dose"]}),
    Case(name="by party", strategy={**DESCRIBE, "by_party": True}),
    Case(
        name="by party, one more or less",
        strategy={**MOMENTS, "by_party": True},
        adjacency="add-remove",
        file="parquet",
    ),
    Case(
        name="by party and hash, one more or less",
        strategy={**MOMENTS, "by_party": True},
        adjacency="add-remove",
        data=HASHED,
    ),
    Case(
        name="by party, far fewer declared",
        strategy={**DESCRIBE, "by_party": True},
        adjacency="add-remove",
        data={"records": 1},
    ),
    Case(name="by hash, one more or less", strategy=MOMENTS, adjacency="add-remove", data=HASHED),
]
PERSONS = [
    PersonCase(name="exchanged", strategy=DESCRIBE, persons={"records": 2}),
    PersonCase(
        name="at two parties, one more or less",
        strategy=MOMENTS,
        adjacency="add-remove",
        persons={"parties": 2, "records": 3},
    ),
    PersonCase(
        name="far fewer declared, exchanged",
        strategy=MOMENTS,
        data={"records": [1, 1, 1]},
        persons={"parties": 2},
    ),
    PersonCase(
        name="by party, exchanged at two parties",
        strategy={**MOMENTS, "by_party": True},
        persons={"parties": 2},
    ),
    PersonCase(
        name="records by party, at two parties, one more or less",
        strategy={**MOMENTS, "by_party": True, "per_person": "records"},
        adjacency="add-remove",
        persons={"parties": 2, "records": 3},
    ),
    PersonCase(
        name="by party, far fewer declared, exchanged at three parties",
        strategy={**MOMENTS, "by_party": True},
        data={"records": [1, 1, 1]},
        persons={"records": 2, "parties": 3},
    ),
    PersonCase(
        name="records, exchanged at two parties",
        strategy={**MOMENTS, "per_person": "records"},
        persons={"parties": 2, "records": 3},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_description_shows_a_record_through_its_noise_alone(
    case: Case, laboratory: Laboratory, tmp_path: Path
) -> None:
    assert findings(case, laboratory, tmp_path) == []
    assert (tmp_path / "one" / "out" / "statistics.json").exists()  # it was not refused


@pytest.mark.parametrize("case", PERSONS, ids=lambda case: case.name)
def test_a_description_shows_a_person_through_its_noise_alone(
    case: PersonCase, laboratory: Laboratory, tmp_path: Path
) -> None:
    assert person_findings(case, laboratory, tmp_path) == []


def changed(name: str, rows: list[Row]) -> list[Row]:
    rows = [dict(row) for row in rows]
    rows[EXTREME] |= {
        "value lost": {"age": ""},
        "all values lost": {"age": "", "dose": "", "ward": "", "outcome": ""},
        "out of range": {"age": "1e9", "dose": "-1e9", "ward": "nobody knows"},
        "on an edge": {"age": "50", "dose": "0.5"},
    }[name]
    return rows


@pytest.mark.parametrize("name", ["value lost", "all values lost", "out of range", "on an edge"])
def test_a_value_that_is_lost_shows_no_more_than_another(
    name: str, laboratory: Laboratory, tmp_path: Path
) -> None:
    case, rows = Case(name=name, strategy=DESCRIBE), table("binary")
    one = laboratory.run(case, rows, tmp_path / "one")
    other = laboratory.run(case, changed(name, rows), tmp_path / "other", script=one)
    assert (one.code, other.code) == (0, 0)
    assert difference(case, one, other) == []
    assert moved(one.releases[0], other.releases[0]) > 0


def test_half_of_a_sensitivity_is_found(
    laboratory: Laboratory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole: Callable[..., float] = Design.sensitivity

    def half(self: Design, adjacency: Adjacency, **terms: Any) -> float:
        return 0.5 * whole(self, adjacency, **terms)

    monkeypatch.setattr(Design, "sensitivity", half)
    case = Case(name="half", strategy=DESCRIBE)
    assert any("a sum moved" in found for found in findings(case, laboratory, tmp_path))


def deployed(folder: Path, adjacency: Adjacency, kind: str) -> tuple[Scene, StatisticsQuery, float]:
    """A party, a query of one kind to it, and how far its answer may move, in steps of the grid."""
    folder.chmod(0o700)
    off = {"secure_aggregation": "off"}
    apart, bounds = kind == "by party", kind == "bounds"
    deployment = Describing(
        folder=folder,
        policy={
            **WILLING,
            **off,
            "min_noise": 0.001,
            "by_party": apart,
            "suggest_bounds": ["age", "dose"] if bounds else [],
        },
        budget={"epsilon": 20.0, "adjacency": adjacency.value},
        experiment={
            "run": off,
            "privacy": {
                "adjacency": adjacency.value,
                "noise_at": "parties" if apart else "server",
            },
            "strategy": {"by_party": apart, "magnitudes": ["age", "dose"] if bounds else []},
        },
    )
    for path in (deployment.server, deployment.home("north")):
        (path / "schema.toml").write_text(CLAMPED)
    scene = Scene(deployment)
    task = scene.task
    assert isinstance(task, TableTask)
    options = DescribeOptions(bins=8, correlation=("age", "dose"), edges={"age": (50.0,)})
    items, shares = items_of(
        DescribeOptions(magnitudes=("age", "dose")) if bounds else options,
        task.columns,
        total=adjacency is A,
    )
    local = LocalNoise(law="gaussian", relative_noise=10.0, adjacency=adjacency)
    query = StatisticsQuery(
        run="audit",
        round=0,
        grid=GRID,
        event=GaussianEvent(relative_noise=10.0, adjacency=adjacency),
        design=weigh(items, shares, adjacency=adjacency),
        by_party=apart,
        local=local if apart else None,
    )
    stated = query.sensitivity(task, sizes=task.sizes, adjacency=adjacency)
    assert stated is not None
    return scene, query, GRID.l2_sensitivity(sensitivity=stated, dimension=query.design.width)


@pytest.mark.parametrize("kind", ["all together", "by party", "bounds"])
@pytest.mark.parametrize("adjacency", [R, A])
def test_a_deployed_party_shows_a_record_in_a_bounded_answer_alone(
    adjacency: Adjacency, kind: str, tmp_path: Path
) -> None:
    """As in `test_deployed_neighbours`: what it says, pays and keeps is the same."""
    scene, query, steps = deployed(tmp_path, adjacency, kind)
    tables = NEIGHBOURS[adjacency]
    moved = {pair: compare(scene, tables[pair], (query, steps)) for pair in tables}
    assert max(moved.values()) > 0.8, moved


def test_a_part_that_fails_on_the_way_has_the_noise_that_was_drawn(tmp_path: Path) -> None:
    scene, query, _ = deployed(tmp_path, R, "by party")
    draw_again(scene, BASE, query, draws=3)


def test_an_unwilling_party_shows_nothing_of_its_records(tmp_path: Path) -> None:
    """Refused alike, and nothing paid or kept, for every two neighbours."""
    scene, query, steps = deployed(tmp_path, R, "by party")
    scene.deployment.write_party("north", policy={"by_party": False})
    for tables in NEIGHBOURS[R].values():
        assert compare(scene, tables, (query, steps), answered=False) == 0
