"""Statements of deployed descriptions: of whom, and of which columns, a party signs for."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

import pytest

from fedpriv._collusion import tolerance
from fedpriv.federation.deployed.statements.statement_document import recomputed
from fedpriv.privacy.planning.statistics.statistics import (
    RELEASED_BY_PARTY,
    RELEASED_MAGNITUDES,
    RELEASED_SUMS,
)
from fedpriv.simulations.deploy.keys import read_identity
from fedpriv.simulations.deploy.run.jobs.attestation import signed_by_server
from tests.federation.deployed.deployments import FOUR
from tests.federation.deployed.test_deployed_description import Describing
from tests.federation.deployed.test_described_by_party import ALONE, APART
from tests.federation.deployed.test_hostile_statements import asked
from tests.federation.deployed.test_suggested_bounds import BOUNDS, LISTED, with_income

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

BY_ITSELF = (
    "4 parties, active. Every party is told of by itself: masks hide no party among the others. "
    "With 1 missing the run stops."
)
OF_TOTALS: dict[str, Any] = {**APART, "strategy": {}}


def released(document: Mapping[str, Any], words: str) -> dict[str, Any]:
    """The statement, and all that follows from it, with other words for what was released."""
    found = deepcopy(dict(document))
    plan, trust = found["statement"]["plan"], found["statement"]["trust"]
    trust["sees"] = [line.replace(plan["released"], words) for line in trust["sees"]]
    plan["released"] = words
    return found


def ran(deployment: Describing, out: Path) -> tuple[str, dict[str, Any]]:
    """The text of its experiment, and its statement as its server signs it."""
    deployment.run(out)
    key = read_identity(deployment.server / "identity.key")
    text = (out / "config.toml").read_text()
    return text, dict(signed_by_server(out, deployment.roster, key).document)


def faults(document: Mapping[str, Any]) -> list[str]:
    return [each.words for each in recomputed(document) if not each.passed]


def test_who_is_described_by_itself_signs_for_that_alone(tmp_path: Path) -> None:
    deployment = Describing(folder=tmp_path, policy=ALONE, experiment=APART)
    out = tmp_path / "server" / "runs" / "a"
    text, true = ran(deployment, out)
    assert true["statement"]["plan"]["released"] == RELEASED_BY_PARTY
    assert true["noise_shares"] is None
    assert faults(true) == []
    lie = released(true, RELEASED_SUMS)
    assert "does not say in what shares" in "".join(faults(lie))
    at_server = released(true, RELEASED_BY_PARTY)
    at_server["statement"]["plan"]["noise_at"] = "server"
    assert any("whose noise no party added alone" in words for words in faults(at_server))
    for each in (lie, at_server):
        assert not asked(deployment, out, text, each).messages
    assert asked(deployment, out, text, true).messages


def test_a_statement_does_not_promise_that_masks_hide_who_is_described_by_itself(
    tmp_path: Path,
) -> None:
    """Four parties may miss one, and open no sum of fewer than three: of totals, not of these."""
    deployment = Describing(folder=tmp_path, policy=ALONE, experiment=APART, **FOUR)
    out = tmp_path / "server" / "runs" / "a"
    text, true = ran(deployment, out)
    trust = true["statement"]["trust"]
    assert trust["tolerates"] == trust["sees"][-1] == BY_ITSELF
    assert "the server sees the sums over every party by itself" in trust["sees"][1]
    threshold = next(each for each in recomputed(true) if "t = " in each.words)
    assert threshold.words.endswith("with 1 colluding; every party's part by itself.")
    lie = deepcopy(true)
    lie["statement"]["trust"]["tolerates"] = tolerance(
        parties=4, mode="active", colluders=1, minimum=3
    )
    assert any("trust.tolerates" in words for words in faults(lie))
    assert "trust.tolerates" in asked(deployment, out, text, lie).refusal


def test_totals_are_not_signed_for_as_parties_nor_bounds_as_sums(tmp_path: Path) -> None:
    (tmp_path / "totals").mkdir(mode=0o700)
    deployment = Describing(folder=tmp_path / "totals", policy=ALONE, experiment=OF_TOTALS)
    out = tmp_path / "totals" / "server" / "runs" / "a"
    text, true = ran(deployment, out)
    assert true["statement"]["plan"]["released"] == RELEASED_SUMS
    lie = released(true, RELEASED_BY_PARTY)
    assert "it tells of every party by itself, whose noise no party added alone." in faults(lie)
    assert not asked(deployment, out, text, lie).messages

    (tmp_path / "bounds").mkdir(mode=0o700)
    bounds = with_income(tmp_path / "bounds", policy=LISTED, experiment=BOUNDS)
    out = tmp_path / "bounds" / "server" / "runs" / "a"
    text, true = ran(bounds, out)
    assert true["statement"]["plan"]["released"] == RELEASED_MAGNITUDES
    lie = released(true, RELEASED_SUMS)
    assert faults(lie) == []
    assert "plan.released" in asked(bounds, out, text, lie).refusal
    assert asked(bounds, out, text, true).messages


@pytest.mark.parametrize("words", ["the sums over every party", "all records"])
def test_no_other_words_stand_for_what_was_released(words: str, tmp_path: Path) -> None:
    deployment = Describing(folder=tmp_path, policy=ALONE, experiment=APART)
    _, true = ran(deployment, tmp_path / "server" / "runs" / "a")
    assert any(
        "nothing that 'describe' releases" in fault for fault in faults(released(true, words))
    )
