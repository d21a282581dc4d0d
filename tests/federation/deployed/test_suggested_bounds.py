"""`--suggest-bounds` of deployed parties: columns without bounds, if the policy lists them."""

from __future__ import annotations

import json
import tomllib
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv._toml import to_toml
from fedpriv.data.tables.magnitudes import EDGES, magnitude_facts
from fedpriv.federation.engines.grid import RoundFailed
from fedpriv.federation.party.guard import QueryRefused
from fedpriv.federation.table_task import TableTask
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import GaussianEvent
from fedpriv.privacy.planning.statistics.statistics_blocks import Block
from fedpriv.privacy.planning.statistics.statistics_design import weigh
from tests.federation.deployed.deployments import NAMES, SIZES
from tests.federation.deployed.test_deployed_description import (
    WILLING,
    Describing,
    answered,
    asked,
    north,
)

if TYPE_CHECKING:
    from pathlib import Path

LISTED: dict[str, Any] = {**WILLING, "suggest_bounds": ["income"], "min_noise": 0.01}
BOUNDS: dict[str, Any] = {"strategy": {"magnitudes": ["income"]}, "privacy": {"epsilon": 50.0}}
COSTLIER = GaussianEvent(relative_noise=3.0, adjacency=Adjacency.REPLACE_ONE)
RICH: dict[str, Any] = {"epsilon": 100.0}


def with_income(folder: Path, *, values: list[str] | None = None, **more: Any) -> Describing:
    """Tables with a column that no schema describes: incomes from 100 to 1000, or ``values``."""
    deployment = Describing(folder=folder, **{"budget": RICH, **more})
    for number, name in enumerate(deployment.names):
        path = deployment.home(name) / "records.csv"
        header, *rows = path.read_text().splitlines()
        rng = np.random.default_rng(number)
        told = values or [f"{each:.2f}" for each in rng.uniform(100, 1000, len(rows))]
        rows = [f"{row},{told[place % len(told)]}" for place, row in enumerate(rows)]
        path.write_text("\n".join([f"{header},income", *rows, ""]))
    return deployment


def test_parties_pay_for_bounds_of_a_column_that_they_list(tmp_path: Path) -> None:
    """At 5 deviations of noise and more, a cell of 30 is missed, or a wrong one told, 1e-4."""
    deployment = with_income(tmp_path, policy=LISTED, experiment=BOUNDS)
    out = tmp_path / "runs" / "one"
    deployment.run(out)
    found = json.loads((out / "statistics.json").read_text())
    assert set(found["columns"]) == {"income"}
    assert (found["columns"]["income"]["min"], found["columns"]["income"]["max"]) == (64, 1024)
    for name in NAMES:
        assert len(deployment.reserved(name)) == 1
        with deployment.ledger(name) as ledger:
            assert ledger.spent().guarantee.epsilon == pytest.approx(50.0, rel=1e-2)
    statement = " ".join((out / "statement.txt").read_text().split())
    assert "the counts of magnitudes over all parties, by powers of two, with noise" in statement


@pytest.mark.parametrize("listed", [[], ["dose"], ["Income"]])
@pytest.mark.parametrize("values", [None, ["much", "-"], ["1e300"]])
def test_a_column_that_is_not_listed_is_refused_whatever_it_holds(
    listed: list[str], values: list[str] | None, tmp_path: Path
) -> None:
    policy = {**WILLING, "suggest_bounds": listed}
    deployment = with_income(tmp_path, values=values, policy=policy, experiment=BOUNDS)
    with pytest.raises(RoundFailed, match="asks for the magnitudes of 'income', and"):
        deployment.run(tmp_path / "runs" / "one")
    for name in NAMES:
        assert not (deployment.home(name) / f"{name}.ledger").exists()


def test_numbers_that_are_none_are_told_of_to_their_owner_alone(tmp_path: Path) -> None:
    deployment = with_income(tmp_path, values=["much"], policy=LISTED, experiment=BOUNDS)
    with pytest.raises(RoundFailed, match="the records of this party cannot be used") as failed:
        deployment.run(tmp_path / "runs" / "one")
    assert "much" not in str(failed.value)
    assert not deployment.reserved("north")


def test_an_answer_counts_the_magnitudes_of_the_partys_own_column(tmp_path: Path) -> None:
    """Infinite and missing ones, too; not those of records that are set apart for testing."""
    odd = ["", "inf", "-3", "0", "1e-30", "700"]
    deployment = with_income(tmp_path, values=odd, policy=LISTED, experiment=BOUNDS)
    home = deployment.home("north")
    header, *rows = (home / "records.csv").read_text().splitlines()
    apart = [f"{row},learn" for row in rows] + [f"{rows[0]},test"]
    (home / "records.csv").write_text("\n".join([f"{header},fold", *apart, ""]))
    schema = tomllib.loads((home / "schema.toml").read_text())
    marked = {"test_column": "fold", "test_values": ["test"], **schema}
    (home / "schema.toml").write_text(to_toml(marked))
    facts = magnitude_facts(("income",))[0]
    block = Block(kind="histogram", columns=(0,), cells=(facts.codes,))
    design = weigh([[block]], {}, adjacency=Adjacency.REPLACE_ONE)
    query = asked(deployment, design=design)
    task = north(deployment).engagement.task
    assert isinstance(task, TableTask)
    assert [column.name for column in task.columns] == ["income"]
    counts = query.grid.decode(answered(deployment, query)) * query.grid.step
    counts /= design.blocks[0].weight
    expected = np.zeros(facts.codes)
    for place in range(SIZES[0]):
        text = odd[place % len(odd)]
        cell = facts.codes - 1 if not text else np.searchsorted(EDGES, float(text), side="right")
        expected[cell] += 1
    assert counts == pytest.approx(expected, abs=1e-2)
    assert len(deployment.reserved("north")) == 1
    with pytest.raises(QueryRefused, match="a second answer"):
        answered(deployment, asked(deployment, design=design, round=0, event=COSTLIER))
