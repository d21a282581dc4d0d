"""`fedpriv deploy run` of a description, in real processes: statistics, payment, signatures.

With ``FEDPRIV_STRESS=1``: the in-process twin, `test_deployed_description`, is quick.
"""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from fedpriv.federation.deployed.policy import read_party
from fedpriv.simulations.deploy.run.jobs.statement_file import read_statement
from fedpriv.simulations.run.outcome import DESCRIBED_FILES, SIGNED
from fedpriv.simulations.server_app import FAILURE
from tests.federation.deployed.prices import charged
from tests.simulations.deploy import fates
from tests.simulations.deploy.conftest import NAMES
from tests.simulations.deploy.standing import standing, wait_until

STRESS = "FEDPRIV_STRESS" in os.environ


@pytest.mark.skipif(not STRESS, reason="FEDPRIV_STRESS is not set: real processes take a while")
def test_parties_describe_their_tables() -> None:
    terms: dict[str, Any] = {
        "strategies": ["describe"],
        "queries": ["statistics"],
        "min_noise": 0.001,
    }
    with standing(NAMES, **terms) as live:
        fates.patience(live.server.root, attempts=3, seconds=60.0)
        experiment = live.written(
            "clinics",
            strategy={"name": "describe", "bins": 16, "rounds": None, "learning_rate": None},
        )
        directory = live.begin(experiment).directory
        assert live.end(directory) is not None, (directory / FAILURE).read_text()
        found = json.loads((directory / "statistics.json").read_text())
        assert set(found["columns"]) == {"age", "dose", "sick"}
        assert {path.name for path in directory.iterdir()} - {"private"} <= {
            *DESCRIBED_FILES,
            SIGNED,
        }
        for folder in live.parties:
            assert len(charged(read_party(folder.policy).ledger)) == 1
        wait_until(
            lambda: (
                (directory / SIGNED).exists()
                and len(read_statement(directory).parties) == len(NAMES)
            ),
            what="signatures of all parties",
        )
