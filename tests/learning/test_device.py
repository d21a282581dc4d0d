"""Networks on an accelerator, in a process of its own.

PyTorch counts devices when a gradient is first asked for in a process: a fake one that is
registered after some other test has asked would be out of its range.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).with_name("fake_device.py")


def test_networks_on_a_fake_accelerator() -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        str(TESTS),
    ]
    done = subprocess.run(
        command, cwd=TESTS.parents[2], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
