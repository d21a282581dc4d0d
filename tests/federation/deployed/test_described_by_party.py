"""Every deployed party described by itself: its own noise, if its own policy allows it."""

from __future__ import annotations

import json
from dataclasses import replace
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.stats import chi2

from fedpriv.federation.engines.grid import RoundFailed
from fedpriv.federation.party.guard import QueryRefused
from fedpriv.federation.queries.local_noise import LocalNoise
from fedpriv.federation.table_task import TableTask
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.mechanisms.shares import NoiseShare
from fedpriv.privacy.planning.statistics.statistics_blocks import Block
from fedpriv.privacy.planning.statistics.statistics_design import weigh
from fedpriv.secagg import FixedPoint
from tests.federation.deployed.deployments import FOUR, NAMES, SIZES, take_any_kind
from tests.federation.deployed.test_deployed_description import (
    WILLING,
    Describing,
    answered,
    asked,
    north,
)

if TYPE_CHECKING:
    from pathlib import Path

    from fedpriv.federation.queries.kinds import StatisticsQuery

R, A = Adjacency.REPLACE_ONE, Adjacency.ADD_REMOVE
APART: dict[str, Any] = {
    "strategy": {"by_party": True},
    "privacy": {"noise_at": "parties"},
}
ALONE: dict[str, Any] = {**WILLING, "noise_at": "parties", "by_party": True}
MANY = 2048  # cells of a tree: numbers enough to measure noise on
FALSE_FAILURE = 1e-9


def describing(folder: Path, **more: Any) -> Describing:
    return Describing(folder=folder, **{"policy": ALONE, "experiment": APART, **more})


def apart(deployment: Describing, *, relative: float = 4.0, **changes: Any) -> StatisticsQuery:
    """The query of a run by party, and its event, with noise of each party's own."""
    tree = Block(kind="tree", columns=(1,), cells=(MANY,))
    local = LocalNoise(law="gaussian", relative_noise=relative, adjacency=R)
    values: dict[str, Any] = {
        "by_party": True,
        "design": weigh([[tree]], {}, adjacency=R),
        "grid": FixedPoint(step=2.0**-20, bits=64),
        "event": local.mechanism(sensitivity=1.0, dimension=1).event(),
        "local": local,
        **changes,
    }
    return asked(deployment, **values)


def test_every_party_is_told_of_and_pays_once(tmp_path: Path) -> None:
    federation = describing(tmp_path)
    out = tmp_path / "runs" / "one"
    federation.run(out)
    found = json.loads((out / "statistics.json").read_text())
    assert list(found["by_party"]) == list(NAMES)
    assert [own["total"]["count"] for own in found["by_party"].values()] == list(SIZES)
    noise = {own["release"]["noise_stddev"] for own in found["by_party"].values()}
    assert found["release"]["noise_stddev"] == pytest.approx(sqrt(3) * noise.pop())
    assert not noise  # the same at all parties
    for name in NAMES:
        assert len(federation.reserved(name)) == 1
        with federation.ledger(name) as ledger:
            assert ledger.spent().guarantee.epsilon == pytest.approx(2.0, rel=1e-6)
    plan = json.loads((out / "plan.json").read_text())
    assert plan["noise_at"] == "parties"
    assert "share" not in str(plan["mechanisms"])
    statement = " ".join((out / "statement.txt").read_text().split())
    assert "the sums over every party by itself, with noise" in statement
    assert "the parties add the noise" in statement


@pytest.mark.parametrize(
    ("policy", "adjacency"), [({}, "replace-one"), ({"noise_at": "server"}, "add-remove")]
)
def test_a_part_is_the_partys_own_sum_with_the_planned_noise(
    policy: dict[str, Any], adjacency: str, tmp_path: Path
) -> None:
    """Σ noise²/σ² is χ² but for 1e-9; half of the noise, or none, is caught. Nothing is beside."""
    relation = Adjacency(adjacency)
    federation = describing(
        tmp_path,
        policy={**ALONE, **policy},
        budget={"adjacency": adjacency},
        experiment={**APART, "privacy": {"noise_at": "parties", "adjacency": adjacency}},
    )
    local = LocalNoise(law="gaussian", relative_noise=4.0, adjacency=relation)
    event = local.mechanism(sensitivity=1.0, dimension=1).event()
    query = apart(federation, local=local, event=event)
    task, grid = north(federation).engagement.task, query.grid
    assert isinstance(task, TableTask)
    ring = answered(federation, query)
    parts = grid.decode(ring).reshape(3, -1)
    assert not parts[1:].any()
    mechanism = query.local_mechanism(task, SIZES[0])
    assert mechanism is not None
    stated = query.sensitivity(task, sizes=task.sizes, adjacency=relation)
    assert stated is not None
    assert mechanism.noise_stddev >= 4.0 * stated
    rows = (federation.home("north") / "records.csv").read_text().splitlines()[1:]
    ages = np.array([float(row.split(",")[0]) for row in rows])
    leaves = np.bincount((ages / 100 * MANY).astype(int), minlength=MANY)
    weight = query.design.blocks[0].weight
    noise = (parts[0][-MANY:] * grid.step - weight * leaves) / mechanism.noise_stddev

    def likely(values: Any) -> bool:
        low, high = chi2.ppf([FALSE_FAILURE / 2, 1 - FALSE_FAILURE / 2], MANY)
        return bool(low <= np.square(values).sum() <= high)

    assert likely(noise)
    assert not likely(noise / 2)
    assert (answered(federation, query) == ring).all()  # one draw, paid for once
    assert len(federation.reserved("north")) == 1
    with pytest.raises(QueryRefused, match="a second answer"):
        answered(
            federation,
            replace(
                query, design=weigh([[Block(kind="moments", columns=(1,))]], {}, adjacency=relation)
            ),
        )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"local": None}, "keeps the answers of all parties apart"),
        ({"local": None, "share": NoiseShare(law="skellam", minimum=3, colluders=1, parameter=1e6)},
         "is not that of"),
        ({"local": LocalNoise(law="gaussian", relative_noise=2.0, adjacency=R)}, "is not that of"),
        ({"local": LocalNoise(law="l2-laplace", relative_noise=4.0, adjacency=R)},
         "is not that of"),
        ({"by_party": False, "local": None}, "asks for statistics by party"),
        ({"grid": FixedPoint(step=2.0**-42, bits=64)}, "the noise cannot be drawn"),
    ],
)  # fmt: skip
def test_a_party_answers_only_with_all_of_its_noise(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    federation = describing(tmp_path, policy={**ALONE, "noise_at": "server"})
    with pytest.raises(QueryRefused, match=message):
        answered(federation, apart(federation, **changes))
    assert not (federation.home("north") / "north.ledger").exists()


@pytest.mark.parametrize("records", [None, "", "age,dose,sick\n1,0,yes\n", "not a table"])
def test_an_unwilling_party_says_so_whatever_it_holds(records: str | None, tmp_path: Path) -> None:
    federation = describing(tmp_path, policy={**ALONE, "by_party": False})
    if records is not None:
        (federation.home("north") / "records.csv").write_text(records)
    with pytest.raises(QueryRefused, match=r"policy\.by_party of its own file is false") as refused:
        answered(federation, apart(federation))
    assert str(refused.value).count("party") < 4
    assert not (federation.home("north") / "north.ledger").exists()


def test_the_policy_is_held_against_every_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where nobody knows which forms of query a run puts."""
    take_any_kind(monkeypatch)
    federation = describing(tmp_path, policy={**ALONE, "by_party": False})
    with pytest.raises(QueryRefused, match=r"policy\.by_party of its own file is false"):
        answered(federation, apart(federation))


@pytest.mark.parametrize("names", [3, 4])
def test_nobody_has_paid_where_one_party_is_unwilling(names: int, tmp_path: Path) -> None:
    """It does not join, and the run ends before any query, even if four may miss one."""
    federation = describing(tmp_path, **(FOUR if names == 4 else {}))
    federation.write_party("south", policy={"by_party": False})
    with pytest.raises(RoundFailed, match=r"policy\.by_party of its own file is false"):
        federation.run(tmp_path / "runs" / "one")
    for name in federation.names:
        assert not (federation.home(name) / f"{name}.ledger").exists()


def test_a_willing_party_is_not_told_apart_in_a_run_of_totals(tmp_path: Path) -> None:
    federation = describing(tmp_path, experiment={"privacy": {"noise_at": "parties"}})
    with pytest.raises(QueryRefused, match="asks for statistics, and this query is for"):
        answered(federation, apart(federation))


def test_a_server_that_would_see_exact_parts_is_refused(tmp_path: Path) -> None:
    federation = describing(tmp_path, experiment={"strategy": {"by_party": True}})
    with pytest.raises(ValueError, match=r"privacy\.noise_at must be 'parties' to describe every"):
        federation.run(tmp_path / "runs" / "one")
