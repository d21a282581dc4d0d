"""Openings of a deployed run, kept in its directory for a server that is started again.

private/openings.json    the parties over which its latest release was to be opened
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedpriv.federation.protocol.openings import Openings
from fedpriv.simulations.run.files import private, read_json, write_json

if TYPE_CHECKING:
    from pathlib import Path


class KeptOpenings(Openings):
    """`Openings` on the disk: each is there before a party is asked.

    Args:
        directory: Of the run.
    """

    def __init__(self, directory: Path) -> None:
        self._path = private(directory) / "openings.json"
        kept = read_json(self._path) if self._path.exists() else {}
        super().__init__(
            kept.get("release", ""), map(tuple, kept.get("parties", ())), kept.get("attempts", 0)
        )

    def keep(self, release: str, sets: list[tuple[int, ...]], attempts: int) -> None:
        """Write them down."""
        write_json(self._path, {"release": release, "parties": sets, "attempts": attempts})
