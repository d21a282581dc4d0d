"""docs/flower-app.md: the app that it shows runs, and its ledger pays for every round."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, Context

from fedpriv.federation.engines.local import LocalGrid
from fedpriv.federation.party.train_app import train_app
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.ledger import Kind, Ledger
from tests.federation.worlds import build, linear_task

PAGE = Path(__file__).parents[3] / "docs" / "flower-app.md"
TASK = linear_task((20, 30), 3, regulariser=0.1)


def test_the_app_of_the_page_runs_and_pays_round_by_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    budget = Budget(epsilon=1.0, delta=1e-6)
    Ledger.create(
        "clinics.ledger", data_name="clinics", budget=budget, adjacency="replace-one"
    ).close()
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(compile(block, str(PAGE), "exec"), names)  # noqa: S102 (our own page)
    theta = np.load("theta.npy")
    records = names["load_records"](0)
    assert (np.sign(records.X @ theta) == records.y).mean() > 0.8
    with Ledger.open("clinics.ledger") as ledger:
        assert [row.kind for row in ledger.rows()].count(Kind.COMMITTED) == 20
        ledger.verify()
    # The same run again: its releases are replayed, and nobody is asked.
    names["server"](LocalGrid(train_app(nobody), 3), names["context"])
    np.testing.assert_array_equal(np.load("theta.npy"), theta)


def nobody(_context: Context) -> Any:
    raise AssertionError("a party was asked")


@pytest.mark.parametrize(
    ("name", "more", "message"),
    [
        ("gradient-perturbation", {"sharing": {"dropout": 0.0}}, "noise_at must be 'server'"),
        ("local-gradient-perturbation", {}, "needs a deployment of fedpriv"),
        ("local-objective-perturbation", {}, "needs a deployment of fedpriv"),
    ],
)
def test_noise_that_flowers_loop_would_undo_is_refused(
    tmp_path: Path, name: str, more: dict[str, Any], message: str
) -> None:
    with Ledger.create(
        tmp_path / "l", data_name="x", budget=Budget(epsilon=2, delta=1e-5), adjacency="replace-one"
    ) as ledger:
        strategy = build(name, TASK, ledger=ledger, **more)
        with pytest.raises(ValueError, match=message):
            strategy.start(LocalGrid(train_app(nobody), 2), ArrayRecord(), num_rounds=1)
        assert not list(ledger.runs())  # nothing was paid for
