"""Deployments for these tests, and parties that answer whatever a test asks."""

from __future__ import annotations

import pytest

from tests.federation.deployed.deployments import take_any_kind


@pytest.fixture
def any_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries are put by hand, and not by the strategy of the run."""
    take_any_kind(monkeypatch)
