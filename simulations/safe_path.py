"""Python processes that import only installed packages, not files in their working directory.

``python -m`` and ``python -c`` look for modules in the working directory first. A party's folder is
one: a ``simulations/`` that somebody puts beside the records would run in the place of fedpriv,
with the party's records, keys and ledger at hand. So every Python process that fedpriv starts is
started in the safe-path mode of Python (3.11: option ``-P``), and so is, by the environment
variable PYTHONSAFEPATH, every Python process that one starts in turn: Flower's own, or a pool's.

Ray puts the working directory of its driver first whatever the mode is. It is started in a
directory of its own.

Not covered: what the caller of ``fedpriv`` names himself in PYTHONPATH, and who may write to the
installation.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import fedpriv
from fedpriv._environment import environment

if TYPE_CHECKING:
    from collections.abc import Iterator

SAFE_PATH = {"PYTHONSAFEPATH": "1"}
"""What the environment of every process that is started must have."""


def python_module(name: str) -> tuple[str, ...]:
    """The command that runs an installed module."""
    return sys.executable, "-P", "-m", name


def installed_program(name: str) -> str:
    """A program of the environment that this Python belongs to."""
    return str(Path(sys.executable).parent / name)


def own_root() -> str:
    """The directory that this fedpriv is imported from, for PYTHONPATH."""
    return str(Path(fedpriv.__file__).parents[1])


@contextmanager
def safe_children() -> Iterator[None]:
    """Processes that this one starts without naming an environment are in safe-path mode, too.

    Nor do those of `multiprocessing` run again the script or notebook that this process runs.
    """
    script, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
    try:
        with environment(SAFE_PATH):
            yield
    finally:
        sys.modules["__main__"] = script
