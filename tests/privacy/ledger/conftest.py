"""Ledgers for these tests: an open one, and a closed one with a row of every kind."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.events import GaussianEvent, PureEvent
from fedpriv.privacy.ledger import Kind, Ledger
from tests.privacy.ledger.ledgers import fresh

A = Adjacency.ADD_REMOVE


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with fresh(tmp_path) as ledger:
        yield ledger


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed ledger with a row of every kind."""
    path = tmp_path_factory.mktemp("original") / "test.ledger"
    noisy = GaussianEvent(relative_noise=30.0, adjacency=A)
    with Ledger.create(
        path, data_name="clinic", budget=Budget(epsilon=1.0, delta=1e-6), adjacency=A
    ) as ledger:
        ledger.bind_data(b"records")
        ledger.record_simulation("study", {"seed": 7})
        ledger.commit(ledger.reserve(noisy, run="run", round=0), b"first release")
        ledger.declare("declared", [(noisy, 2)])
        ledger.commit(ledger.reserve(noisy, run="declared", round=0), b"second release")
        ledger.reserve(PureEvent(epsilon=0.01, adjacency=A), run="run", round=1)
        assert {row.kind for row in ledger.rows()} == set(Kind)
        ledger.verify()
    assert not Path(f"{path}-wal").exists()
    return path


@pytest.fixture
def path(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(original, tmp_path))
