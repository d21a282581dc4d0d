"""A study with paid trials: its file, a release of it that begins, and what its ledger says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedpriv.privacy.ledger import Ledger

if TYPE_CHECKING:
    from pathlib import Path


TRIALS = """
[data]
name = "synthetic"

[strategy]
name = "gradient-perturbation"
rounds = 2

[privacy]
epsilon = 2.0

[tuning]
on = "private"
expected_trials = 3

[tuning.grid]
"strategy.clip" = [0.25, 1.0]
"strategy.rounds" = [1, 3]
"""


def kinds(path: Path) -> list[str]:
    with Ledger.open(path, read_only=True) as ledger:
        assert ledger.verify().spent.within_budget
        return [row.kind for row in ledger.rows()]
