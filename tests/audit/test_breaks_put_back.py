"""Privacy faults that the audit is for, put back one at a time: it finds each of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import fedpriv.learning.clipping.clipped_sum
import fedpriv.simulations.experiment.records.splits
import fedpriv.simulations.run.identity
import fedpriv.simulations.run.release_rules
import fedpriv.strategies.common.inference.linear_inference
import fedpriv.strategies.common.inference.logistic_inference
import fedpriv.strategies.common.plans.second_order_plans
import fedpriv.strategies.common.trial_score
from fedpriv.data.partition import KINDS
from fedpriv.federation.queries.hessian import hessian_sensitivity
from fedpriv.federation.queries.moments import moment_sensitivity
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.planning.objective.objective_rules import ObjectiveProblem
from fedpriv.simulations.run.history import Record
from tests.audit.examination import difference, findings
from tests.audit.neighbours import GRADIENTS, INFERENCE, OBJECTIVE, OUTPUT, Case, table

if TYPE_CHECKING:
    from pathlib import Path

    from fedpriv.data import Dataset
    from tests.audit.laboratory import Laboratory


def test_a_test_split_by_position_is_found(
    laboratory: Laboratory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def by_position(dataset: Dataset, *, fraction: float, seed: int) -> Dataset:
        in_test = np.arange(len(dataset.train)) % round(1 / fraction) == 0
        return replace(
            dataset, train=dataset.train.take(~in_test), test=dataset.train.take(in_test)
        )

    monkeypatch.setattr(fedpriv.simulations.experiment.records.splits, "hold_out", by_position)
    case = Case(name="split", strategy=GRADIENTS, adjacency="add-remove")
    assert any("a sum moved" in finding for finding in findings(case, laboratory, tmp_path))


def test_a_loss_with_no_bound_outside_a_ball_is_found(
    laboratory: Laboratory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Objective perturbation with the squared loss: b carries the point out of the ball."""
    monkeypatch.setattr(ObjectiveProblem, "__post_init__", lambda self: None)
    case = Case(
        name="squared", strategy=OBJECTIVE, model={"name": "squared", "l2": 0.01}, epsilon=0.1
    )
    assert any(
        "exact gradients moved" in finding for finding in findings(case, laboratory, tmp_path)
    )


def test_an_l2_clip_under_the_noise_of_an_l1_clip_is_found(
    laboratory: Laboratory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        fedpriv.learning.clipping.clipped_sum,
        "_clip_in_l1",
        fedpriv.learning.clipping.clipped_sum._clip_factors,
    )
    strategy = {**GRADIENTS, "clip_in": "l1", "clip": 0.3}
    case = Case(name="clip", strategy=strategy, delta=0.0)
    assert any("a sum moved" in finding for finding in findings(case, laboratory, tmp_path))


def test_a_matrix_with_the_noise_of_one_record_where_two_differ_is_found(
    laboratory: Laboratory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B² instead of √2·B²."""
    monkeypatch.setattr(
        fedpriv.strategies.common.plans.second_order_plans,
        "moment_sensitivity",
        lambda task, **facts: moment_sensitivity(
            task, **{**facts, "adjacency": Adjacency.ADD_REMOVE}
        ),
    )
    case = Case(name="matrix", strategy={"name": "second-order", "rounds": 1})
    assert any("a sum moved" in finding for finding in findings(case, laboratory, tmp_path))


def test_moments_with_the_noise_of_one_record_where_two_differ_are_found(
    laboratory: Laboratory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2B² instead of 2√2·B², features and label together."""
    monkeypatch.setattr(
        fedpriv.strategies.common.inference.linear_inference,
        "moment_sensitivity",
        lambda task, **facts: moment_sensitivity(
            task, **{**facts, "adjacency": Adjacency.ADD_REMOVE}
        ),
    )
    case = Case(
        name="moments",
        strategy=INFERENCE,
        model={"name": "squared"},
        data={"scaling": "divide", "test_fraction": 0.0},
    )
    assert any("a sum moved" in finding for finding in findings(case, laboratory, tmp_path))


def test_a_hessian_with_a_quarter_of_its_noise_is_found(
    laboratory: Laboratory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At whatever point the random term leads to; records of this table share two features."""
    monkeypatch.setattr(
        fedpriv.strategies.common.inference.logistic_inference,
        "hessian_sensitivity",
        lambda task, **facts: hessian_sensitivity(task, **facts) / 4,
    )
    case = Case(
        name="hessian", strategy=INFERENCE, data={"scaling": "divide", "test_fraction": 0.0}
    )
    assert any("a sum moved" in finding for finding in findings(case, laboratory, tmp_path))


def test_a_score_with_the_noise_of_one_count_where_two_move_is_found(
    laboratory: Laboratory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1 instead of 2, where a record that is right is exchanged for one that is wrong."""
    monkeypatch.setattr(fedpriv.strategies.common.trial_score, "lead_sensitivity", lambda _: 1.0)
    trials = {"on": "private", "grid": {"strategy.clip": [0.5, 1.0]}, "expected_trials": 4}
    case = Case(name="score", strategy={**GRADIENTS, "rounds": 1}, tuning={**trials, "eta": 20})
    assert any("a sum moved by 2" in finding for finding in findings(case, laboratory, tmp_path))


def test_a_published_number_of_exchanges_is_found(
    laboratory: Laboratory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Record, "made", property(lambda self: self.exchanges))
    case = Case(name="exchanges", strategy={**OUTPUT, "fit": "joint"}, model={"l2": 0.003})
    assert any("result.json differs" in finding for finding in findings(case, laboratory, tmp_path))


@pytest.mark.parametrize("strategy", [GRADIENTS, OBJECTIVE], ids=lambda each: each["name"])
def test_a_published_number_of_records_is_found(
    strategy: dict[str, Any],
    laboratory: Laboratory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        fedpriv.simulations.experiment.records.data,
        "_declared",
        lambda _section, _parties, counted: counted,
    )
    case = Case(name="count", strategy=strategy, adjacency="add-remove")
    problems = findings(case, laboratory, tmp_path)
    assert any("result.json differs" in what for what in problems)
    assert any("plan.json differs" in what for what in problems)
    if strategy is OBJECTIVE:  # its noise is for n records: another n, another law
        assert any("the noise depends on a record" in what for what in problems)


def test_parties_that_are_dealt_out_by_label_are_found(
    laboratory: Laboratory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fedpriv.simulations.run.release_rules, "BY_RECORD", KINDS)
    data = {"partition": "dirichlet", "parties": 3, "alpha": 0.5, "test_fraction": 0.0}
    case = Case(name="dealt", strategy=OUTPUT, data=data)
    rows = table("binary")
    one = laboratory.run(case, rows, tmp_path / "one")
    problems = []
    for place in range(6):  # which flips move how many others is a matter of luck
        flipped = [dict(row) for row in rows]
        flipped[place]["outcome"] = "no" if rows[place]["outcome"] == "yes" else "yes"
        other = laboratory.run(case, flipped, tmp_path / f"{place}", script=one)
        problems += difference(case, one, other)
    assert any("a sum moved" in what or "differs" in what for what in problems)


def test_a_label_that_is_not_declared_is_found(
    laboratory: Laboratory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its only positive record, a table was refused; with it, it was not."""
    for module, rule in (
        (fedpriv.simulations.run.release_rules, "require_releasable_schema"),
        (fedpriv.simulations.run.identity, "require_releasable"),
    ):
        monkeypatch.setattr(module, rule, lambda *_, **__: None)
    case = Case(name="label", strategy=GRADIENTS, adjacency="add-remove")
    schema = case.schema()
    del schema["columns"]["outcome"]
    monkeypatch.setattr(Case, "schema", lambda _self: schema)
    rows = [{**row, "outcome": "no"} for row in table("binary")]
    rows[0]["outcome"] = "yes"
    one = laboratory.run(case, rows, tmp_path / "one")
    other = laboratory.run(case, rows[1:], tmp_path / "other", script=one)
    assert (one.code, other.code) == (0, 2)


def test_such_a_schema_is_refused_whatever_the_table_holds(
    laboratory: Laboratory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(name="label", strategy=GRADIENTS, adjacency="add-remove")
    schema = case.schema()
    del schema["columns"]["outcome"]
    monkeypatch.setattr(Case, "schema", lambda _self: schema)
    rows = table("binary")
    said = {
        laboratory.run(case, some, tmp_path / str(number)).said
        for number, some in enumerate((rows, rows[1:], [{**row, "outcome": "no"} for row in rows]))
    }
    (only,) = said
    assert "label 'outcome' must be described" in only
