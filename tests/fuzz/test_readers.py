"""Whatever others write is read or refused: no other error, no hang, nothing spent.

Seeds are changed by bytes and by values; `FEDPRIV_STRESS=1` tries a few hundred times as many.
"""

from __future__ import annotations

import io
import os
import signal
import tarfile
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedpriv.simulations.deploy.backups import archive
from tests.fuzz.changes import changed_bytes, changed_values
from tests.fuzz.findings import FINDINGS
from tests.fuzz.readers import READERS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from random import Random

# A handler of ours is given rows of a wrong width as text; where they are no text, Arrow says so,
# refuses the table, and cannot say so to us.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

_LONGEST = 60  # seconds for one reading: it has hung
_TRIES = 5000 if "FEDPRIV_STRESS" in os.environ else 15
_DOCUMENTS = [name for name, reader in READERS.items() if reader.write is not None]
_MANY = settings(
    max_examples=_TRIES, suppress_health_check=list(HealthCheck), database=None, derandomize=True
)
_RANDOM = st.randoms(use_true_random=False)


@contextmanager
def in_time() -> Iterator[None]:
    """Refuse to wait for a reader that has hung."""
    signal.alarm(_LONGEST)
    try:
        yield
    finally:
        signal.alarm(0)


@pytest.mark.parametrize("name", READERS)
def test_what_is_valid_is_read(name: str, tmp_path: Path) -> None:
    """Else no change to it would get far."""
    reader = READERS[name]
    seeds = [*reader.seeds, *map(reader.written, reader.values)]
    for seed in seeds[:1] if name == "reply" else seeds:
        assert seed is not None
        reader.read(seed, tmp_path)


@pytest.mark.parametrize("name", READERS)
@_MANY
@given(random=_RANDOM)
def test_changed_bytes_are_read_or_refused(
    name: str, random: Random, tmp_path_factory: pytest.TempPathFactory
) -> None:
    reader = READERS[name]
    folder = tmp_path_factory.getbasetemp()
    with in_time():
        reader.attempt(changed_bytes(random.choice(reader.seeds), random), folder)


@pytest.mark.parametrize("name", _DOCUMENTS)
@_MANY
@given(random=_RANDOM)
def test_changed_values_are_read_or_refused(
    name: str, random: Random, tmp_path_factory: pytest.TempPathFactory
) -> None:
    reader = READERS[name]
    data = reader.written(changed_values(random.choice(reader.values), random))
    if data is not None:
        with in_time():
            reader.attempt(data, tmp_path_factory.getbasetemp())


@pytest.mark.parametrize(("name", "data"), FINDINGS, ids=lambda value: str(value)[:30])
def test_what_was_found_stays_found(name: str, data: bytes, tmp_path: Path) -> None:
    reader = READERS[name]
    with in_time(), pytest.raises(reader.errors):
        reader.read(data, tmp_path)


def test_a_backup_that_is_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    contents = b"[" * 100_000
    with tarfile.open(tmp_path / "deep.tar", mode="w") as tar:
        entry = tarfile.TarInfo(archive._CONTENTS)
        entry.size = len(contents)
        tar.addfile(entry, io.BytesIO(contents))
    with pytest.raises(ValueError, match="no backup of fedpriv"):
        archive.read_archive(tmp_path / "deep.tar")
