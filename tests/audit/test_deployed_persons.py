"""A deployed party answers for persons: neighbours differ in all rows of a person in its file.

Whatever it says, pays and keeps is the same to the byte, numbers of rows included; its answer moves
by no more than the noise is for. What its owner wrote down is insisted on, whatever a server says.
"""

from __future__ import annotations

import tomllib
from dataclasses import replace
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv._toml import to_toml
from fedpriv.federation.party.guard import QueryRefused
from fedpriv.federation.queries.bounds import gradient_sensitivity
from fedpriv.federation.queries.kinds import ErmQuery, GradientQuery, StatisticsQuery
from fedpriv.federation.queries.local_noise import LocalNoise
from fedpriv.federation.table_task import TableTask
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import GaussianEvent, PoissonPartsEvent
from fedpriv.privacy.planning.statistics.statistics_design import weigh
from fedpriv.privacy.unit import Unit
from fedpriv.secagg import FixedPoint
from fedpriv.strategies.common.describing import DescribeOptions, items_of
from tests.audit.deployed_cases import SCHEMA
from tests.audit.deployed_scene import Scene
from tests.federation.deployed.deployments import Deployment, take_any_kind
from tests.federation.deployed.test_deployed_description import WILLING, Describing

if TYPE_CHECKING:
    from pathlib import Path

R, A = Adjacency.REPLACE_ONE, Adjacency.ADD_REMOVE
GRID, CLIP = FixedPoint(step=2.0**-30, bits=64), 0.5
PERSONS = 'person = "patient"\n' + SCHEMA.lstrip()
ROWS = tuple(
    f"p{i % 12},{20 + i},{(i % 7) / 10 - 0.3},{'yes' if i % 3 else 'no'}" for i in range(50)
)
BUSY = ("busy,100,1,yes",) * 9


def scene(
    folder: Path, adjacency: Adjacency, *, schema: str = PERSONS, parties: int = 1, **policy: Any
) -> Scene:
    folder.chmod(0o700)
    deployment = Deployment(
        folder=folder,
        policy={
            "secure_aggregation": "off",
            "min_noise": 0.001,
            "queries": ["gradient"],
            "units": ["person"],
            **policy,
        },
        budget={"epsilon": 20.0, "adjacency": adjacency.value, "unit": "person"},
        experiment={
            "strategy": {"name": "gradient-perturbation", "rounds": 4, "learning_rate": 0.1},
            "run": {"secure_aggregation": "off"},
            "privacy": {"unit": "person", "adjacency": adjacency.value},
            "persons": {"parties": parties, "records": 6},
        },
    )
    for path in (deployment.server, deployment.home("north")):
        (path / "schema.toml").write_text(schema)
    return Scene(deployment, header="patient,age,dose,sick")


def query(adjacency: Adjacency, **changes: Any) -> GradientQuery:
    event = GaussianEvent(relative_noise=10.0, adjacency=adjacency, unit=Unit.PERSON)
    arguments = {"event": event, "theta": np.zeros(3), "clip_norm": CLIP, **changes}
    return GradientQuery(run="audit", round=0, grid=GRID, **arguments)


@pytest.fixture(autouse=True)
def _any_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    take_any_kind(monkeypatch)  # queries are put by hand, and not by the strategy of the run


@pytest.mark.parametrize("adjacency", [R, A])
def test_a_deployed_party_shows_a_person_through_its_answer_alone(
    adjacency: Adjacency, tmp_path: Path
) -> None:
    one = scene(tmp_path, adjacency)
    whole = one.ask((*ROWS[:20], *BUSY, *ROWS[20:]), query(adjacency))
    assert whole.answered
    gone = ROWS if adjacency is A else (*ROWS, "other,0,-1,no", "other,0,-1,no")
    task = one.task
    limit = gradient_sensitivity(task, clip_norm=CLIP, adjacency=adjacency, step=GRID.step)
    limit = limit / GRID.step + sqrt(task.dimension)
    fewer = tuple(row for row in (*ROWS, *BUSY) if not row.startswith("p3,"))
    for rows in (gone, fewer):
        other = one.ask(rows, query(adjacency))
        assert (other.said, other.paid, other.kept) == (whole.said, whole.paid, whole.kept)
        assert other.exact is not None
        assert whole.exact is not None
        moved = float(np.linalg.norm((whole.exact - other.exact).astype(np.float64)))
        if rows is gone:
            assert 0.8 * CLIP / GRID.step < moved <= limit


@pytest.mark.parametrize("adjacency", [R, A])
def test_a_deployed_party_shows_a_person_through_its_minimiser_alone(
    adjacency: Adjacency, tmp_path: Path
) -> None:
    """Nine records of one person move it no further than one record would."""
    one = scene(tmp_path, adjacency, queries=["erm"])
    task, regulariser = one.task, 2.0
    asked = ErmQuery(
        run="audit",
        round=0,
        grid=GRID,
        event=GaussianEvent(relative_noise=10.0, adjacency=adjacency, unit=Unit.PERSON),
        regulariser=regulariser,
        tolerance=task.certain_tolerance(regulariser),
    )
    moved = asked.sensitivity(task, sizes=(task.smallest,), adjacency=adjacency)
    assert moved is not None
    limit = moved / GRID.step + sqrt(task.dimension)
    whole = one.ask((*ROWS[:20], *BUSY, *ROWS[20:]), asked)
    assert whole.answered
    other = one.ask(ROWS if adjacency is A else (*ROWS, "other,0,-1,no"), asked)
    assert (other.said, other.paid, other.kept) == (whole.said, whole.paid, whole.kept)
    assert whole.exact is not None
    assert other.exact is not None
    apart = float(np.linalg.norm((whole.exact - other.exact).astype(np.float64)))
    assert 0.2 * limit < apart <= limit
    too_fine = replace(asked, tolerance=asked.tolerance / 2)
    assert not one.ask(ROWS, too_fine).answered


@pytest.mark.parametrize("adjacency", [R, A])
def test_a_part_has_noise_for_all_parties_that_a_person_may_be_at(
    adjacency: Adjacency, tmp_path: Path
) -> None:
    """Its own part moves by 1/√2 of what the noise is for: the person may be at two parties.

    Under replace-one by less: the other person may be at two others, 2·joining where an exchange
    in place would be `exchanging`.
    """
    tmp_path.chmod(0o700)
    person, off = {"unit": "person", "adjacency": adjacency.value}, {"secure_aggregation": "off"}
    deployment = Describing(
        folder=tmp_path,
        policy={**WILLING, **off, "by_party": True, "person_parties": 2, "units": ["person"]},
        budget={"epsilon": 20.0, **person},
        experiment={
            "run": off,
            "privacy": {"noise_at": "parties", **person},
            "persons": {"parties": 2, "records": 6},
            "strategy": {"by_party": True},
        },
    )
    for path in (deployment.server, deployment.home("north")):
        (path / "schema.toml").write_text(PERSONS)
    one = Scene(deployment, header="patient,age,dose,sick")
    task = one.task
    assert isinstance(task, TableTask)
    items, shares = items_of(DescribeOptions(bins=8), task.columns, total=True)
    design = weigh(items, shares, adjacency=adjacency, unit=Unit.PERSON)
    local = LocalNoise(law="gaussian", relative_noise=10.0, adjacency=adjacency, unit=Unit.PERSON)
    asked = StatisticsQuery(
        run="audit",
        round=0,
        grid=GRID,
        event=GaussianEvent(relative_noise=10.0, adjacency=adjacency, unit=Unit.PERSON),
        design=design,
        by_party=True,
        local=local,
    )
    joint = asked.sensitivity(task, sizes=task.sizes, adjacency=adjacency)
    mechanism = asked.local_mechanism(task, task.smallest)
    assert joint is not None
    assert mechanism is not None
    assert mechanism.noise_stddev >= 10.0 * joint
    whole = one.ask((*ROWS[:20], *BUSY, *ROWS[20:]), asked)
    other = one.ask(ROWS if adjacency is A else (*ROWS, "other,0,-1,no", "other,0,-1,no"), asked)
    assert whole.answered
    assert (other.said, other.paid, other.kept) == (whole.said, whole.paid, whole.kept)
    assert whole.exact is not None
    assert other.exact is not None
    moved = float(np.linalg.norm((whole.exact - other.exact).astype(np.float64)))
    limit = joint / sqrt(2) / GRID.step + sqrt(design.width)
    assert (0.9 if adjacency is A else 0.65) * limit < moved <= limit


def test_a_sample_is_charged_for_every_party_that_a_person_may_be_at(tmp_path: Path) -> None:
    one = scene(tmp_path, A, parties=2, person_parties=2)
    event = PoissonPartsEvent(
        relative_noise=10.0, sampling_rate=0.5, parts=2, adjacency=A, unit=Unit.PERSON
    )
    assert one.ask(ROWS, query(A, event=event, sampling_rate=0.5)).answered
    for parts in (1, 3, 1000):  # at the same relative noise, more are cheaper than there are
        other = replace(event, parts=parts)
        refused = one.ask(ROWS, query(A, event=other, sampling_rate=0.5))
        assert not refused.answered
        assert any("samples at 2 parties" in str(words) for words in refused.said)


def test_a_sample_at_one_party_is_not_charged_as_one_at_many(tmp_path: Path) -> None:
    """A thousand parts of a person are a cheap sample; here all of somebody is on one coin."""
    one = scene(tmp_path, A)
    event = PoissonPartsEvent(
        relative_noise=10.0, sampling_rate=0.5, parts=1000, adjacency=A, unit=Unit.PERSON
    )
    refused = one.ask(ROWS, query(A, event=event, sampling_rate=0.5))
    assert not refused.answered
    assert any("samples at 1 parties" in str(words) for words in refused.said)


def test_how_many_parties_a_person_may_be_at_is_for_the_owner_to_say(tmp_path: Path) -> None:
    """A server that counts on fewer would add less noise than such a person needs."""
    one = scene(tmp_path, A, parties=1, person_parties=2)
    refused = one.ask(ROWS, query(A))
    assert not refused.answered
    assert any("at 1 parties at most, and this party on 2" in str(words) for words in refused.said)


@pytest.mark.parametrize("adjacency", [R, A])
def test_a_party_that_cannot_tell_persons_apart_answers_for_none(
    adjacency: Adjacency, tmp_path: Path
) -> None:
    one = scene(tmp_path, adjacency, schema=SCHEMA)
    refused = one.ask(ROWS, query(adjacency))
    assert not refused.answered
    assert refused.exact is None


def test_releases_for_records_are_not_paid_from_a_budget_for_persons(tmp_path: Path) -> None:
    one = scene(tmp_path, A)
    event = GaussianEvent(relative_noise=10.0, adjacency=A)
    refused = one.ask(ROWS, query(A, event=event))
    assert not refused.answered
    assert any("record" in str(words) for words in refused.said)


def test_a_party_pays_for_no_persons_of_another_column(tmp_path: Path) -> None:
    """Its ledger added up what patients lose, and what visits do, as if they were one unit."""
    one = replace(scene(tmp_path, A), header="visit,patient,age,dose,sick")
    one.write(tuple(f"v{place},{row}" for place, row in enumerate(ROWS)))
    one.join()
    one.answering(query(A), 0)()
    schema = one.deployment.home("north") / "schema.toml"
    schema.write_text(PERSONS.replace('"patient"', '"visit"'))
    with pytest.raises(QueryRefused, match="LedgerMismatch"):
        one.answering(query(A), 1)()
    schema.write_text(PERSONS)
    one.answering(query(A), 1)()


def test_a_party_that_its_only_person_leaves_answers_as_before(tmp_path: Path) -> None:
    """It refused its empty table, and so told that the person had left."""
    one = scene(tmp_path, A)
    whole, nobody = (one.ask(table, query(A)) for table in (BUSY, ()))
    assert whole.answered
    assert (nobody.said, nobody.paid, nobody.kept) == (whole.said, whole.paid, whole.kept)
    assert nobody.exact is not None
    assert not nobody.exact.any()


def test_learned_protection_is_deployed_for_persons(tmp_path: Path) -> None:
    """Two releases a round, a norm and a gradient, each paid for as one about a person."""
    tmp_path.chmod(0o700)
    deployment = Deployment(
        folder=tmp_path,
        policy={"strategies": ["learned-protection"], "units": ["person"], "min_noise": 0.001},
        budget={"epsilon": 20.0, "unit": "person", "composition": "rdp"},
        experiment={
            "privacy": {"unit": "person", "epsilon": 8.0},
            "persons": {"parties": 1, "records": 6},
            "model": {"l2": 0.05},
        },
    )
    for path in (deployment.server, *map(deployment.home, deployment.names)):
        (path / "schema.toml").write_text(PERSONS)
    for name in deployment.names:
        rows = "\n".join(("patient,age,dose,sick", *ROWS, ""))
        (deployment.home(name) / "records.csv").write_text(rows)
    tables = tomllib.loads(deployment.config())
    tables["strategy"] = {"name": "learned-protection", "horizon": 2, "clip": 0.5}
    result = deployment.run(deployment.server / "runs" / "a", config=to_toml(tables))
    for name in deployment.names:
        with deployment.ledger(name) as ledger:
            details = [str(row.detail) for row in ledger.rows() if row.kind == "reserved"]
        assert len(details) == 2 * result["rounds"]
        assert all("person" in detail for detail in details)
