"""Run a mutant's tests on a copy of the repository that has it, and tell whether they notice.

Every run has a copy and a process of its own, forked from one that has imported libraries, since
these take longer than most tests, and nothing of the repository: fedpriv and its tests are imported
after the fork, from the copy, by that process and by all that it starts.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import signal
import sys
import traceback
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import TYPE_CHECKING

from tests.mutants.mutant import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.mutants.mutant import Mutant

_LIBRARIES = (
    *("numpy", "numba", "torch", "scipy.optimize", "scipy.special", "scipy.stats", "mpmath"),
    *("dp_accounting.pld.privacy_loss_distribution", "flwr.serverapp", "flwr.clientapp"),
    *("cryptography.hazmat.primitives.ciphers.aead", "pydantic", "pytest"),
)
_NOT_COPIED = (".git", ".venv*", ".*_cache", ".hypothesis", "build", "dist")
_COMPILED = ("*.nbi", "*.nbc")  # by numba, which does not see that a callee has changed
_LONGEST = 300  # seconds; what takes longer is an error, whatever the machine is busy with
_PASSED, _FAILED, _CRASHED = 0, 1, -1  # any other status of pytest is a list that does not fit


class Verdict(Enum):
    """What became of a mutant."""

    KILLED = "killed"
    NEUTRAL = "neutral"
    SURVIVED = "SURVIVED"
    NOT_NEUTRAL = "NOT NEUTRAL"
    ERROR = "ERROR"


GOOD = (Verdict.KILLED, Verdict.NEUTRAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Tests to run on a copy, with a mutant or without.

    Attributes:
        tests: What pytest is given.
        mutant: What is changed in the copy.
        status: Pytest's exit status, once it is done.
        said: Its last words.
        seconds: How long it took.
    """

    tests: tuple[str, ...]
    mutant: Mutant | None = None
    status: int = _CRASHED
    said: str = ""
    seconds: float = 0.0

    @property
    def verdict(self) -> Verdict:
        """Whether the tests noticed: each of those that are named."""
        if self.status not in (_PASSED, _FAILED):
            return Verdict.ERROR
        if self.mutant is None or self.mutant.neutral:
            return Verdict.NEUTRAL if self.status == _PASSED else Verdict.NOT_NEUTRAL
        return Verdict.KILLED if all(map(self._failed, self.tests)) else Verdict.SURVIVED

    def _failed(self, test: str) -> bool:
        """Whether a test failed, or one of a file, or one of its parameters."""
        return re.search(rf"^FAILED {re.escape(test)}(?=$|::|\[| )", self.said, re.M) is not None


def load_libraries() -> None:
    """Import what nearly every test needs, before the first fork."""
    for name in _LIBRARIES:
        importlib.import_module(name)
    if "fedpriv" in sys.modules:
        raise RuntimeError("fedpriv must not be imported before it is copied.")


def each(jobs: Iterable[Job], *, workers: int) -> Iterator[Job]:
    """The jobs as they are done, so many at a time."""
    waiting, running = list(jobs)[::-1], dict[int, tuple[Job, TemporaryDirectory[str], float]]()
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                job, folder = waiting.pop(), TemporaryDirectory(prefix="mutant-")
                running[_begun(job, Path(folder.name))] = (job, folder, monotonic())
            process, _ = os.wait()
            job, folder, started = running.pop(process)
            yield _ended(job, Path(folder.name), monotonic() - started)
            folder.cleanup()
    finally:
        for process, (_, folder, _) in running.items():
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            folder.cleanup()


def _begun(job: Job, folder: Path) -> int:
    process = os.fork()
    if process:
        return process
    status = _CRASHED
    try:
        signal.alarm(_LONGEST)
        log = os.open(folder / "said", os.O_WRONLY | os.O_CREAT)
        os.dup2(log, 1)
        os.dup2(log, 2)
        status = _run(job, folder / "copy")
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        (folder / "status").write_text(str(status))
        os._exit(0)


def _ended(job: Job, folder: Path, seconds: float) -> Job:
    status, said = folder / "status", (folder / "said").read_text(errors="replace")
    return replace(
        job,
        status=int(status.read_text()) if status.exists() else _CRASHED,
        said="\n".join(said.splitlines()[-200:]),
        seconds=seconds,
    )


def _run(job: Job, place: Path) -> int:
    """Make the copy, and run the tests on it; pytest's exit status."""
    mutant, left = job.mutant, list(_NOT_COPIED)
    source = "" if mutant is None else (ROOT / mutant.file).read_text()
    if "_compiled" in source:
        left += _COMPILED
    shutil.copytree(ROOT, place, symlinks=True, ignore=shutil.ignore_patterns(*left))
    if mutant is not None:
        changed = place / mutant.file
        changed.write_text(mutant.applied(source))
        # Python compares seconds and sizes, which need not show the change.
        for kept in (changed.parent / "__pycache__").glob(f"{changed.stem}.*"):
            kept.unlink()
    os.chdir(place)
    os.environ.update(PYTHONPATH=str(place), COLUMNS="400")
    sys.path[:] = [str(place), *(path for path in sys.path if Path(path or ".") != ROOT)]
    for name in [name for name in sys.modules if name.split(".")[0] == "tests"]:
        del sys.modules[name]
    import pytest

    # Libraries that are pytest's plugins as well were imported before it could rewrite them.
    options = ["-q", "-n0", "-pno:cacheprovider", "--no-header", "--tb=line", "-rfE"]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    options += ["--exitfirst"] if len(job.tests) == 1 and mutant is not None else []
    status = int(pytest.main([*options, *job.tests]))
    fedpriv = sys.modules.get("fedpriv")
    if fedpriv is None or not str(fedpriv.__file__).startswith(str(place)):
        raise RuntimeError("the tests were not of the copy.")
    return status


def untouched(mutants: Iterable[Mutant], *, shares: int) -> list[Job]:
    """All named tests without any mutant: where one fails, its failing is no sign."""
    by_file: dict[str, list[str]] = {}
    for test in dict.fromkeys(test for mutant in mutants for test in mutant.tests):
        by_file.setdefault(test.split("::")[0], []).append(test)
    files = sorted(by_file, key=lambda file: len(by_file[file]))
    groups = [
        [test for file in files[first::shares] for test in by_file[file]] for first in range(shares)
    ]
    return [Job(tests=tuple(group)) for group in groups if group]
