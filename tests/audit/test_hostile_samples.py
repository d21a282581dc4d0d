"""Attacks by samples: of nobody, of a few, shrinking, or told by a count."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv.privacy.budget import Budget
from fedpriv.privacy.ledger import Ledger
from fedpriv.simulations.experiment.file import read_experiment
from fedpriv.simulations.run.launch import carry_through, open_session
from tests.audit.examination import difference, limit
from tests.audit.laboratory import moved
from tests.audit.neighbours import GRADIENTS, Case, table, write
from tests.audit.test_neighbouring_persons import PersonCase, visits

if TYPE_CHECKING:
    from pathlib import Path

    from tests.audit.laboratory import Laboratory


@pytest.mark.parametrize(
    "model",
    [
        {"name": "softmax"},
        {"name": "huber-svm"},
        {"name": "mlp", "hidden": [2], "activation": "relu"},
    ],
    ids=str,
)
def test_a_sample_of_nobody_is_summed_like_any_other(
    model: dict[str, Any], laboratory: Laboratory, tmp_path: Path
) -> None:
    """A Poisson sample is empty more often than not here: an error would tell when it is."""
    strategy = {
        "name": "gradient-perturbation",
        "rounds": 2,
        "sampling_rate": 1e-9,
        "learning_rate": 0.1,
    }
    case = Case(name="nobody", strategy=strategy, adjacency="add-remove", model=model)
    one = laboratory.run(case, table(case.task), tmp_path / "one")
    assert one.code == 0, one.said
    assert [int(np.abs(release.total).max()) for release in one.releases] == [0, 0]


def test_a_statement_says_so_if_any_round_rests_on_a_sample(
    laboratory: Laboratory, tmp_path: Path
) -> None:
    """Samples grew until everybody was in them: "full batch", it said, of noise for a sample."""
    growing = {"first": 0.5, "factor": 2.0, "every": 2}
    case = Case(
        name="growing",
        strategy={**GRADIENTS, "sampling_rate": growing},
        adjacency="add-remove",
    )
    one = laboratory.run(case, table(case.task), tmp_path / "one")
    assert one.code == 0, one.said
    text = (one.directory / "statement.txt").read_text()
    assert "sampling assumed: Poisson, rates 0.5 to 1; actual: Poisson" in text
    assert one.json("statement.json")["run"]["sampler"] == "Poisson"


def test_samples_that_shrink_are_paid_for_before_everybody_is_asked(
    tmp_path: Path,
) -> None:
    """The first round, of everybody, was paid for alone, and all others then refused: for nothing.

    A ledger of Rényi divergences has a price for either.
    """
    growing = {"first": 1.0, "factor": 0.5, "every": 2}
    case = Case(
        name="shrinking",
        strategy={**GRADIENTS, "sampling_rate": growing},
        adjacency="add-remove",
    )
    study = read_experiment(write(case, table(case.task), tmp_path / "one"))
    ledger = tmp_path / "own.ledger"
    budget = Budget(epsilon=20.0, delta=1e-5)
    terms: dict[str, Any] = {"adjacency": "add-remove", "composition": "rdp"}
    Ledger.create(ledger, data_name="clinic", budget=budget, **terms).close()
    session = open_session(study, out=tmp_path / "out", release=True, ledger=ledger)
    result = carry_through(session)
    assert result is not None
    assert result["rounds"] == GRADIENTS["rounds"]


@pytest.mark.parametrize("unit", ["record", "person"])
def test_a_sample_hides_a_gradient_and_its_count_by_one_coin(
    unit: str, laboratory: Laboratory, tmp_path: Path
) -> None:
    """Whoever is not drawn adds nothing to either; and no norm is stated of a bound that moves."""
    strategy = {"name": "adaptive-clipping", "rounds": 6, "learning_rate": 0.1}
    facts: dict[str, Any] = {
        "name": "one coin",
        "strategy": {**strategy, "sampling_rate": 0.5, "clip": 0.05, "count_share": 0.5},
        "adjacency": "add-remove",
        "data": {"test_fraction": 0.0},
    }
    case = Case(**facts) if unit == "record" else PersonCase(**facts)
    rows = sorted(visits("binary"), key=lambda row: row["clinic"])
    last = [{**rows[-1], "patient": "z"} for _ in range(1 if unit == "record" else 4)]
    one = laboratory.run(case, [*rows, *last], tmp_path / "one")
    assert one.code == 0, one.said
    other = laboratory.run(case, rows, tmp_path / "other", script=one)
    assert difference(case, one, other) == []
    apart = [moved(a, b) / limit(a) for a, b in zip(one.releases, other.releases, strict=True)]
    assert min(apart) == 0
    assert max(apart) > 0.99
    text = " ".join((one.directory / "statement.txt").read_text().split())
    assert "clipped to norm" not in text
    assert "the bound, 0.05 in the first round, which follows what was released" in text
