"""Two runs and an evaluation on one federation of real processes: one budget pays for all."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from fedpriv.federation.deployed.policy import read_party
from fedpriv.privacy.ledger import Ledger
from fedpriv.simulations.server_app import FAILURE
from tests.simulations.deploy import fates
from tests.simulations.deploy.conftest import write_records
from tests.simulations.deploy.standing import FOUR, HELD, Standing, standing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SHARES: dict[str, Any] = {"privacy": {"noise_at": "parties"}, "run": {"dropout": 0.25}}
EPSILON = 100.0


@pytest.fixture(scope="module")
def live() -> Iterator[Standing]:
    """Four parties that hold out records, and let them be counted."""
    with standing(min_noise=0.0, queries=["gradient", "accuracy"]) as federation:
        fates.patience(federation.server.root, attempts=3, seconds=60.0)
        for number, folder in enumerate(federation.parties):
            write_records(folder.root / "test.csv", HELD[number], seed=100 + number)
            federation.change(folder, party={"test": "test.csv"})
        yield federation


def charges(path: Path) -> dict[str, float]:
    with Ledger.open(path, read_only=True) as ledger:
        ledger.verify()
        return {run.run: run.amount for run in ledger.runs()}


def test_two_runs_and_an_evaluation_are_charged_alike_everywhere(
    live: Standing, fedpriv: Callable[..., Any]
) -> None:
    directories = []
    for name, changes in (("clinics", {}), ("shares", SHARES)):
        submitted = live.begin(live.written(name, **changes))
        ended = live.end(submitted.directory)
        assert ended is not None, (submitted.directory / FAILURE).read_text()
        directories.append(submitted.directory)
    server = live.server.root
    done = fedpriv(
        "deploy", "evaluate", directories[1], "--epsilon", EPSILON, "--server", server, "--json"
    )
    result = done.json()
    assert result["noise_at"] == "parties"
    assert result["low"] <= result["accuracy"] <= result["high"] <= 1
    assert result["high"] - result["low"] < 0.1  # so much budget leaves little noise
    assert result["accuracy"] > 0.6  # the labels follow from the columns, nearly
    assert result["records"] == pytest.approx(sum(HELD), abs=10)
    (file,) = directories[1].glob("evaluation-*.json")
    assert json.loads(file.read_text()) == result
    books = [server / "clinics.ledger"]
    books += [read_party(live.party(name).policy).ledger for name in FOUR]
    assert [path.name for path in server.glob("*.ledger")] == ["clinics.ledger"]
    first, *others = (charges(path) for path in books)
    assert len(first) == 3
    for other in others:
        assert other == pytest.approx(first, rel=1e-12)
    refused = fedpriv("deploy", "evaluate", directories[1], "--epsilon", 1e7, "--server", server)
    assert refused.code == 2
    assert "do not fit" in refused.message
    assert charges(books[0]) == first
