"""Versions and machine of a simulation: what its seconds were measured on."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from fedpriv import __version__
from fedpriv.learning.crew import processors

MACHINE = "machine.json"
"""Of a simulation; a release does not tell what it ran on."""

_PACKAGES = ("flwr", "torch", "numpy", "numba", "scipy", "dp-accounting", "cryptography")


def machine() -> dict[str, str | int]:
    """What this process runs on."""
    known: dict[str, str | int] = {"fedpriv": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            known[package] = version(package)
        except PackageNotFoundError:
            continue
    return {
        **known,
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "processor": _processor(),
        "cores": processors(),
        "memory": _memory(),
    }


def _processor() -> str:
    """The name of the processor, where the system has one to tell."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or "unknown")


def _memory() -> str:
    try:
        return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB"
    except (ValueError, OSError):
        return "unknown"
