"""Deployments for these tests, and parties that answer whatever a test asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.federation.deployed import fresh_parties, stated_plans
from tests.federation.deployed.deployments import Deployment, take_any_kind
from tests.federation.deployed.north_party import CLEAR

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def any_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries are put by hand, and not by the strategy of the run."""
    take_any_kind(monkeypatch)


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    """Parties that answer in the clear: one message is one answer."""
    return fresh_parties.deployed(tmp_path)


@pytest.fixture
def sampling(tmp_path: Path) -> Deployment:
    """Parties whose budget is for samples, which they answer in the clear."""
    return stated_plans.deployed(tmp_path, clear=True)


@pytest.fixture
def clear(tmp_path: Path) -> Deployment:
    """Parties that answer in the clear: one message is one answer."""
    tmp_path.chmod(0o700)
    return Deployment(folder=tmp_path, **CLEAR)
