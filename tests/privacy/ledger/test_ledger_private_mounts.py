"""Disks of their own for a ledger: full, or read-only, in a private mount."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def in_private_mount(directory: Path, options: str, script: str) -> str:
    """Run Python with a small file system of its own mounted at ``directory``."""
    unshare = shutil.which("unshare")
    flags = "-m" if os.geteuid() == 0 else "-rm"
    mount = f'mount -t tmpfs -o {options} none "{directory}"'
    probe = [str(unshare), flags, "sh", "-c", mount]
    if unshare is None or subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("this system does not let a test mount a file system")
    command = f'{mount} && exec "$0" -c "$1"'
    done = subprocess.run(
        [unshare, flags, "sh", "-c", command, sys.executable, script],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


PRELUDE = """
import subprocess
from pathlib import Path
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.events import GaussianEvent
from fedpriv.privacy.ledger import *

path = Path({path!r})
event = GaussianEvent(relative_noise=100.0, adjacency="add-remove")
ledger = Ledger.create(
    path, data_name="x", budget=Budget(epsilon=1.0, delta=1e-6), adjacency="add-remove"
)
"""


def test_a_disk_that_fills_up_stops_the_run_and_loses_nothing(tmp_path: Path) -> None:
    script = (
        PRELUDE.format(path=str(tmp_path / "test.ledger"))
        + """
published = []
try:
    for number in range(1000):
        reservation = ledger.reserve(event, run="run", round=number)
        ledger.commit(reservation, bytes([number % 256]) * 3000)
        published.append(number)
except LedgerFull as error:
    print("full:", error)
assert 10 < len(published) < 1000
spent = ledger.spent()
ledger.close()
with Ledger.open(path, read_only=True) as found:
    assert found.verify().spent == spent
subprocess.run(["mount", "-o", "remount,size=8m", str(path.parent)], check=True)
with Ledger.open(path) as found:
    for number in published:
        release = found.reserve(event, run="run", round=number).release
        assert release == bytes([number % 256]) * 3000
    assert found.spent() == spent
    found.commit(found.reserve(event, run="run", round=5000), b"on it goes")
    found.verify()
print("nothing lost")
"""
    )
    output = in_private_mount(tmp_path, "size=1m", script)
    assert "full: no space is left" in output
    assert "nothing lost" in output


def test_no_ledger_is_left_behind_when_there_is_no_space_to_create_one(tmp_path: Path) -> None:
    script = f"""
from pathlib import Path
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.ledger import Ledger, LedgerError
path = Path({str(tmp_path / "test.ledger")!r})
try:
    Ledger.create(
        path, data_name="x", budget=Budget(epsilon=1.0, delta=1e-6), adjacency="add-remove"
    )
except LedgerError as error:
    print("refused:", type(error).__name__)
print(sorted(path.parent.iterdir()))
"""
    output = in_private_mount(tmp_path, "size=8k", script)
    assert "refused: Ledger" in output
    assert "[]" in output


def test_a_read_only_disk_refuses_to_charge_and_can_be_verified(tmp_path: Path) -> None:
    script = (
        PRELUDE.format(path=str(tmp_path / "test.ledger"))
        + """
ledger.commit(ledger.reserve(event, run="run", round=0), b"release")
head = ledger.head
ledger.close()
subprocess.run(["mount", "-o", "remount,ro", str(path.parent)], check=True)
for attempt in (
    lambda: Ledger.open(path).reserve(event, run="run", round=1),
    lambda: Ledger.create(
        path.with_name("new"), data_name="x", budget=Budget(epsilon=1.0, delta=1e-6),
        adjacency="add-remove",
    ),
):
    try:
        attempt()
    except LedgerReadOnly as error:
        print("refused:", error)
with Ledger.open(path, read_only=True) as found:
    assert found.verify(expected_head=head).head == head
print("verified")
"""
    )
    output = in_private_mount(tmp_path, "size=4m", script)
    assert output.count("refused:") == 2
    assert "verified" in output
