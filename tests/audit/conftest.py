"""The laboratory of the audits: the command line, called in this process, with hooks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.audit.laboratory import Laboratory
from tests.simulations.conftest import fedpriv  # noqa: F401 - a fixture

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def laboratory(fedpriv: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Laboratory:  # noqa: F811
    """Runs releases, watched."""
    return Laboratory(fedpriv, monkeypatch)
