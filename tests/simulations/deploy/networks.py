"""Networks of a test's own: one namespace for every machine, joined by a switch that is one, too.

    server ─┐
    north  ─┤ switch 10.77.0.0/24 ── gate ── 10.78.0.0/24 ── west
    south  ─┘

The gate forwards nothing: whoever is behind it reaches the others through its proxy, or not at all.
Nothing of this machine's own network is touched; who made the namespaces removes them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ADDRESSES = {"server": "10.77.0.1", "north": "10.77.0.11", "south": "10.77.0.12"}
GATE, GATE_INSIDE, WEST = "10.77.0.99", "10.78.0.1", "10.78.0.2"


@dataclass(frozen=True, kw_only=True)
class Networks:
    """The namespaces, by the machine that each stands for."""

    prefix: str

    def name(self, machine: str) -> str:
        return f"{self.prefix}-{machine}"

    def command(self, machine: str, *words: str) -> list[str]:
        """A command on a machine."""
        return ["ip", "netns", "exec", self.name(machine), *words]

    def execute(
        self, machine: str, *words: str, seconds: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(machine, *words),
            capture_output=True, text=True, check=False, timeout=seconds,
        )  # fmt: skip


def why_not() -> str | None:
    """Why no networks can be made here; None if they can be."""
    if shutil.which("ip") is None:
        return "iproute2 is not installed"
    name = f"fp{os.getpid()}-try"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode:
        return f"network namespaces may not be made here: {made.stderr.strip()}"
    bridge = subprocess.run(
        ["ip", "-n", name, "link", "add", "switch", "type", "bridge"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    _ip("netns", "del", name)
    return f"no bridge may be made here: {bridge.stderr.strip()}" if bridge.returncode else None


@contextmanager
def networks() -> Iterator[Networks]:
    """All machines, joined; they are gone when the block ends."""
    made = Networks(prefix=f"fp{os.getpid()}")
    with ExitStack() as stack:
        for machine in ("switch", "gate", "west", *ADDRESSES):
            _ip("netns", "add", made.name(machine))
            stack.callback(_ip, "netns", "del", made.name(machine))
            _ip("-n", made.name(machine), "link", "set", "lo", "up")
        _ip("-n", made.name("switch"), "link", "add", "switch", "type", "bridge")
        _ip("-n", made.name("switch"), "link", "set", "switch", "up")
        for machine, address in {**ADDRESSES, "gate": GATE}.items():
            _join(made, machine, address, "switch")
            _ip("-n", made.name("switch"), "link", "set", machine, "master", "switch")
        _join(made, "west", WEST, "gate")
        _ip("-n", made.name("gate"), "address", "add", f"{GATE_INSIDE}/24", "dev", "west")
        yield made


def _join(made: Networks, machine: str, address: str, other: str) -> None:
    """A cable from a machine to another one, where its end has the machine's name."""
    _ip("-n", made.name(machine), "link", "add", "out", "type", "veth",
        "peer", "name", machine, "netns", made.name(other))  # fmt: skip
    _ip("-n", made.name(machine), "address", "add", f"{address}/24", "dev", "out")
    _ip("-n", made.name(machine), "link", "set", "out", "up")
    _ip("-n", made.name(other), "link", "set", machine, "up")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
