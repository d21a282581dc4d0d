"""Every run draws the same examples, wherever it is started: a failure is everyone's."""

from __future__ import annotations

import os
import signal
from pathlib import PurePosixPath
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ci")

# A shell lets what it starts in the background ignore Ctrl-C, and so would the programs under test.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


_REAL = "test_real_"
# Files that take longest, in tens of seconds: what begins last is what the others wait for.
_LONG = (
    "test_own_docs.py",
    "test_engines.py",
    "test_flower_runtime.py",
    "test_what_runs_where.py",
    "test_compare.py",
    "test_deployed_run.py",
    "test_deployed_dropouts.py",
    "test_erm_certificate.py",
    "test_neighbouring_files.py",
    "test_run.py",
    "test_loss_checks.py",
    "test_accounting_cli.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what is deep, and begin with what takes long: real processes, the longest files."""
    for item in items:
        if item.get_closest_marker("deep") is not None and "FEDPRIV_STRESS" not in os.environ:
            item.add_marker(pytest.mark.skip(reason="deep: FEDPRIV_STRESS=1, or make stress"))

    def place(item: pytest.Item) -> int:
        if item.path.name.startswith(_REAL):
            return 0
        return _LONG.index(item.path.name) + 1 if item.path.name in _LONG else len(_LONG) + 1

    items.sort(key=place)


class _OneFederationAtATime(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """Test files are shared out, and one worker has all whose federations are of real processes.

    They wait more than they compute: beside each other they would wait for each other.
    """

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return "real processes" if PurePosixPath(file).name.startswith(_REAL) else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    """How xdist shares out tests, unless another way is asked for."""
    shared_by_file = config.getoption("dist") == "loadfile"
    config.option.loadscopereorder = False  # in the order above
    return _OneFederationAtATime(config, log) if shared_by_file else None
